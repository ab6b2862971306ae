package session

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// FuzzSession lets a client say anything: messages that make sense in an order that does not, and messages with bytes
// changed. Whatever it says, the router answers or hangs up, serves others, and has its backends back afterwards.
func FuzzSession(f *testing.F) {
	w := newWorld(f, worldConfig{noPlain: true})
	healthy := dialRaw(f, w.address, nil)
	random := newTalker(w.key(f, 1, 0), w.key(f, 2, 0))
	for seed := range uint64(150) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		conn := must[net.Conn](t)(net.Dial("tcp", w.address))
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, conn)
			ended <- err
		}()
		for _, piece := range random.talk(seed) {
			if _, err := conn.Write(piece); err != nil {
				break // it was told to go
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		if err := <-ended; isTimeout(err) {
			t.Fatalf("seed %d: the session hangs", seed)
		}
		w.settled(t)
		healthy.t = t
		if said := healthy.query("SELECT 1"); len(said) != 4 {
			t.Fatalf("seed %d: another client is told %q", seed, said)
		}
	})
}

// talker makes up what a client says.
type talker struct{ texts []string }

func newTalker(keys ...int64) talker {
	texts := []string{
		"", ";", "SELECT 1", "SELECT $1::int", "SELECT 1/0", "SELEKT", "SELECT 1; SELECT 2", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "RELEASE a", "COMMIT AND CHAIN",
		"BEGIN; SELECT 1; COMMIT", "SET work_mem = '1MB'", "SET LOCAL TimeZone = 'Asia/Tokyo'", "SET nosuch = 1", "RESET work_mem", "RESET ALL", "SHOW TimeZone", "DISCARD ALL",
		"PREPARE a AS SELECT 1", "EXECUTE a", "DEALLOCATE a", "DEALLOCATE ALL", "COPY undeclared FROM STDIN", "COPY undeclared TO STDOUT", "SELECT count(*) FROM orders",
		"DECLARE c CURSOR FOR SELECT generate_series(1, 10)", "FETCH 2 FROM c", "CLOSE c", "LISTEN news", "NOTIFY news, 'x'", "UNLISTEN *", "CREATE TEMP TABLE mine (a int)",
		"SELECT pg_advisory_lock(1)", "SELECT repeat('x', 100000)", "SELECT generate_series(1, 100)", "SELECT * FROM cleave.shards", "SELECT cleave.version()", "SELECT * FROM countries",
		"SET cleave.pool_mode = session", "SET ROLE pg_monitor", "SELECT set_config('work_mem', '2MB', false)",
	}
	for _, k := range keys {
		texts = append(texts, fmt.Sprintf("SELECT * FROM orders WHERE id = %d", k), fmt.Sprintf("INSERT INTO orders VALUES (%d, 'x') ON CONFLICT DO NOTHING", k))
	}
	return talker{append(texts, "SELECT * FROM orders WHERE id = $1", "UPDATE orders SET note = $2 WHERE id = $1")}
}

// talk returns pieces to write, the login first.
func (k talker) talk(seed uint64) [][]byte {
	random := rand.New(rand.NewPCG(seed, 1))
	hello, _ := (&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: loginAsPostgres}).Encode(nil)
	pieces := [][]byte{hello}
	var piece []byte
	for range 5 + random.IntN(40) {
		message, err := k.message(random).Encode(nil)
		if err != nil {
			continue
		}
		if random.IntN(12) == 0 {
			message = spoil(random, message)
		}
		piece = append(piece, message...)
		if random.IntN(3) == 0 {
			pieces, piece = append(pieces, piece), nil
		}
	}
	return append(pieces, piece)
}

func (k talker) message(random *rand.Rand) pgproto3.FrontendMessage {
	name := []string{"", "", "a", "b", "c"}[random.IntN(5)]
	text := k.texts[random.IntN(len(k.texts))]
	switch random.IntN(16) {
	case 0, 1, 2:
		return &pgproto3.Query{String: text}
	case 3, 4, 5:
		return parse(name, text, [][]uint32{nil, {23}, {20, 25}}[random.IntN(3)]...)
	case 6, 7:
		return bind(name, name, [][]string{nil, {"1"}, {"1", "x"}, {"x"}}[random.IntN(4)]...)
	case 8, 9:
		return runSome(name, random.Uint32N(3))
	case 10:
		return []*pgproto3.Describe{describeStatement(name), describePortal(name)}[random.IntN(2)]
	case 11:
		return []*pgproto3.Close{closeStatement(name), closePortal(name)}[random.IntN(2)]
	case 12:
		return flush
	case 13:
		return []pgproto3.FrontendMessage{&pgproto3.CopyData{Data: []byte("1\tx\n")}, &pgproto3.CopyDone{}, &pgproto3.CopyFail{Message: "no"}, &pgproto3.FunctionCall{}}[random.IntN(4)]
	default:
		return sync1
	}
}

// spoil changes some bytes, cuts some off or adds some; a length may then be wrong.
func spoil(random *rand.Rand, message []byte) []byte {
	switch random.IntN(4) {
	case 0:
		message[random.IntN(len(message))] = byte(random.IntN(256))
	case 1:
		return message[:random.IntN(len(message))]
	case 2:
		return append(message, strings.Repeat("\x00", 1+random.IntN(8))...)
	default:
		if at := 5 + random.IntN(8); at < len(message) {
			message[at] ^= byte(1 << random.IntN(8))
		}
	}
	return message
}
