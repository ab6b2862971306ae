package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// refused checks that an error is one for a client, with this code and message.
func refused(t *testing.T, err error, code, message string) {
	t.Helper()
	var e *pgerr.Error
	if !errors.As(err, &e) || e.Code != code || e.Message != message {
		t.Errorf("%v, want %s %s", err, code, message)
	}
}

func TestFrame(t *testing.T) {
	message := AppendQuery(nil, "x")
	for n := range HeaderSize {
		if _, size, err := Frame(message[:n]); size != 0 || err != nil {
			t.Errorf("%d bytes: %d, %v", n, size, err)
		}
	}
	if kind, size, err := Frame(message[:HeaderSize]); kind != MsgQuery || size != len(message) || err != nil {
		t.Errorf("a header alone: %c, %d, %v", kind, size, err)
	}
	for length, good := range map[uint32]bool{0: false, 3: false, 4: true, 1 << 30: true, 1<<30 + 1: false, 1<<32 - 1: false} {
		_, size, err := Frame(binary.BigEndian.AppendUint32([]byte{'Q'}, length))
		if good && (err != nil || size != int(length)+1) {
			t.Errorf("length %d: %d, %v", length, size, err)
		}
		if !good {
			refused(t, err, pgerr.ProtocolViolation, "invalid message length")
		}
	}
}

// TestParamInAnyOrder: what Bind remembers does not show.
func TestParamInAnyOrder(t *testing.T) {
	b, err := DecodeBind(Body(AppendBind(nil, "", "", []int16{FormatBinary}, someParams, nil)))
	must(t, b, err)
	for _, i := range []int{3, 0, 1, 1, 3, 2, 0, 3} {
		value, isBinary, null := b.Param(i)
		if !bytes.Equal(value, someParams[i]) || null != (someParams[i] == nil) || !isBinary {
			t.Errorf("parameter %d: %q, binary %v, null %v", i, value, isBinary, null)
		}
	}
	for _, i := range []int{-1, len(someParams)} {
		if !panics(func() { b.Param(i) }) {
			t.Errorf("there is a parameter %d", i)
		}
	}
}

func panics(f func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	f()
	return false
}

func TestParamFormats(t *testing.T) {
	for _, c := range []struct {
		formats []int16
		want    []bool
	}{{nil, []bool{false, false}}, {[]int16{1}, []bool{true, true}}, {[]int16{0}, []bool{false, false}}, {[]int16{0, 1}, []bool{false, true}}} {
		b, err := DecodeBind(Body(AppendBind(nil, "", "", c.formats, [][]byte{{1}, {2}}, nil)))
		must(t, b, err)
		for i, want := range c.want {
			if _, got, _ := b.Param(i); got != want {
				t.Errorf("formats %v: parameter %d is binary: %v", c.formats, i, got)
			}
		}
	}
}

// TestResultsCannotOverwrite: appending to what a decoder returned leaves the message alone.
func TestResultsCannotOverwrite(t *testing.T) {
	message := AppendBind(nil, "portal", "statement", nil, [][]byte{[]byte("a"), []byte("b")}, nil)
	was := slices.Clone(message)
	b, err := DecodeBind(Body(message))
	must(t, b, err)
	first, _, _ := b.Param(0)
	for _, result := range [][]byte{b.Portal, b.Statement, first} {
		_ = append(result, "overwritten"...)
	}
	if !bytes.Equal(message, was) {
		t.Errorf("%q became %q", was, message)
	}
}

// packet makes a startup packet of a version and what follows it.
func packet(major, minor uint16, rest string) []byte {
	dst, start := beginRequest(nil, major, minor)
	return finish(append(dst, rest...), start)
}

func TestStartupParameters(t *testing.T) {
	s, err := DecodeStartup(packet(3, 7, "a\x001\x00user\x00ann\x00_pq_.x\x00y\x00a\x002\x00_pq_.x\x00z\x00e\x00\x00\x00"))
	want := Startup{
		Major: 3, Minor: 7, Options: []string{"_pq_.x"},
		Parameters: []Parameter{{"a", "2"}, {"user", "ann"}, {"e", ""}},
	}
	if diff := cmp.Diff(want, must(t, s, err)); diff != "" {
		t.Error(diff)
	}
	if _, found := s.Parameter("database"); found {
		t.Error("there is a database")
	}
}

func TestStartupRefusals(t *testing.T) {
	const (
		length = "invalid length of startup packet"
		layout = "invalid startup packet layout: expected terminator as last byte"
		cancel = "invalid length of cancel request packet"
		nobody = "no PostgreSQL user name specified in startup packet"
	)
	tooLong := packet(3, 0, "user\x00"+strings.Repeat("x", MaxStartupPacket)+"\x00\x00")
	for _, c := range []struct {
		packet        []byte
		code, message string
	}{
		{nil, pgerr.ProtocolViolation, length},
		{[]byte{0, 0, 0, 4}, pgerr.ProtocolViolation, length},
		{[]byte{0, 0, 0, 9, 0, 3, 0, 0}, pgerr.ProtocolViolation, length},
		{tooLong, pgerr.ProtocolViolation, length},
		{packet(1234, 5679, "x"), pgerr.ProtocolViolation, length},
		{packet(1234, 5678, "\x00\x00\x00"), pgerr.ProtocolViolation, cancel},
		{packet(1234, 5678, "\x00\x00\x00\x01"), pgerr.ProtocolViolation, cancel},
		{packet(1234, 5678, strings.Repeat("x", 4+maxSecret+1)), pgerr.ProtocolViolation, cancel},
		{packet(1234, 5681, ""), pgerr.FeatureNotSupported, "unsupported frontend protocol 1234.5681: server supports 3.0 to 3.2"},
		{packet(2, 0, ""), pgerr.FeatureNotSupported, "unsupported frontend protocol 2.0: server supports 3.0 to 3.2"},
		{packet(3, 0, ""), pgerr.ProtocolViolation, layout},
		{packet(3, 0, "user\x00ann\x00"), pgerr.ProtocolViolation, layout},
		{packet(3, 0, "user\x00ann\x00\x00x"), pgerr.ProtocolViolation, layout},
		{packet(3, 0, "user\x00ann"), pgerr.ProtocolViolation, layout},
		{packet(3, 0, "user"), pgerr.ProtocolViolation, layout},
		{packet(3, 0, "\x00"), pgerr.InvalidAuthorization, nobody},
		{packet(3, 0, "user\x00\x00\x00"), pgerr.InvalidAuthorization, nobody},
	} {
		_, err := DecodeStartup(c.packet)
		refused(t, err, c.code, c.message)
	}
}

// TestStartupWithoutSmuggling: a value cannot become a parameter of its own.
func TestStartupWithoutSmuggling(t *testing.T) {
	for _, p := range []Parameter{{"application_name", "x\x00user\x00root"}, {"a\x00user", "root"}, {"", "user"}} {
		dst, err := AppendStartup([]byte("before"), []Parameter{{"user", "ann"}, p})
		if err == nil || string(dst) != "before" {
			t.Errorf("%q: %q, %v", p, dst, err)
		}
	}
}

func TestCommandRows(t *testing.T) {
	for tag, want := range map[string]int64{
		"SELECT 5": 5, "INSERT 0 1": 1, "UPDATE 3": 3, "DELETE 0": 0, "MERGE 12": 12, "COPY 7": 7, "FETCH 2": 2, "SELECT 1234567890123": 1234567890123,
		"": 0, " ": 0, "BEGIN": 0, "5": 0, "CREATE TABLE": 0, "SELECT x5": 0, "SELECT -5": 0, "SELECT 99999999999999999999": 0,
	} {
		if got := CommandRows([]byte(tag)); got != want {
			t.Errorf("%q: %d", tag, got)
		}
	}
}

func TestErrorFields(t *testing.T) {
	f, err := DecodeError([]byte("SWARNUNG\x00C01000\x00Mm\x00Pfar\x00?new\x00\x00"))
	want := Fields{LocalSeverity: "WARNUNG", Severity: "WARNUNG", Code: "01000", Message: "m"}
	if diff := cmp.Diff(want, must(t, f, err)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(refusal, must(t, decodedRefusal(t), nil).PGError()); diff != "" {
		t.Error(diff)
	}
	whole := Fields{
		LocalSeverity: "ERROR", Severity: "ERROR", Code: "23514", Message: "m", Detail: "d", Hint: "h", Position: 3, Where: "PL/pgSQL function f() line 1 at RAISE",
		Schema: "s", Table: "t", Column: "c", DataType: "y", Constraint: "n",
	}
	f, err = DecodeError(Body(AppendError(nil, whole.PGError())))
	if diff := cmp.Diff(whole, must(t, f, err)); diff != "" {
		t.Error(diff)
	}
}

func decodedRefusal(t *testing.T) Fields {
	f, err := DecodeError(Body(AppendError(nil, &pgerr.Error{Code: refusal.Code, Message: "n\x00o", Detail: refusal.Detail, Hint: refusal.Hint, Position: 7})))
	return must(t, f, err)
}

// TestBrokenAnswers: what only a broken server says.
func TestBrokenAnswers(t *testing.T) {
	decoders := map[string]func([]byte) error{
		"error":                 func(b []byte) error { _, err := DecodeError(b); return err },
		"parameter status":      func(b []byte) error { _, _, err := DecodeParameterStatus(b); return err },
		"ready":                 func(b []byte) error { _, err := DecodeReadyForQuery(b); return err },
		"notification":          func(b []byte) error { _, err := DecodeNotification(b); return err },
		"command complete":      func(b []byte) error { _, err := DecodeCommandComplete(b); return err },
		"row description":       func(b []byte) error { _, err := DecodeRowDescription(b); return err },
		"parameter description": func(b []byte) error { _, err := DecodeParameterDescription(b); return err },
		"data row":              func(b []byte) error { _, err := DecodeDataRow(b); return err },
	}
	for _, a := range backendAgreements() {
		decode := decoders[a.name]
		if decode == nil {
			continue
		}
		delete(decoders, a.name)
		body := Body(a.ours)
		for n := range body {
			if decode(body[:n:n]) == nil {
				t.Errorf("%s: the first %d bytes of %q are one too", a.name, n, body)
			}
		}
		if decode(append(slices.Clone(body), 'x')) == nil {
			t.Errorf("%s: %q may go on", a.name, body)
		}
	}
	if len(decoders) > 0 {
		t.Errorf("never tried: %v", decoders)
	}
	if _, err := DecodeReadyForQuery([]byte("X")); err == nil {
		t.Error("a transaction may be X")
	}
	if _, err := DecodeBackendKeyData([]byte{0, 0, 0}); err == nil {
		t.Error("three bytes are a process id")
	}
}
