package wire

import "testing"

func benchBind() []byte {
	return AppendBind(nil, "", "statement_1", []int16{1, 0, 1}, [][]byte{{0, 0, 0, 0, 0, 0, 0, 9}, []byte("a text of some length"), nil}, []int16{1})
}

var sink int

func decodeBindAndLook(body []byte) {
	b, err := DecodeBind(body)
	if err != nil {
		panic(err)
	}
	for i := range b.ParamCount() {
		value, _, _ := b.Param(i)
		sink += len(value)
	}
}

func readRow(body []byte) {
	row, err := DecodeDataRow(body)
	if err != nil {
		panic(err)
	}
	for _, value := range row.Values() {
		sink += len(value)
	}
}

func readDescription(body []byte) {
	d, err := DecodeRowDescription(body)
	if err != nil {
		panic(err)
	}
	for _, c := range d.Columns() {
		sink += len(c.Name)
	}
}

// appendUnit appends a statement's way to a shard under another name.
func appendUnit(dst []byte, p Parse, tail []byte) []byte {
	dst = AppendParseRaw(dst, "other", p.Query, p.OIDs)
	dst = AppendBindTail(dst, "", []byte("other"), tail)
	dst = AppendDescribe(dst, TargetPortal, "")
	dst = AppendExecute(dst, "", 0)
	return AppendSync(dst)
}

// hotPaths are what every statement may pass through.
func hotPaths(tb testing.TB) map[string]func() {
	bind := benchBind()
	parse := AppendParse(nil, "s", "select * from t where id = $1", []uint32{20})
	p, err := DecodeParse(Body(parse))
	if err != nil {
		tb.Fatal(err)
	}
	row, description := Body(AppendDataRow(nil, someParams)), Body(AppendRowDescription(nil, someColumns))
	ready := Body(AppendReadyForQuery(nil, StatusIdle))
	buffer := make([]byte, 0, 1024)
	return map[string]func(){
		"Frame":           func() { _, size, _ := Frame(bind); sink += size },
		"Bind":            func() { decodeBindAndLook(Body(bind)) },
		"Parse":           func() { p, _ := DecodeParse(Body(parse)); sink += p.OIDCount() },
		"DataRow":         func() { readRow(row) },
		"RowDescription":  func() { readDescription(description) },
		"ReadyForQuery":   func() { status, _ := DecodeReadyForQuery(ready); sink += int(status) },
		"CommandRows":     func() { sink += int(CommandRows([]byte("INSERT 0 12345"))) },
		"AppendUnit":      func() { sink += len(appendUnit(buffer[:0], p, bind[20:])) },
		"AppendDataRow":   func() { sink += len(AppendDataRow(buffer[:0], someParams)) },
		"AppendError":     func() { sink += len(AppendError(buffer[:0], refusal)) },
		"DecodeMalformed": func() { b, _ := DecodeBind(bind[:9]); sink += b.ParamCount() },
	}
}

func BenchmarkHotPaths(b *testing.B) {
	for name, run := range hotPaths(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// BenchmarkBindOfManyParams shows that asking in order is one pass, whatever the number.
func BenchmarkBindOfManyParams(b *testing.B) {
	params := make([][]byte, 65535)
	for i := range params {
		params[i] = []byte("12345678")
	}
	body := Body(AppendBind(nil, "", "", nil, params, nil))
	b.ReportAllocs()
	for b.Loop() {
		decodeBindAndLook(body)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	for name, run := range hotPaths(t) {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
