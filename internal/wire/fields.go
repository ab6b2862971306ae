package wire

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// Fields are those of an error or a notice; what a server did not send is empty.
type Fields struct {
	LocalSeverity string // S: in the server's language
	Severity      string // V: in English
	Code          string // C: the SQLSTATE
	Message       string // M
	Detail        string // D
	Hint          string // H

	Position         int    // P: in the statement, in characters from 1
	InternalPosition int    // p: the same in InternalQuery
	InternalQuery    string // q
	Where            string // W

	Schema     string // s
	Table      string // t
	Column     string // c
	DataType   string // d
	Constraint string // n

	File    string // F: of the server's source
	Line    int    // L
	Routine string // R
}

// DecodeError decodes an error or a notice. Fields that it does not know are passed over, as the protocol asks. If the
// server sent no English severity, which those before 9.6 do not, the other is taken for it.
func DecodeError(body []byte) (Fields, error) {
	var f Fields
	r := reader{rest: body}
	for {
		code := r.byte()
		if code == 0 {
			break // the terminator, or nothing left
		}
		f.set(code, r.string())
	}
	if err := r.end(); err != nil {
		return Fields{}, err
	}
	if f.Severity == "" {
		f.Severity = f.LocalSeverity
	}
	return f, nil
}

func (f *Fields) set(code byte, value []byte) {
	if text := f.text(code); text != nil {
		*text = string(value)
	} else if number := f.number(code); number != nil {
		*number, _ = strconv.Atoi(string(value)) // a position that is no number is none
	}
}

// text returns the field of text that has the code, or nil.
func (f *Fields) text(code byte) *string {
	switch code {
	case 'S':
		return &f.LocalSeverity
	case 'V':
		return &f.Severity
	case 'C':
		return &f.Code
	case 'M':
		return &f.Message
	case 'D':
		return &f.Detail
	case 'H':
		return &f.Hint
	case 'q':
		return &f.InternalQuery
	case 'W':
		return &f.Where
	case 's':
		return &f.Schema
	case 't':
		return &f.Table
	case 'c':
		return &f.Column
	case 'd':
		return &f.DataType
	case 'n':
		return &f.Constraint
	case 'F':
		return &f.File
	case 'R':
		return &f.Routine
	default:
		return nil
	}
}

// number returns the field with a number that has the code, or nil.
func (f *Fields) number(code byte) *int {
	switch code {
	case 'P':
		return &f.Position
	case 'p':
		return &f.InternalPosition
	case 'L':
		return &f.Line
	default:
		return nil
	}
}

// fieldOrder is the order in which PostgreSQL sends them.
const fieldOrder = "SVCMDHPpqWstcdnFLR"

// AppendFields appends an error ([RespError]) or a notice ([RespNotice]) with all its fields.
func AppendFields(dst []byte, kind byte, f Fields) []byte {
	dst, start := begin(dst, kind)
	for _, code := range []byte(fieldOrder) {
		if text := f.text(code); text != nil {
			dst = appendField(dst, code, *text)
		} else if number := f.number(code); *number > 0 {
			dst = appendField(dst, code, strconv.Itoa(*number))
		}
	}
	return finish(append(dst, 0), start)
}

// appendField takes NULs out, since a message may quote what somebody sent.
func appendField(dst []byte, code byte, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(append(dst, code), strings.ReplaceAll(value, "\x00", ""))
}

// PGError returns what of the fields an error of the router has.
func (f Fields) PGError() *pgerr.Error {
	return &pgerr.Error{
		Severity: f.Severity, Code: f.Code, Message: f.Message, Detail: f.Detail, Hint: f.Hint, Context: f.Where, Position: f.Position,
		Schema: f.Schema, Table: f.Table, Column: f.Column, DataType: f.DataType, Constraint: f.Constraint,
	}
}

func fieldsOf(severity string, e *pgerr.Error) Fields {
	return Fields{
		LocalSeverity: severity, Severity: severity, Code: e.Code,
		Message: e.Message, Detail: e.Detail, Hint: e.Hint, Where: e.Context, Position: e.Position,
		Schema: e.Schema, Table: e.Table, Column: e.Column, DataType: e.DataType, Constraint: e.Constraint,
	}
}

// AppendError appends an error.
func AppendError(dst []byte, e *pgerr.Error) []byte {
	severity := e.Severity
	if severity == "" {
		severity = pgerr.SeverityError
	}
	return AppendFields(dst, RespError, fieldsOf(severity, e))
}

// AppendNotice appends a notice; the severity is WARNING, NOTICE, DEBUG, INFO or LOG, whatever the error says.
func AppendNotice(dst []byte, severity string, e *pgerr.Error) []byte {
	return AppendFields(dst, RespNotice, fieldsOf(severity, e))
}
