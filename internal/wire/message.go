package wire

import (
	"encoding/binary"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Types of messages that clients send.
const (
	MsgBind         = 'B'
	MsgClose        = 'C'
	MsgCopyData     = 'd' // servers too
	MsgCopyDone     = 'c' // servers too
	MsgCopyFail     = 'f'
	MsgDescribe     = 'D'
	MsgExecute      = 'E'
	MsgFlush        = 'H'
	MsgFunctionCall = 'F'
	MsgParse        = 'P'
	MsgPassword     = 'p' // whatever answers a request to authenticate
	MsgQuery        = 'Q'
	MsgSync         = 'S'
	MsgTerminate    = 'X'
)

// Types of messages that servers send.
const (
	RespAuthentication           = 'R'
	RespBackendKeyData           = 'K'
	RespBindComplete             = '2'
	RespCloseComplete            = '3'
	RespCommandComplete          = 'C'
	RespCopyBoth                 = 'W'
	RespCopyData                 = 'd'
	RespCopyDone                 = 'c'
	RespCopyIn                   = 'G'
	RespCopyOut                  = 'H'
	RespDataRow                  = 'D'
	RespEmptyQuery               = 'I'
	RespError                    = 'E'
	RespFunctionCall             = 'V'
	RespNegotiateProtocolVersion = 'v'
	RespNoData                   = 'n'
	RespNotice                   = 'N'
	RespNotification             = 'A'
	RespParameterDescription     = 't'
	RespParameterStatus          = 'S'
	RespParseComplete            = '1'
	RespPortalSuspended          = 's'
	RespReadyForQuery            = 'Z'
	RespRowDescription           = 'T'
)

// What Describe and Close are about.
const (
	TargetPortal    = 'P'
	TargetStatement = 'S'
)

// What ReadyForQuery says of the transaction.
const (
	StatusIdle          = 'I'
	StatusInTransaction = 'T'
	StatusFailed        = 'E'
)

// Formats of values.
const (
	FormatText   = 0
	FormatBinary = 1
)

const (
	// HeaderSize is the size of a message without a body: its type and its length.
	HeaderSize = 5
	// MaxPasswordSize is the longest answer to a request to authenticate that PostgreSQL reads. [Frame] does not know who
	// has logged in already, so it is for the caller to stop a stranger who announces more.
	MaxPasswordSize = 65535

	lengthSize = 4
	maxLength  = 1 << 30 // PostgreSQL's own limit
)

var errMessageLength error = pgerr.Fatal(pgerr.ProtocolViolation, "invalid message length")

// Frame returns the type and the size, header included, of the message that b begins with. The size is 0 if b is too short
// to tell; it may be larger than b, if the rest has not arrived.
func Frame(b []byte) (kind byte, size int, err error) {
	if len(b) < HeaderSize {
		return 0, 0, nil
	}
	length := binary.BigEndian.Uint32(b[1:HeaderSize])
	if length < lengthSize || length > maxLength {
		return b[0], 0, errMessageLength
	}
	return b[0], int(length) + 1, nil
}

// Body returns a message without its header. The message must be whole, as [Frame] measured it.
func Body(message []byte) []byte { return message[HeaderSize:] }
