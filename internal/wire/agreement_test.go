package wire

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cleavedb/cleave/internal/pgerr"
)

// agreement is one message as both libraries write it, and what our decoder makes of it, written again.
type agreement struct {
	name   string
	ours   []byte
	theirs pgproto3.Message
	again  func(t *testing.T, body []byte) []byte // nil: nobody has to look into it
}

// must returns a value that was decoded.
func must[T any](t *testing.T, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

var (
	someParams    = [][]byte{[]byte("17"), nil, {}, {0, 0, 1}}
	someColumns   = []Column{{Name: []byte("id"), TableOID: 16384, Attribute: 1, TypeOID: 20, TypeSize: 8, TypeModifier: -1, Format: 1}, TextColumn("")}
	theirsColumns = []pgproto3.FieldDescription{
		{Name: []byte("id"), TableOID: 16384, TableAttributeNumber: 1, DataTypeOID: 20, DataTypeSize: 8, TypeModifier: -1, Format: 1},
		{Name: []byte{}, DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1},
	}
	refusal = pgerr.New(pgerr.SyntaxError, "no").WithDetail("Why.").WithHint("What.").At(7)
)

func frontendAgreements() []agreement {
	return []agreement{
		{"query", AppendQuery(nil, "select 1"), &pgproto3.Query{String: "select 1"}, func(t *testing.T, b []byte) []byte {
			text, err := DecodeQuery(b)
			return AppendQuery(nil, must(t, text, err))
		}},
		{"parse", AppendParse(nil, "s", "select $1", []uint32{20, 0}), &pgproto3.Parse{Name: "s", Query: "select $1", ParameterOIDs: []uint32{20, 0}}, againParse},
		{"parse without types", AppendParse(nil, "", []byte("select 1"), nil), &pgproto3.Parse{Query: "select 1"}, againParse},
		{"bind", AppendBind(nil, "p", "s", []int16{1, 0, 0, 1}, someParams, []int16{1}), &pgproto3.Bind{
			DestinationPortal: "p", PreparedStatement: "s", ParameterFormatCodes: []int16{1, 0, 0, 1}, Parameters: someParams, ResultFormatCodes: []int16{1},
		}, againBind},
		{"bind of nothing", AppendBind(nil, "", "s", nil, nil, nil), &pgproto3.Bind{PreparedStatement: "s"}, againBind},
		{"describe", AppendDescribe(nil, TargetStatement, "s"), &pgproto3.Describe{ObjectType: 'S', Name: "s"}, func(t *testing.T, b []byte) []byte {
			d, err := DecodeDescribe(b)
			must(t, d, err)
			return AppendDescribe(nil, d.Kind, d.Name)
		}},
		{"close", AppendClose(nil, TargetPortal, "p"), &pgproto3.Close{ObjectType: 'P', Name: "p"}, func(t *testing.T, b []byte) []byte {
			c, err := DecodeClose(b)
			must(t, c, err)
			return AppendClose(nil, c.Kind, c.Name)
		}},
		{"execute", AppendExecute(nil, "p", 50), &pgproto3.Execute{Portal: "p", MaxRows: 50}, func(t *testing.T, b []byte) []byte {
			e, err := DecodeExecute(b)
			must(t, e, err)
			return AppendExecute(nil, e.Portal, e.MaxRows)
		}},
		{"sync", AppendSync(nil), &pgproto3.Sync{}, nil},
		{"flush", AppendFlush(nil), &pgproto3.Flush{}, nil},
		{"terminate", AppendTerminate(nil), &pgproto3.Terminate{}, nil},
		{"copy data", AppendCopyData(nil, []byte("1\tx\n")), &pgproto3.CopyData{Data: []byte("1\tx\n")}, nil},
		{"copy done", AppendCopyDone(nil), &pgproto3.CopyDone{}, nil},
		{"copy fail", AppendCopyFail(nil, "tired"), &pgproto3.CopyFail{Message: "tired"}, func(t *testing.T, b []byte) []byte {
			reason, err := DecodeCopyFail(b)
			return AppendCopyFail(nil, must(t, reason, err))
		}},
		{"password", AppendPassword(nil, "open"), &pgproto3.PasswordMessage{Password: "open"}, func(t *testing.T, b []byte) []byte {
			password, err := DecodePassword(b)
			return AppendPassword(nil, must(t, password, err))
		}},
		{"sasl initial", AppendSASLInitial(nil, "SCRAM-SHA-256", []byte("n,,n=,r=x")), &pgproto3.SASLInitialResponse{AuthMechanism: "SCRAM-SHA-256", Data: []byte("n,,n=,r=x")}, againSASLInitial},
		{"sasl response", AppendSASLResponse(nil, []byte("c=biws")), &pgproto3.SASLResponse{Data: []byte("c=biws")}, func(_ *testing.T, b []byte) []byte {
			return AppendSASLResponse(nil, DecodeSASLResponse(b))
		}},
	}
}

func againParse(t *testing.T, body []byte) []byte {
	p, err := DecodeParse(body)
	must(t, p, err)
	var oids []uint32
	for i := range p.OIDCount() {
		oids = append(oids, p.OID(i))
	}
	again := AppendParse(nil, p.Name, p.Query, oids)
	if raw := AppendParseRaw(nil, p.Name, p.Query, p.OIDs); !bytes.Equal(raw, again) {
		t.Errorf("with raw types %q, with decoded ones %q", raw, again)
	}
	return again
}

func againBind(t *testing.T, body []byte) []byte {
	b, err := DecodeBind(body)
	must(t, b, err)
	again := reBind(&b)
	if tail := AppendBindTail(nil, b.Portal, b.Statement, b.Tail()); !bytes.Equal(tail, again) {
		t.Errorf("with its tail %q, with decoded parameters %q", tail, again)
	}
	return again
}

// reBind writes a Bind again as its methods tell it, with the formats that it had.
func reBind(b *Bind) []byte {
	var formats, results []int16
	var params [][]byte
	for i := range b.ParamCount() {
		value, isBinary, null := b.Param(i)
		if null != (value == nil) {
			panic("NULL is not nil")
		}
		params = append(params, value)
		if i < len(b.formats)/2 {
			formats = append(formats, map[bool]int16{true: FormatBinary}[isBinary])
		}
	}
	for i := range b.ResultFormatCount() {
		results = append(results, b.ResultFormat(i))
	}
	return AppendBind(nil, b.Portal, b.Statement, formats, params, results)
}

func againSASLInitial(t *testing.T, body []byte) []byte {
	s, err := DecodeSASLInitial(body)
	must(t, s, err)
	return AppendSASLInitial(nil, s.Mechanism, s.Data)
}

func backendAgreements() []agreement {
	return []agreement{
		{"ok", AppendAuthenticationOK(nil), &pgproto3.AuthenticationOk{}, nil},
		{"sasl", AppendAuthenticationSASL(nil, "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"), &pgproto3.AuthenticationSASL{AuthMechanisms: []string{"SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"}}, nil},
		{"sasl continue", AppendAuthenticationSASLContinue(nil, []byte("r=1")), &pgproto3.AuthenticationSASLContinue{Data: []byte("r=1")}, nil},
		{"sasl final", AppendAuthenticationSASLFinal(nil, []byte("v=1")), &pgproto3.AuthenticationSASLFinal{Data: []byte("v=1")}, nil},
		{"negotiate", AppendNegotiateProtocolVersion(nil, 2, []string{"_pq_.x"}), &pgproto3.NegotiateProtocolVersion{NewestMinorProtocol: pgproto3.ProtocolVersion32, UnrecognizedOptions: []string{"_pq_.x"}}, nil},
		{"parameter status", AppendParameterStatus(nil, "TimeZone", "UTC"), &pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}, func(t *testing.T, b []byte) []byte {
			name, value, err := DecodeParameterStatus(b)
			return AppendParameterStatus(nil, must(t, name, err), value)
		}},
		{"key", AppendBackendKeyData(nil, 7, []byte("secret")), &pgproto3.BackendKeyData{ProcessID: 7, SecretKey: []byte("secret")}, func(t *testing.T, b []byte) []byte {
			k, err := DecodeBackendKeyData(b)
			must(t, k, err)
			return AppendBackendKeyData(nil, k.PID, k.Secret)
		}},
		{"ready", AppendReadyForQuery(nil, StatusFailed), &pgproto3.ReadyForQuery{TxStatus: 'E'}, func(t *testing.T, b []byte) []byte {
			status, err := DecodeReadyForQuery(b)
			return AppendReadyForQuery(nil, must(t, status, err))
		}},
		{"notification", AppendNotification(nil, 7, "c", "p"), &pgproto3.NotificationResponse{PID: 7, Channel: "c", Payload: "p"}, func(t *testing.T, b []byte) []byte {
			n, err := DecodeNotification(b)
			must(t, n, err)
			return AppendNotification(nil, n.PID, n.Channel, n.Payload)
		}},
		{"error", AppendError(nil, refusal), &pgproto3.ErrorResponse{
			Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "42601", Message: "no", Detail: "Why.", Hint: "What.", Position: 7,
		}, againFields(RespError)},
		{"error with all fields", AppendFields(nil, RespError, allFields), theirsAllFields, againFields(RespError)},
		{"notice", AppendNotice(nil, "WARNING", refusal), &pgproto3.NoticeResponse{
			Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "42601", Message: "no", Detail: "Why.", Hint: "What.", Position: 7,
		}, againFields(RespNotice)},
		{"row description", AppendRowDescription(nil, someColumns), &pgproto3.RowDescription{Fields: theirsColumns}, func(t *testing.T, b []byte) []byte {
			d, err := DecodeRowDescription(b)
			must(t, d, err)
			return AppendRowDescription(nil, columnsOf(d))
		}},
		{"data row", AppendDataRow(nil, someParams), &pgproto3.DataRow{Values: someParams}, func(t *testing.T, b []byte) []byte {
			d, err := DecodeDataRow(b)
			must(t, d, err)
			return AppendDataRow(nil, valuesOf(d))
		}},
		{"command complete", AppendCommandComplete(nil, "SELECT 5"), &pgproto3.CommandComplete{CommandTag: []byte("SELECT 5")}, func(t *testing.T, b []byte) []byte {
			tag, err := DecodeCommandComplete(b)
			return AppendCommandComplete(nil, must(t, tag, err))
		}},
		{"parameter description", AppendParameterDescription(nil, []uint32{20, 1043}), &pgproto3.ParameterDescription{ParameterOIDs: []uint32{20, 1043}}, func(t *testing.T, b []byte) []byte {
			oids, err := DecodeParameterDescription(b)
			must(t, oids, err)
			return AppendParameterDescription(nil, []uint32{oids.At(0), oids.At(1)})
		}},
		{"empty query", AppendEmptyQuery(nil), &pgproto3.EmptyQueryResponse{}, nil},
		{"parse complete", AppendParseComplete(nil), &pgproto3.ParseComplete{}, nil},
		{"bind complete", AppendBindComplete(nil), &pgproto3.BindComplete{}, nil},
		{"close complete", AppendCloseComplete(nil), &pgproto3.CloseComplete{}, nil},
		{"no data", AppendNoData(nil), &pgproto3.NoData{}, nil},
		{"portal suspended", AppendPortalSuspended(nil), &pgproto3.PortalSuspended{}, nil},
	}
}

// allFields and theirsAllFields are the same error, no two fields of which are equal.
var (
	allFields = Fields{
		LocalSeverity: "FEHLER", Severity: "ERROR", Code: "23505", Message: "m", Detail: "d", Hint: "h", Position: 1, InternalPosition: 2,
		InternalQuery: "q", Where: "w", Schema: "s", Table: "t", Column: "c", DataType: "dt", Constraint: "n", File: "f", Line: 3, Routine: "r",
	}
	theirsAllFields = &pgproto3.ErrorResponse{
		Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "23505", Message: "m", Detail: "d", Hint: "h", Position: 1, InternalPosition: 2,
		InternalQuery: "q", Where: "w", SchemaName: "s", TableName: "t", ColumnName: "c", DataTypeName: "dt", ConstraintName: "n", File: "f", Line: 3, Routine: "r",
	}
)

func againFields(kind byte) func(*testing.T, []byte) []byte {
	return func(t *testing.T, body []byte) []byte {
		f, err := DecodeError(body)
		return AppendFields(nil, kind, must(t, f, err))
	}
}

func columnsOf(d RowDescription) []Column {
	columns := make([]Column, 0, d.Count())
	for _, c := range d.Columns() {
		columns = append(columns, c)
	}
	return columns
}

func valuesOf(d DataRow) [][]byte {
	values := make([][]byte, 0, d.Count())
	for _, v := range d.Values() {
		values = append(values, v)
	}
	return values
}

// TestAgreement: ours and theirs write the same bytes, theirs reads in ours what it would have written, and ours reads
// in theirs all that was in it.
func TestAgreement(t *testing.T) {
	for _, a := range slices.Concat(frontendAgreements(), backendAgreements()) {
		t.Run(a.name, func(t *testing.T) {
			theirs := must2(t)(a.theirs.Encode(nil))
			if !bytes.Equal(a.ours, theirs) {
				t.Fatalf("ours   %q\ntheirs %q", a.ours, theirs)
			}
			kind, size, err := Frame(a.ours)
			if err != nil || kind != a.ours[0] || size != len(a.ours) {
				t.Errorf("frame: %c, %d, %v", kind, size, err)
			}
			before := cmp.Diff(nil, a.theirs)
			if err := a.theirs.Decode(Body(a.ours)); err != nil {
				t.Fatal(err)
			}
			if after := must2(t)(a.theirs.Encode(nil)); !bytes.Equal(after, theirs) {
				t.Errorf("theirs reads %s, which was %s", cmp.Diff(nil, a.theirs), before)
			}
			if a.again == nil {
				return
			}
			if again := a.again(t, Body(theirs)); !bytes.Equal(again, theirs) {
				t.Errorf("ours read and wrote again %q\nwas %q", again, theirs)
			}
		})
	}
}

func must2(t *testing.T) func(b []byte, err error) []byte {
	return func(b []byte, err error) []byte {
		t.Helper()
		return must(t, b, err)
	}
}

// TestStartupAgreement is the same for packets without a type.
func TestStartupAgreement(t *testing.T) {
	startup := must2(t)(AppendStartup(nil, []Parameter{{"user", "ann"}}))
	for _, a := range []struct {
		ours   []byte
		theirs pgproto3.Message
		want   Startup
	}{
		{startup, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "ann"}},
			Startup{Kind: StartupMessage, Major: 3, Parameters: []Parameter{{"user", "ann"}}}},
		{AppendSSLRequest(nil), &pgproto3.SSLRequest{}, Startup{Kind: SSLRequest}},
		{must2(t)((&pgproto3.GSSEncRequest{}).Encode(nil)), &pgproto3.GSSEncRequest{}, Startup{Kind: GSSENCRequest}},
		{AppendCancelRequest(nil, 7, []byte("12345678")), &pgproto3.CancelRequest{ProcessID: 7, SecretKey: []byte("12345678")},
			Startup{Kind: CancelRequest, PID: 7, Secret: []byte("12345678")}},
	} {
		theirs := must2(t)(a.theirs.Encode(nil))
		if !bytes.Equal(a.ours, theirs) {
			t.Errorf("ours   %q\ntheirs %q", a.ours, theirs)
		}
		if err := a.theirs.Decode(a.ours[lengthSize:]); err != nil {
			t.Error(err)
		}
		got, err := DecodeStartup(theirs)
		if diff := cmp.Diff(a.want, must(t, got, err)); diff != "" {
			t.Error(diff)
		}
	}
}
