package wire

import (
	"encoding/binary"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// StartupKind tells the packets apart that may open a connection.
type StartupKind byte

// What may open a connection.
const (
	StartupMessage StartupKind = iota
	SSLRequest
	GSSENCRequest
	CancelRequest
)

const (
	// MaxStartupPacket is the most that may follow the length of a startup packet: PostgreSQL's limit. Nobody has logged in
	// yet, so it is small.
	MaxStartupPacket = 10000
	// ProtocolMajor is the only protocol that is left.
	ProtocolMajor = 3
	// ProtocolMinor is the newest minor version that this package knows: 3.0 with secrets of any length.
	ProtocolMinor = 2

	requestMajor       = 1234 // a version that never was, for what is not a startup message
	cancelRequestMinor = 5678
	sslRequestMinor    = 5679
	gssencRequestMinor = 5680

	maxSecret = 256

	// protocolOptionPrefix marks what is a wish about the protocol and not a setting.
	protocolOptionPrefix = "_pq_."
)

var (
	errStartupLength error = pgerr.Fatal(pgerr.ProtocolViolation, "invalid length of startup packet")
	errStartupLayout error = pgerr.Fatal(pgerr.ProtocolViolation, "invalid startup packet layout: expected terminator as last byte")
	errCancelLength  error = pgerr.Fatal(pgerr.ProtocolViolation, "invalid length of cancel request packet")
	errNoUser        error = pgerr.Fatal(pgerr.InvalidAuthorization, "no PostgreSQL user name specified in startup packet")
)

// Parameter is a name and a value of a startup message.
type Parameter struct{ Name, Value string }

// Startup is what opens a connection.
type Startup struct {
	Kind         StartupKind
	Major, Minor uint16 // of a startup message: Major is 3, Minor whatever the client would like best

	// Parameters of a startup message, in the order in which their names came; the last value of a name counts. There is
	// a user among them.
	Parameters []Parameter
	// Options are the names of protocol options that the client asked for. PostgreSQL itself knows none.
	Options []string

	// PID and Secret of a cancel request; Secret aliases the packet.
	PID    uint32
	Secret []byte
}

// Parameter returns the value of a parameter.
func (s *Startup) Parameter(name string) (value string, found bool) {
	for _, p := range s.Parameters {
		if p.Name == name {
			return p.Value, true
		}
	}
	return "", false
}

// StartupSize returns the size of the packet that b begins with, its length included; 0 if b is too short to tell.
func StartupSize(b []byte) (size int, err error) {
	if len(b) < lengthSize {
		return 0, nil
	}
	length := binary.BigEndian.Uint32(b)
	if length < 2*lengthSize || length > lengthSize+MaxStartupPacket {
		return 0, errStartupLength
	}
	return int(length), nil
}

// DecodeStartup decodes a packet that opens a connection, its length included.
func DecodeStartup(packet []byte) (Startup, error) {
	size, err := StartupSize(packet)
	if err != nil {
		return Startup{}, err
	}
	if size == 0 || size != len(packet) {
		return Startup{}, errStartupLength
	}
	r := reader{rest: packet[lengthSize:]}
	major, minor := r.uint16(), r.uint16()
	switch {
	case major == requestMajor && minor == sslRequestMinor:
		return bareRequest(SSLRequest, r)
	case major == requestMajor && minor == gssencRequestMinor:
		return bareRequest(GSSENCRequest, r)
	case major == requestMajor && minor == cancelRequestMinor:
		return decodeCancel(r)
	case major == ProtocolMajor:
		return decodeStartupMessage(minor, r)
	default:
		return Startup{}, pgerr.Fatal(pgerr.FeatureNotSupported, "unsupported frontend protocol %d.%d: server supports %d.0 to %d.%d",
			major, minor, ProtocolMajor, ProtocolMajor, ProtocolMinor)
	}
}

func bareRequest(kind StartupKind, r reader) (Startup, error) {
	if len(r.rest) > 0 {
		return Startup{}, errStartupLength
	}
	return Startup{Kind: kind}, nil
}

func decodeCancel(r reader) (Startup, error) {
	s := Startup{Kind: CancelRequest, PID: r.uint32(), Secret: r.rest[:len(r.rest):len(r.rest)]}
	if r.err != nil || len(s.Secret) == 0 || len(s.Secret) > maxSecret {
		return Startup{}, errCancelLength
	}
	return s, nil
}

func decodeStartupMessage(minor uint16, r reader) (Startup, error) {
	s := Startup{Kind: StartupMessage, Major: ProtocolMajor, Minor: minor}
	seen := make(map[string]int)
	for {
		name := string(r.string())
		if name == "" {
			break // the terminator, or nothing left
		}
		s.add(seen, Parameter{name, string(r.string())})
	}
	if r.end() != nil {
		return Startup{}, errStartupLayout
	}
	if user, _ := s.Parameter("user"); user == "" {
		return Startup{}, errNoUser
	}
	return s, nil
}

// add keeps one value of each name; seen says where.
func (s *Startup) add(seen map[string]int, p Parameter) {
	at, again := seen[p.Name]
	switch isOption := strings.HasPrefix(p.Name, protocolOptionPrefix); {
	case isOption && !again:
		s.Options = append(s.Options, p.Name)
		seen[p.Name] = 0
	case isOption:
	case again:
		s.Parameters[at].Value = p.Value
	default:
		seen[p.Name] = len(s.Parameters)
		s.Parameters = append(s.Parameters, p)
	}
}
