package wire

import (
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// DecodeQuery returns the text of a simple query.
func DecodeQuery(body []byte) (text []byte, err error) { return decodeString(body) }

// DecodeCopyFail returns why the client gave its COPY up.
func DecodeCopyFail(body []byte) (reason []byte, err error) { return decodeString(body) }

func decodeString(body []byte) ([]byte, error) {
	r := reader{rest: body}
	text := r.string()
	if err := r.end(); err != nil {
		return nil, err
	}
	return text, nil
}

// OIDs is a list of types as it stands in a message, four bytes each.
type OIDs []byte

// Count returns how many there are.
func (o OIDs) Count() int { return len(o) / 4 }

// At returns the i-th, from 0.
func (o OIDs) At(i int) uint32 { return binary.BigEndian.Uint32(o[4*i:]) }

// Parse names a statement. The types are those that the client declared for its first parameters; 0 leaves one open.
type Parse struct {
	Name, Query []byte
	OIDs        OIDs
}

// DecodeParse decodes Parse.
func DecodeParse(body []byte) (Parse, error) {
	r := reader{rest: body}
	p := Parse{Name: r.string(), Query: r.string(), OIDs: r.list(4)}
	if err := r.end(); err != nil {
		return Parse{}, err
	}
	return p, nil
}

// OIDCount returns how many types were declared.
func (p Parse) OIDCount() int { return p.OIDs.Count() }

// OID returns the declared type of the i-th parameter, from 0.
func (p Parse) OID(i int) uint32 { return p.OIDs.At(i) }

// Target is what Describe and Close are about: [TargetStatement] or [TargetPortal], and its name.
type Target struct {
	Kind byte
	Name []byte
}

// DecodeDescribe decodes Describe.
func DecodeDescribe(body []byte) (Target, error) { return decodeTarget(body, "DESCRIBE") }

// DecodeClose decodes Close.
func DecodeClose(body []byte) (Target, error) { return decodeTarget(body, "CLOSE") }

func decodeTarget(body []byte, message string) (Target, error) {
	r := reader{rest: body}
	t := Target{Kind: r.byte(), Name: r.string()}
	if err := r.end(); err != nil {
		return Target{}, err
	}
	if t.Kind != TargetStatement && t.Kind != TargetPortal {
		return Target{}, pgerr.New(pgerr.ProtocolViolation, "invalid %s message subtype %d", message, t.Kind)
	}
	return t, nil
}

// Execute runs a portal; MaxRows of 0 or less is no limit.
type Execute struct {
	Portal  []byte
	MaxRows int32
}

// DecodeExecute decodes Execute.
func DecodeExecute(body []byte) (Execute, error) {
	r := reader{rest: body}
	e := Execute{Portal: r.string(), MaxRows: r.int32()}
	if err := r.end(); err != nil {
		return Execute{}, err
	}
	return e, nil
}

var errPasswordSize error = pgerr.Fatal(pgerr.ProtocolViolation, "invalid password packet size")

// DecodePassword returns a password that was sent in the clear.
func DecodePassword(body []byte) ([]byte, error) {
	password, err := decodeString(body)
	if err != nil {
		return nil, errPasswordSize
	}
	return password, nil
}

// SASLInitial is the client's choice of a mechanism; Data is nil if the client lets the server begin.
type SASLInitial struct {
	Mechanism string
	Data      []byte
}

// DecodeSASLInitial decodes the first answer to a request for SASL.
func DecodeSASLInitial(body []byte) (SASLInitial, error) {
	r := reader{rest: body}
	s := SASLInitial{Mechanism: string(r.string()), Data: r.value()}
	if err := r.end(); err != nil {
		return SASLInitial{}, err
	}
	return s, nil
}

// DecodeSASLResponse returns the data of an answer in the middle of SASL, which is all there is in one.
func DecodeSASLResponse(body []byte) []byte { return body[:len(body):len(body)] }
