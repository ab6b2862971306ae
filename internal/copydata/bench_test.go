package copydata

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// benchChunk is how much data comes at a time, as from clients that write in blocks.
const benchChunk = 64 << 10

// benchData are some megabytes of rows like those of an order table.
func benchData(kind string) (*Format, []byte) {
	options := map[string][]Option{
		"text": nil, "escaped": nil, "csv": {option("format", "csv")}, "quoted": {option("format", "csv")}, "binary": {option("format", "binary")},
	}[kind]
	columns := []string{"id", "user_id", "note", "total", "at"}
	format, err := NewFormat(options, columns, "UTF8")
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	if kind == "binary" {
		b.WriteString(binaryData(signature, int32(0), int32(0)))
	}
	for i := range 40_000 {
		b.WriteString(benchRow(kind, i))
	}
	return format, []byte(b.String())
}

func benchRow(kind string, i int) string {
	id, user, note, total, at := strconv.Itoa(i), strconv.Itoa(i*7919%100_003), "a note of some forty characters or so ..", "1234.56", "2024-05-06 07:08:09.123456+00"
	switch kind {
	case "text":
		return strings.Join([]string{id, user, note, total, at}, "\t") + "\n"
	case "escaped":
		return strings.Join([]string{id, user, `a note\nof some\tforty characters or so .`, total, at}, "\t") + "\n"
	case "csv":
		return strings.Join([]string{id, user, note, total, at}, ",") + "\n"
	case "quoted":
		return `"` + strings.Join([]string{id, user, `a note ""of"" some, forty characters or so`, total, at}, `","`) + "\"\n"
	default:
		return binaryData(int16(5), int32(8), fmt.Sprintf("%08d", i), int32(8), fmt.Sprintf("%08d", i*7919%100_003), int32(len(note)), note, int32(-1), int32(8), "12345678")
	}
}

// splitAll goes through all data as the router does, and returns how many rows it had.
func splitAll(b *testing.B, s *Splitter, data []byte) (rows int) {
	for len(data) > 0 {
		size := min(benchChunk, len(data))
		s.Feed(data[:size])
		data = data[size:]
		for {
			p, err := s.Next()
			if err != nil {
				b.Fatal(err)
			}
			if p == nil {
				break
			}
			if p.Kind == Row && len(p.Values[0].Bytes) > 0 {
				rows++
			}
		}
	}
	return rows
}

// scanLines is what the fastest splitter could do: go from newline to newline.
func scanLines(data []byte) (rows int) {
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			return rows
		}
		rows++
		data = data[end+1:]
	}
	return rows
}

// BenchmarkSplitter reads the second of five columns. It also says how long it takes in ratio to a bare look for newlines in the
// same data.
func BenchmarkSplitter(b *testing.B) {
	for _, kind := range []string{"text", "escaped", "csv", "quoted", "binary"} {
		b.Run(kind, func(b *testing.B) {
			format, data := benchData(kind)
			s, err := NewSplitter(format, Config{Keys: []int{1}})
			if err != nil {
				b.Fatal(err)
			}
			began := s.began
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var scanned time.Duration
			for b.Loop() {
				s.began = began
				if rows := splitAll(b, s, data); rows != 40_000 {
					b.Fatal(rows)
				}
				b.StopTimer()
				begin := time.Now()
				lines += scanLines(data)
				scanned += time.Since(begin)
				b.StartTimer()
			}
			b.ReportMetric(b.Elapsed().Seconds()/scanned.Seconds(), "x-line-scan")
		})
	}
}

var lines int

// BenchmarkOrigins is the cost of remembering where a row went.
func BenchmarkOrigins(b *testing.B) {
	o := NewOrigins(4)
	o.limit = 1 << 40
	p := &Piece{Kind: Row, lines: 1, alone: 1}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o.Add(i&3, p)
	}
}
