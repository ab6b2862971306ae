package wire

import (
	"bytes"
	"errors"
	"iter"
	"math"
)

// DecodeParameterStatus returns a setting that the server reports.
func DecodeParameterStatus(body []byte) (name, value []byte, err error) {
	r := reader{rest: body}
	name, value = r.string(), r.string()
	if err := r.end(); err != nil {
		return nil, nil, err
	}
	return name, value, nil
}

// DecodeReadyForQuery returns where the transaction is: [StatusIdle], [StatusInTransaction] or [StatusFailed].
func DecodeReadyForQuery(body []byte) (status byte, err error) {
	r := reader{rest: body}
	status = r.byte()
	if err := r.end(); err != nil {
		return 0, err
	}
	if status != StatusIdle && status != StatusInTransaction && status != StatusFailed {
		return 0, errFormat
	}
	return status, nil
}

// BackendKeyData is what a request to cancel must show.
type BackendKeyData struct {
	PID    uint32
	Secret []byte
}

// DecodeBackendKeyData decodes BackendKeyData, with a secret of any length.
func DecodeBackendKeyData(body []byte) (BackendKeyData, error) {
	r := reader{rest: body}
	k := BackendKeyData{PID: r.uint32()}
	k.Secret = r.bytes(len(r.rest))
	if err := r.end(); err != nil {
		return BackendKeyData{}, err
	}
	return k, nil
}

// Notification is what LISTEN brings.
type Notification struct {
	PID              uint32
	Channel, Payload []byte
}

// DecodeNotification decodes a notification.
func DecodeNotification(body []byte) (Notification, error) {
	r := reader{rest: body}
	n := Notification{PID: r.uint32(), Channel: r.string(), Payload: r.string()}
	if err := r.end(); err != nil {
		return Notification{}, err
	}
	return n, nil
}

// DecodeCommandComplete returns the command's tag.
func DecodeCommandComplete(body []byte) (tag []byte, err error) { return decodeString(body) }

// CommandRows returns how many rows a command's tag speaks of, which is its last word; 0 if it speaks of none.
func CommandRows(tag []byte) int64 {
	digits := tag[bytes.LastIndexByte(tag, ' ')+1:]
	if len(digits) == len(tag) {
		return 0
	}
	var rows int64
	for _, d := range digits {
		if d < '0' || d > '9' || rows > (math.MaxInt64-9)/10 {
			return 0
		}
		rows = 10*rows + int64(d-'0')
	}
	return rows
}

// Column describes a column of a result.
type Column struct {
	Name         []byte
	TableOID     uint32 // 0: not a table's column
	Attribute    int16
	TypeOID      uint32
	TypeSize     int16 // negative: it varies
	TypeModifier int32 // -1: none
	Format       int16
}

const textOID = 25

// TextColumn returns a column of type text that is no table's.
func TextColumn(name string) Column {
	return Column{Name: []byte(name), TypeOID: textOID, TypeSize: -1, TypeModifier: -1}
}

// RowDescription describes the columns of a result.
type RowDescription struct {
	count   int
	columns []byte
}

// DecodeRowDescription decodes RowDescription.
func DecodeRowDescription(body []byte) (RowDescription, error) {
	r := reader{rest: body}
	d := RowDescription{count: int(r.uint16())}
	d.columns = r.rest
	for range d.count {
		if r.column(); r.err != nil {
			return RowDescription{}, r.err
		}
	}
	if err := r.end(); err != nil {
		return RowDescription{}, err
	}
	return d, nil
}

func (r *reader) column() Column {
	return Column{
		Name: r.string(), TableOID: r.uint32(), Attribute: r.int16(),
		TypeOID: r.uint32(), TypeSize: r.int16(), TypeModifier: r.int32(), Format: r.int16(),
	}
}

// Count returns how many columns there are.
func (d RowDescription) Count() int { return d.count }

// Columns iterates over the columns, from 0.
func (d RowDescription) Columns() iter.Seq2[int, Column] {
	return func(yield func(int, Column) bool) {
		r := reader{rest: d.columns}
		for i := range d.count {
			if !yield(i, r.column()) {
				return
			}
		}
	}
}

// EqualDescriptions says whether two RowDescriptions have as many columns, and each is the same as the other's in the caller's eyes.
func EqualDescriptions(a, b []byte, same func(one, other Column) bool) (bool, error) {
	one, other := reader{rest: a}, reader{rest: b}
	count := one.uint16()
	if count != other.uint16() {
		return false, nil
	}
	for range count {
		if equal := same(one.column(), other.column()); one.err != nil || other.err != nil || !equal {
			return false, errors.Join(one.err, other.err)
		}
	}
	return true, errors.Join(one.end(), other.end())
}

// DecodeParameterDescription returns the types of a statement's parameters.
func DecodeParameterDescription(body []byte) (OIDs, error) {
	r := reader{rest: body}
	oids := r.list(4)
	if err := r.end(); err != nil {
		return nil, err
	}
	return oids, nil
}

// DataRow is a row of a result.
type DataRow struct {
	count  int
	values []byte
}

// DecodeDataRow decodes DataRow.
func DecodeDataRow(body []byte) (DataRow, error) {
	r := reader{rest: body}
	d := DataRow{count: int(r.uint16())}
	d.values = r.rest
	for range d.count {
		if r.value(); r.err != nil {
			return DataRow{}, r.err
		}
	}
	if err := r.end(); err != nil {
		return DataRow{}, err
	}
	return d, nil
}

// Count returns how many values there are.
func (d DataRow) Count() int { return d.count }

// Values iterates over the values, from 0. NULL is nil, an empty value is not.
func (d DataRow) Values() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		r := reader{rest: d.values}
		for i := range d.count {
			if !yield(i, r.value()) {
				return
			}
		}
	}
}
