package wire

import (
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// AppendQuery appends a simple query.
func AppendQuery[T Text](dst []byte, text T) []byte { return appendStringMessage(dst, MsgQuery, text) }

// AppendParse appends Parse; oids are the types of the first parameters, 0 for one that the server shall find out.
func AppendParse[N, Q Text](dst []byte, name N, query Q, oids []uint32) []byte {
	dst, start := begin(dst, MsgParse)
	dst = appendString(dst, name)
	dst = appendString(dst, query)
	return finish(appendOIDs(dst, oids), start)
}

// AppendParseRaw appends Parse with the types of another one.
func AppendParseRaw[N, Q Text](dst []byte, name N, query Q, oids OIDs) []byte {
	dst, start := begin(dst, MsgParse)
	dst = appendString(dst, name)
	dst = appendString(dst, query)
	dst = appendUint16(dst, uint16(oids.Count()))
	return finish(append(dst, oids...), start)
}

// AppendBind appends Bind. Formats are none for text, one for all, or one for each; a parameter that is nil is NULL.
func AppendBind[P, S Text](dst []byte, portal P, statement S, formats []int16, params [][]byte, resultFormats []int16) []byte {
	dst, start := begin(dst, MsgBind)
	dst = appendString(dst, portal)
	dst = appendString(dst, statement)
	dst = appendFormats(dst, formats)
	dst = appendValues(dst, params)
	return finish(appendFormats(dst, resultFormats), start)
}

// AppendBindTail appends Bind with everything but the names taken from another one, see [Bind.Tail].
func AppendBindTail[P, S Text](dst []byte, portal P, statement S, tail []byte) []byte {
	dst, start := begin(dst, MsgBind)
	dst = appendString(dst, portal)
	dst = appendString(dst, statement)
	return finish(append(dst, tail...), start)
}

// AppendDescribe appends Describe of a [TargetStatement] or [TargetPortal].
func AppendDescribe[T Text](dst []byte, kind byte, name T) []byte {
	return appendTarget(dst, MsgDescribe, kind, name)
}

// AppendClose appends Close of a [TargetStatement] or [TargetPortal].
func AppendClose[T Text](dst []byte, kind byte, name T) []byte {
	return appendTarget(dst, MsgClose, kind, name)
}

func appendTarget[T Text](dst []byte, message, kind byte, name T) []byte {
	dst, start := begin(dst, message)
	return finish(appendString(append(dst, kind), name), start)
}

// AppendExecute appends Execute; 0 is no limit of rows.
func AppendExecute[T Text](dst []byte, portal T, maxRows int32) []byte {
	dst, start := begin(dst, MsgExecute)
	return finish(appendUint32(appendString(dst, portal), uint32(maxRows)), start)
}

// AppendSync appends Sync.
func AppendSync(dst []byte) []byte { return appendEmpty(dst, MsgSync) }

// AppendFlush appends Flush.
func AppendFlush(dst []byte) []byte { return appendEmpty(dst, MsgFlush) }

// AppendTerminate appends Terminate.
func AppendTerminate(dst []byte) []byte { return appendEmpty(dst, MsgTerminate) }

// AppendCopyData appends data of COPY, in either direction.
func AppendCopyData(dst, data []byte) []byte { return appendBytesMessage(dst, MsgCopyData, data) }

// AppendCopyDone appends the end of COPY, in either direction.
func AppendCopyDone(dst []byte) []byte { return appendEmpty(dst, MsgCopyDone) }

// AppendCopyFail appends that a COPY is given up, and why.
func AppendCopyFail[T Text](dst []byte, reason T) []byte {
	return appendStringMessage(dst, MsgCopyFail, reason)
}

// AppendPassword appends a password in the clear, or hashed the way that MD5 authentication asks.
func AppendPassword[T Text](dst []byte, password T) []byte {
	return appendStringMessage(dst, MsgPassword, password)
}

// AppendSASLInitial appends the choice of a mechanism; without data (nil) the server begins.
func AppendSASLInitial(dst []byte, mechanism string, data []byte) []byte {
	dst, start := begin(dst, MsgPassword)
	return finish(appendValue(appendString(dst, mechanism), data), start)
}

// AppendSASLResponse appends an answer in the middle of SASL.
func AppendSASLResponse(dst, data []byte) []byte { return appendBytesMessage(dst, MsgPassword, data) }

// AppendStartup appends a startup message of protocol 3.0. It refuses parameters with a NUL and those without a name,
// which the server would take for other parameters, or for the end of them.
func AppendStartup(dst []byte, parameters []Parameter) ([]byte, error) {
	for _, p := range parameters {
		if p.Name == "" || strings.Contains(p.Name, "\x00") || strings.Contains(p.Value, "\x00") {
			return dst, pgerr.New(pgerr.InvalidParameterValue, "startup parameter %q has no name or holds a zero byte", p.Name)
		}
	}
	dst, start := beginRequest(dst, ProtocolMajor, 0)
	for _, p := range parameters {
		dst = appendString(appendString(dst, p.Name), p.Value)
	}
	return finish(append(dst, 0), start), nil
}

// AppendSSLRequest appends the question whether the server speaks TLS.
func AppendSSLRequest(dst []byte) []byte {
	return finish(beginRequest(dst, requestMajor, sslRequestMinor))
}

// AppendCancelRequest appends a request to cancel what the backend with this key is doing.
func AppendCancelRequest(dst []byte, pid uint32, secret []byte) []byte {
	dst, start := beginRequest(dst, requestMajor, cancelRequestMinor)
	return finish(append(appendUint32(dst, pid), secret...), start)
}

// beginRequest is begin for packets without a type.
func beginRequest(dst []byte, major, minor uint16) (extended []byte, start int) {
	return appendUint16(appendUint16(append(dst, 0, 0, 0, 0), major), minor), len(dst)
}
