// Package hashes_test holds the law that a key hashes the same in Go and in every PostgreSQL at hand: it has servers hash
// values by the hundred thousand, of every key type and in composite keys, and compares each with package placement/key.
// The same is done for the text in which values are printed, because shard maps are written with it.
//
// It stands here and not beside package key because that one may not know how to start a server. Start reading at
// TestHashesAgree.
package hashes_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/localpg/pgtest"
	"github.com/cleavedb/cleave/placement/key"
)

// valuesOfAType is how many values of each type a server hashes.
const valuesOfAType = 100_000

// TestHashesAgree asks every PostgreSQL on this machine.
func TestHashesAgree(t *testing.T) {
	for _, installation := range pgtest.Installations(t) {
		t.Run(installation.Version, func(t *testing.T) {
			if installation.Major < 15 {
				t.Skip("older than any shard")
			}
			random := rand.New(rand.NewPCG(uint64(installation.Major), rand.Uint64()))
			s := &server{conn: connect(t, installation.Bin), random: random}
			for _, typ := range key.Types() {
				t.Run(typ.String(), func(t *testing.T) { s.compareType(t, typ) })
			}
			t.Run("integers among each other", s.compareIntegers)
			t.Run("composite", s.compareComposite)
		})
	}
}

func connect(t *testing.T, bin string) *pgx.Conn {
	t.Helper()
	config := localpg.Config{Bin: bin}
	started := pgtest.StartWith(t, config)[0]
	conn, err := pgx.Connect(t.Context(), started.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// server is a running one and where its values come from.
type server struct {
	conn   *pgx.Conn
	random *rand.Rand
}

// sample is one value: in the form in which it is sent to the server, and what Go makes of it.
type sample struct {
	wire []byte
	hash func(seed uint64) uint64
	// encoded is its ordered encoding, from which its text is had.
	encoded []byte
}

// draw returns a value of the type, borders more often than chance would.
func (s *server) draw(typ key.Type) sample {
	switch typ {
	case key.Bigint:
		return integer(s.number(64), 8)
	case key.Integer:
		return integer(s.number(32), 4)
	case key.Smallint:
		return integer(s.number(16), 2)
	case key.Text, key.Varchar:
		text := s.text()
		return sample{[]byte(text), func(seed uint64) uint64 { return key.HashText(text, seed) }, key.AppendText(nil, text)}
	case key.UUID:
		id := [16]byte(s.bytes(16))
		return sample{id[:], func(seed uint64) uint64 { return key.HashUUID(id, seed) }, key.AppendUUID(nil, id)}
	case key.Date:
		days := int32(s.instant(-2451545, 2145031948, math.MinInt32, math.MaxInt32))
		return sample{binary.BigEndian.AppendUint32(nil, uint32(days)), func(seed uint64) uint64 { return key.HashDate(days, seed) }, key.AppendDate(nil, days)}
	case key.Timestamptz:
		micros := s.instant(-211813488000000000, 9223371331199999999, math.MinInt64, math.MaxInt64)
		return sample{binary.BigEndian.AppendUint64(nil, uint64(micros)), func(seed uint64) uint64 { return key.HashTimestamptz(micros, seed) }, key.AppendTimestamptz(nil, micros)}
	case key.Bytea:
		raw := s.bytes(s.random.IntN(50))
		return sample{raw, func(seed uint64) uint64 { return key.HashBytea(raw, seed) }, key.AppendBytea(nil, raw)}
	}
	panic("there is a key type that this test does not know: " + typ.String())
}

func integer(n int64, width int) sample {
	wire := binary.BigEndian.AppendUint64(nil, uint64(n))[8-width:]
	return sample{wire, func(seed uint64) uint64 { return key.HashInt(n, seed) }, key.AppendInt(nil, n)}
}

// number has any number of leading equal bits, so that small ones come as often as great ones.
func (s *server) number(bits int) int64 {
	n := int64(s.random.Uint64()) >> (64 - bits)
	return n >> s.random.IntN(bits)
}

func (s *server) instant(least, greatest, first, last int64) int64 {
	switch s.random.IntN(50) {
	case 0:
		return first
	case 1:
		return last
	case 2:
		return least
	case 3:
		return greatest
	}
	n := s.number(64)
	if n < least || n > greatest {
		n = least + int64(s.random.Uint64N(uint64(greatest-least)+1))
	}
	return n
}

func (s *server) bytes(length int) []byte {
	raw := make([]byte, length)
	for i := range raw {
		raw[i] = byte(s.random.Uint32())
	}
	return raw
}

// text has characters of one to four bytes, and lengths on both sides of the blocks that are hashed at a time.
func (s *server) text() string {
	alphabet := []rune("abcXYZ019 -_:/'\"\\%äßéñłΣЖ中東😀\u00a0\u200d\uffff\U0010ffff\x01\x7f")
	var b strings.Builder
	for range s.random.IntN(40) {
		b.WriteRune(alphabet[s.random.IntN(len(alphabet))])
	}
	return b.String()
}

// seed is random, and now and then one of the special ones.
func (s *server) seed() int64 {
	return []int64{int64(s.random.Uint64()), int64(s.random.Uint64()), int64(s.random.Uint64()), 0, -1, math.MinInt64}[s.random.IntN(6)]
}

// load puts rows of raw values into a table of such columns, by COPY in binary form.
func (s *server) load(t *testing.T, types []key.Type, rows [][]sample) {
	t.Helper()
	columns := make([]string, len(types))
	definitions := []string{"place bigint"}
	for i, typ := range types {
		columns[i] = fmt.Sprintf("c%d", i)
		definitions = append(definitions, columns[i]+" "+typ.String())
	}
	if _, err := s.conn.Exec(t.Context(), "DROP TABLE IF EXISTS samples; CREATE TEMPORARY TABLE samples ("+strings.Join(definitions, ", ")+")"); err != nil {
		t.Fatal(err)
	}
	data := append([]byte("PGCOPY\n\xff\r\n\x00"), make([]byte, 8)...)
	for place, row := range rows {
		data = binary.BigEndian.AppendUint16(data, uint16(len(row)+1))
		data = binary.BigEndian.AppendUint32(data, 8)
		data = binary.BigEndian.AppendUint64(data, uint64(place))
		for _, value := range row {
			data = binary.BigEndian.AppendUint32(data, uint32(len(value.wire)))
			data = append(data, value.wire...)
		}
	}
	data = binary.BigEndian.AppendUint16(data, 0xffff)
	tag, err := s.conn.PgConn().CopyFrom(t.Context(), strings.NewReader(string(data)), "COPY samples FROM STDIN (FORMAT binary)")
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() != int64(len(rows)) {
		t.Fatalf("%d of %d rows were loaded", tag.RowsAffected(), len(rows))
	}
}

// ask returns the results of one expression over the samples, in their order.
func ask[T any](t *testing.T, s *server, expression string) []T {
	t.Helper()
	rows, err := s.conn.Query(t.Context(), "SELECT "+expression+" FROM samples ORDER BY place")
	if err != nil {
		t.Fatal(err)
	}
	results, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return results
}

// hashSQL is the expression of a key over the columns of samples.
func hashSQL(t *testing.T, types []key.Type, seed int64) string {
	t.Helper()
	columns := make([]string, len(types))
	for i := range types {
		columns[i] = fmt.Sprintf("c%d", i)
	}
	expression, err := key.CompositeSQL(types, columns, fmt.Sprintf("'%d'::bigint", seed))
	if err != nil {
		t.Fatal(err)
	}
	return expression
}

func (s *server) compareType(t *testing.T, typ key.Type) {
	rows := make([][]sample, valuesOfAType)
	for i := range rows {
		rows[i] = []sample{s.draw(typ)}
	}
	s.load(t, []key.Type{typ}, rows)
	seed := s.seed()
	hashes := ask[int64](t, s, hashSQL(t, []key.Type{typ}, seed))
	texts := ask[string](t, s, "c0::text")
	for i, row := range rows {
		value, rest, err := typ.CutOrdered(string(row[0].encoded))
		if err != nil || rest != "" {
			t.Fatalf("%s: the encoding does not read back: %v", texts[i], err)
		}
		if got := row[0].hash(uint64(seed)); got != uint64(hashes[i]) || value.Hash(uint64(seed)) != got {
			t.Fatalf("%q with seed %d hashes to %016x and %016x here, to %016x in PostgreSQL", texts[i], seed, got, value.Hash(uint64(seed)), uint64(hashes[i]))
		}
		if value.String() != texts[i] {
			t.Fatalf("PostgreSQL prints %q, we print %q", texts[i], value)
		}
		if i%10 != 0 {
			continue // reading is slow, and has tests of its own
		}
		if parsed, err := typ.Parse(texts[i]); err != nil || parsed != value {
			t.Fatalf("%q reads back as %q, %v", texts[i], parsed, err)
		}
	}
}

// compareIntegers hashes the same small numbers as each of the integer types.
func (s *server) compareIntegers(t *testing.T) {
	rows := make([][]sample, valuesOfAType)
	for i := range rows {
		value := s.draw(key.Smallint)
		rows[i] = []sample{value}
	}
	s.load(t, []key.Type{key.Smallint}, rows)
	seed := s.seed()
	for _, typ := range []key.Type{key.Smallint, key.Integer, key.Bigint} {
		expression, err := typ.SQL("c0::"+typ.String(), fmt.Sprintf("'%d'::bigint", seed))
		if err != nil {
			t.Fatal(err)
		}
		for i, hash := range ask[int64](t, s, expression) {
			if want := rows[i][0].hash(uint64(seed)); uint64(hash) != want {
				t.Fatalf("% x as %s hashes to %016x, as smallint to %016x", rows[i][0].wire, typ, uint64(hash), want)
			}
		}
	}
}

// compareComposite hashes keys of random columns, each column's hash being the next one's seed.
func (s *server) compareComposite(t *testing.T) {
	const keys, ofEach = 20, valuesOfAType / 20
	all := key.Types()
	for range keys {
		types := make([]key.Type, 2+s.random.IntN(4))
		for i := range types {
			types[i] = all[s.random.IntN(len(all))]
		}
		rows := make([][]sample, ofEach)
		for i := range rows {
			for _, typ := range types {
				rows[i] = append(rows[i], s.draw(typ))
			}
		}
		s.load(t, types, rows)
		seed := s.seed()
		for i, hash := range ask[int64](t, s, hashSQL(t, types, seed)) {
			chained := uint64(seed)
			for _, value := range rows[i] {
				chained = value.hash(chained)
			}
			if uint64(hash) != chained {
				t.Fatalf("row %d of a key of %v with seed %d hashes to %016x here, to %016x in PostgreSQL", i, types, seed, chained, uint64(hash))
			}
		}
	}
}
