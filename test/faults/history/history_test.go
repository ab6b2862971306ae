package history_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/test/faults/history"
)

func TestOutcomesOfCommit(t *testing.T) {
	refused := func(code, message string) error {
		return fmt.Errorf("commit: %w", &pgconn.PgError{Code: code, Message: message})
	}
	for _, c := range []struct {
		tag  string
		err  error
		want history.Outcome
	}{
		{"COMMIT", nil, history.Committed},
		{"UPDATE 1", nil, history.Committed},
		{"ROLLBACK", nil, history.Failed},
		{"", io.ErrUnexpectedEOF, history.Unknown},
		{"", errors.New("connection reset by peer"), history.Unknown},
		{"", pgconn.ErrConnClosed, history.Unknown},
		{"", refused("08007", "the outcome is not known: it will be committed or rolled back"), history.Unknown},
		{"", refused("08006", "the connection to shard s2 was lost"), history.Unknown},
		{"", refused("08006", "the connection to shard s2 was lost; the transaction is rolled back"), history.Failed},
		{"", refused("57P01", "terminating connection due to administrator command"), history.Unknown},
		{"", refused("XX000", "what?"), history.Unknown},
		{"", refused("40001", "could not serialize access"), history.Failed},
		{"", refused("23505", "duplicate key"), history.Failed},
		{"", refused("57014", "canceling statement due to user request"), history.Failed},
		{"", refused("P0001", "no"), history.Failed},
	} {
		if got := history.OfCommit(c.tag, c.err); got != c.want {
			t.Errorf("%q, %v: %s, want %s", c.tag, c.err, got, c.want)
		}
	}
}

func TestHistoriesAreWrittenDown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	r, err := history.NewRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := r.Next(), r.Next(); first == second {
		t.Errorf("%d was given twice", first)
	}
	want := history.Tagged{Head: history.Head{Work: "tags", Number: 7, Outcome: history.Failed, Error: "no"}, Tag: "a", Shards: []int{0, 2}}
	r.Write(want)
	r.Write(history.Tagged{})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var got history.Tagged
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(lines) != 2 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d lines, the first is %v, %v", len(lines), got, err)
	}
}

func TestTags(t *testing.T) {
	tagged := func(tag string, outcome history.Outcome, shards ...int) history.Tagged {
		return history.Tagged{Head: history.Head{Outcome: outcome}, Tag: tag, Shards: shards}
	}
	found := []map[string]bool{{"a": true, "d": true}, {"a": true, "d": true, "f": true}, {"a": true, "c": true, "h": true}}
	for _, c := range []struct {
		one  history.Tagged
		want string
	}{
		{tagged("a", history.Committed, 0, 1, 2), ""},
		{tagged("a", history.Unknown, 0, 1, 2), ""},
		{tagged("b", history.Unknown, 0, 1, 2), ""},
		{tagged("b", history.Failed, 0, 1, 2), ""},
		{tagged("b", history.Committed, 0, 1, 2), "lost: b"},
		{tagged("c", history.Committed, 1, 2), "half of a transaction: c"},
		{tagged("c", history.Unknown, 1, 2), "half of a transaction: c"},
		{tagged("d", history.Failed, 0, 1), "not undone: d"},
		{tagged("f", history.Failed, 1), "not undone: f"},
	} {
		all := []history.Tagged{c.one}
		for _, known := range []string{"a", "c", "d", "f", "h"} {
			if known != c.one.Tag {
				all = append(all, tagged(known, history.Unknown))
			}
		}
		wrong := history.CheckTags(all, found)
		if c.want == "" && len(wrong) != 0 || c.want != "" && (len(wrong) != 1 || !strings.HasPrefix(wrong[0], c.want)) {
			t.Errorf("%v: %v, want %q", c.one, wrong, c.want)
		}
	}
	if wrong := history.CheckTags(nil, []map[string]bool{{"x": true}}); len(wrong) != 1 || !strings.HasPrefix(wrong[0], "from nowhere") {
		t.Errorf("a tag that nobody wrote: %v", wrong)
	}
}

// register is an operation on register 1, from one second to another.
func register(kind history.RegisterKind, start, end int, outcome history.Outcome, old, value, found int64, set bool) history.Register {
	return history.Register{
		Head: history.Head{Start: time.Duration(start) * time.Second, End: time.Duration(end) * time.Second, Outcome: outcome},
		Kind: kind, Key: 1, Old: old, New: value, Found: found, Set: set,
	}
}

func TestRegisters(t *testing.T) {
	write := func(start, end int, value int64) history.Register {
		return register(history.Write, start, end, history.Committed, 0, value, 0, false)
	}
	perhaps := func(start, end int, value int64) history.Register {
		return register(history.Write, start, end, history.Unknown, 0, value, 0, false)
	}
	read := func(start, end int, found int64) history.Register {
		return register(history.Read, start, end, history.Committed, 0, 0, found, false)
	}
	swap := func(start, end int, old, value int64, set bool) history.Register {
		return register(history.CompareAndSet, start, end, history.Committed, old, value, 0, set)
	}
	for _, c := range []struct {
		name string
		all  []history.Register
		good bool
	}{
		{"in order", []history.Register{read(0, 1, 0), write(2, 3, 5), read(4, 5, 5), swap(6, 7, 5, 6, true), read(8, 9, 6), swap(10, 11, 5, 7, false), read(12, 13, 6)}, true},
		{"side by side", []history.Register{write(0, 10, 5), read(1, 2, 0), read(3, 4, 5)}, true},
		{"an old value", []history.Register{write(0, 1, 5), write(2, 3, 6), read(4, 5, 5)}, false},
		{"back and forth", []history.Register{write(0, 10, 5), read(1, 2, 5), read(3, 4, 0)}, false},
		{"a value from nowhere", []history.Register{read(0, 1, 9)}, false},
		{"late", []history.Register{perhaps(0, 1, 5), read(2, 3, 0), read(4, 5, 5)}, true},
		{"never", []history.Register{perhaps(0, 1, 5), read(2, 3, 0)}, true},
		{"late and not to stay", []history.Register{perhaps(0, 1, 5), read(2, 3, 5), read(4, 5, 0)}, false},
		{"before its time", []history.Register{read(0, 1, 5), perhaps(2, 3, 5)}, false},
		{"failed and seen", []history.Register{register(history.Write, 0, 1, history.Failed, 0, 5, 0, false), read(2, 3, 5)}, false},
		{"two took the same", []history.Register{write(0, 1, 5), swap(2, 3, 5, 6, true), swap(2, 3, 5, 7, true)}, false},
		{"taken by somebody unknown", []history.Register{perhaps(1, 2, 5), swap(0, 3, 0, 6, false)}, true},
		{"taken before its time", []history.Register{swap(0, 1, 0, 6, false), perhaps(2, 3, 5)}, false},
		{"taken and not", []history.Register{write(0, 1, 5), swap(2, 3, 5, 6, false)}, false},
		{"perhaps taken", []history.Register{write(0, 1, 5), register(history.CompareAndSet, 2, 3, history.Unknown, 5, 6, 0, false), read(4, 5, 5), read(6, 7, 6)}, true},
	} {
		wrong, undecided := history.CheckRegisters(c.all, time.Minute)
		if good := len(wrong) == 0; good != c.good || undecided != 0 {
			t.Errorf("%s: %v, %d undecided", c.name, wrong, undecided)
		}
	}
}

// TestManyUnknownWritesAreNoWork: clients that lose their connection again and again must not make the check impossible.
func TestManyUnknownWritesAreNoWork(t *testing.T) {
	var all []history.Register
	for i := range 300 {
		all = append(all,
			register(history.Write, i, i+1, history.Unknown, 0, int64(1000+i), 0, false),
			register(history.Write, 2*i+1, 2*i+2, history.Committed, 0, int64(i+1), 0, false),
			register(history.Read, 2*i+2, 2*i+3, history.Committed, 0, 0, int64(i+1), false))
	}
	all = slices.Insert(all, 0, register(history.Read, 0, 0, history.Unknown, 0, 0, 0, false))
	wrong, undecided := history.CheckRegisters(all, time.Minute)
	if len(wrong) != 0 || undecided != 0 {
		t.Errorf("%v, %d undecided", wrong, undecided)
	}
}
