package wire

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"
)

// fuzz runs a check over what the decoder made of any body. Seeds are the messages of the given type.
func fuzz[T any](f *testing.F, kind byte, decode func([]byte) (T, error), check func(t *testing.T, body []byte, decoded T)) {
	for _, a := range slices.Concat(frontendAgreements(), backendAgreements()) {
		if a.ours[0] == kind {
			f.Add(Body(a.ours))
		}
	}
	for _, m := range malformed() {
		if m[0] == kind {
			f.Add(Body(m))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		was := slices.Clone(body)
		decoded, err := decode(body)
		if err == nil {
			check(t, body, decoded)
		}
		if !bytes.Equal(body, was) {
			t.Errorf("%q became %q", was, body)
		}
	})
}

// inside checks that results lie in the body, and cannot grow into what follows them.
func inside(t *testing.T, body []byte, results ...[]byte) {
	t.Helper()
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(body)))
	for _, r := range results {
		at := uintptr(unsafe.Pointer(unsafe.SliceData(r)))
		if r != nil && (at < begin || at+uintptr(len(r)) > begin+uintptr(len(body))) {
			t.Errorf("%q is not of %q", r, body)
		}
		if cap(r) != len(r) {
			t.Errorf("%q has room for %d bytes", r, cap(r))
		}
	}
}

// same checks that a message that was written again has the body it had.
func same(t *testing.T, body, again []byte) {
	t.Helper()
	if kind, size, err := Frame(again); err != nil || size != len(again) || kind != again[0] {
		t.Errorf("%q is framed as %c, %d, %v", again, kind, size, err)
	}
	if !bytes.Equal(body, Body(again)) {
		t.Errorf("%q written again is %q", body, Body(again))
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(AppendSync(nil))
	f.Add([]byte{'Q', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, size, err := Frame(b)
		if err != nil || size == 0 {
			return
		}
		if kind != b[0] || size < HeaderSize || size > maxLength+1 {
			t.Errorf("%q: %c, %d", b, kind, size)
		}
		if size <= len(b) {
			inside(t, b, slices.Clip(Body(b[:size])))
		}
	})
}

func FuzzQuery(f *testing.F) {
	fuzz(f, MsgQuery, DecodeQuery, func(t *testing.T, body, text []byte) {
		inside(t, body, text)
		same(t, body, AppendQuery(nil, text))
	})
}

func FuzzParse(f *testing.F) {
	fuzz(f, MsgParse, DecodeParse, func(t *testing.T, body []byte, p Parse) {
		inside(t, body, p.Name, p.Query, p.OIDs)
		same(t, body, againParse(t, body))
	})
}

func FuzzBind(f *testing.F) {
	fuzz(f, MsgBind, DecodeBind, func(t *testing.T, body []byte, b Bind) {
		inside(t, body, b.Portal, b.Statement, b.Tail())
		for i := range b.ParamCount() {
			value, _, _ := b.Param(i)
			inside(t, body, value)
		}
		same(t, body, AppendBindTail(nil, b.Portal, b.Statement, b.Tail()))
		if b.ParamCount() > 0 || len(b.formats) == 0 { // a format for nothing cannot be seen
			same(t, body, reBind(&b))
		}
	})
}

func FuzzDescribe(f *testing.F) {
	fuzz(f, MsgDescribe, DecodeDescribe, func(t *testing.T, body []byte, d Target) {
		inside(t, body, d.Name)
		same(t, body, AppendDescribe(nil, d.Kind, d.Name))
	})
}

func FuzzClose(f *testing.F) {
	fuzz(f, MsgClose, DecodeClose, func(t *testing.T, body []byte, c Target) {
		inside(t, body, c.Name)
		same(t, body, AppendClose(nil, c.Kind, c.Name))
	})
}

func FuzzExecute(f *testing.F) {
	fuzz(f, MsgExecute, DecodeExecute, func(t *testing.T, body []byte, e Execute) {
		inside(t, body, e.Portal)
		same(t, body, AppendExecute(nil, e.Portal, e.MaxRows))
	})
}

func FuzzCopyFail(f *testing.F) {
	fuzz(f, MsgCopyFail, DecodeCopyFail, func(t *testing.T, body, reason []byte) {
		inside(t, body, reason)
		same(t, body, AppendCopyFail(nil, reason))
	})
}

// FuzzPassword takes a body for all that it may be: the protocol does not say which.
func FuzzPassword(f *testing.F) {
	fuzz(f, MsgPassword, func(b []byte) ([]byte, error) { return b, nil }, func(t *testing.T, body, _ []byte) {
		if password, err := DecodePassword(body); err == nil {
			inside(t, body, password)
			same(t, body, AppendPassword(nil, password))
		}
		if s, err := DecodeSASLInitial(body); err == nil {
			inside(t, body, s.Data)
			same(t, body, AppendSASLInitial(nil, s.Mechanism, s.Data))
		}
		response := DecodeSASLResponse(body)
		inside(t, body, response)
		same(t, body, AppendSASLResponse(nil, response))
	})
}

func FuzzStartup(f *testing.F) {
	f.Add(packet(3, 0, "user\x00ann\x00user\x00bob\x00\x00"))
	f.Add(packet(3, 2, "_pq_.x\x00y\x00user\x00ann\x00\x00"))
	f.Add(AppendSSLRequest(nil))
	f.Add(packet(1234, gssencRequestMinor, ""))
	f.Add(AppendCancelRequest(nil, 7, []byte("1234")))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeStartup(b)
		if err != nil {
			return
		}
		switch s.Kind {
		case StartupMessage:
			checkStartupMessage(t, s)
		case SSLRequest:
			if !bytes.Equal(b, AppendSSLRequest(nil)) {
				t.Errorf("%q is no request for TLS", b)
			}
		case CancelRequest:
			inside(t, b, s.Secret)
			if again := AppendCancelRequest(nil, s.PID, s.Secret); !bytes.Equal(b, again) {
				t.Errorf("%q written again is %q", b, again)
			}
		case GSSENCRequest:
		}
	})
}

// checkStartupMessage writes one again, without what was in it twice, and reads it once more.
func checkStartupMessage(t *testing.T, s Startup) {
	if user, _ := s.Parameter("user"); user == "" {
		t.Errorf("%+v has no user", s)
	}
	again, err := AppendStartup(nil, s.Parameters)
	if err != nil {
		t.Fatal(err)
	}
	once, err := DecodeStartup(again)
	if err != nil || !slices.Equal(once.Parameters, s.Parameters) {
		t.Errorf("%+v written and read again is %+v, %v", s, once, err)
	}
}

func FuzzError(f *testing.F) {
	fuzz(f, RespError, DecodeError, func(t *testing.T, _ []byte, fields Fields) {
		again, err := DecodeError(Body(AppendFields(nil, RespError, fields)))
		fields.Position, fields.InternalPosition, fields.Line = max(fields.Position, 0), max(fields.InternalPosition, 0), max(fields.Line, 0)
		if err != nil || again != fields {
			t.Errorf("%+v written and read again is %+v, %v", fields, again, err)
		}
	})
}

func FuzzParameterStatus(f *testing.F) {
	type setting struct{ name, value []byte }
	decode := func(body []byte) (setting, error) {
		name, value, err := DecodeParameterStatus(body)
		return setting{name, value}, err
	}
	fuzz(f, RespParameterStatus, decode, func(t *testing.T, body []byte, s setting) {
		inside(t, body, s.name, s.value)
		same(t, body, AppendParameterStatus(nil, s.name, s.value))
	})
}

func FuzzReadyForQuery(f *testing.F) {
	fuzz(f, RespReadyForQuery, DecodeReadyForQuery, func(t *testing.T, body []byte, status byte) {
		same(t, body, AppendReadyForQuery(nil, status))
	})
}

func FuzzBackendKeyData(f *testing.F) {
	fuzz(f, RespBackendKeyData, DecodeBackendKeyData, func(t *testing.T, body []byte, k BackendKeyData) {
		inside(t, body, k.Secret)
		same(t, body, AppendBackendKeyData(nil, k.PID, k.Secret))
	})
}

func FuzzNotification(f *testing.F) {
	fuzz(f, RespNotification, DecodeNotification, func(t *testing.T, body []byte, n Notification) {
		inside(t, body, n.Channel, n.Payload)
		same(t, body, AppendNotification(nil, n.PID, n.Channel, n.Payload))
	})
}

func FuzzCommandComplete(f *testing.F) {
	fuzz(f, RespCommandComplete, DecodeCommandComplete, func(t *testing.T, body, tag []byte) {
		inside(t, body, tag)
		same(t, body, AppendCommandComplete(nil, tag))
		if rows := CommandRows(tag); rows < 0 {
			t.Errorf("%q: %d rows", tag, rows)
		}
	})
}

func FuzzRowDescription(f *testing.F) {
	fuzz(f, RespRowDescription, DecodeRowDescription, func(t *testing.T, body []byte, d RowDescription) {
		columns := columnsOf(d)
		for _, c := range columns {
			inside(t, body, c.Name)
		}
		same(t, body, AppendRowDescription(nil, columns))
	})
}

func FuzzParameterDescription(f *testing.F) {
	fuzz(f, RespParameterDescription, DecodeParameterDescription, func(t *testing.T, body []byte, oids OIDs) {
		inside(t, body, oids)
		var list []uint32
		for i := range oids.Count() {
			list = append(list, oids.At(i))
		}
		same(t, body, AppendParameterDescription(nil, list))
	})
}

func FuzzDataRow(f *testing.F) {
	fuzz(f, RespDataRow, DecodeDataRow, func(t *testing.T, body []byte, d DataRow) {
		values := valuesOf(d)
		inside(t, body, values...)
		same(t, body, AppendDataRow(nil, values))
	})
}
