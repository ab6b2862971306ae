package idgen

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The names of these tests are those in the table of DESIGN.md.
func TestPostgres(t *testing.T) {
	server := startPostgres(t)
	t.Run("Concurrent", func(t *testing.T) { testPostgresConcurrent(t, server) })
	t.Run("ConcurrentWithShifts", func(t *testing.T) { testPostgresConcurrentWithShifts(t, server) })
	t.Run("Burst", func(t *testing.T) { testPostgresBurst(t, server) })
	t.Run("PartsAgree", func(t *testing.T) { testPostgresPartsAgree(t, server) })
	t.Run("Layouts", func(t *testing.T) { testPostgresLayouts(t, server) })
	t.Run("Rollback", func(t *testing.T) { testPostgresRollback(t, server) })
	t.Run("OpenTransaction", func(t *testing.T) { testPostgresOpenTransaction(t, server) })
	t.Run("CancelledCall", func(t *testing.T) { testPostgresCancelledCall(t, server) })
	t.Run("ClockBackwards", func(t *testing.T) { testPostgresClockBackwards(t, server) })
	t.Run("ClockFarBackwards", func(t *testing.T) { testPostgresClockFarBackwards(t, server) })
	t.Run("LayoutEnds", func(t *testing.T) { testPostgresLayoutEnds(t, server) })
	t.Run("SlotMoves", func(t *testing.T) { testPostgresSlotMoves(t, server) })
	t.Run("OwnGenerator", func(t *testing.T) { testPostgresOwnGenerator(t, server) })
	t.Run("LostState", func(t *testing.T) { testPostgresLostState(t, server) })
	t.Run("Privileges", func(t *testing.T) { testPostgresPrivileges(t, server) })
	t.Run("Declarations", func(t *testing.T) { testPostgresDeclarations(t, server) })
	t.Run("RunAgain", func(t *testing.T) { testPostgresRunAgain(t, server) })
	t.Run("NullHash", func(t *testing.T) { testPostgresNullHash(t, server) })
	t.Run("UUID", func(t *testing.T) { testPostgresUUID(t, server) })
	t.Run("SequenceSource", func(t *testing.T) { testPostgresSequenceSource(t, server) })
}

func mustSQL(t *testing.T, layout Layout, config SQLConfig) string {
	t.Helper()
	text, err := layout.SQL(config)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "{{") {
		t.Fatal("a placeholder was left in the SQL")
	}
	return text
}

// made is an id with the times between which it was made, in microseconds.
type made struct {
	id, started, finished int64
}

// testPostgresConcurrent lets eight sessions make ids for one busy slot and for many, and looks at all of them.
func testPostgresConcurrent(t *testing.T, server *postgresServer) {
	const sessions, statements, rows = 8, 20, 250
	db := server.database(t, "concurrent", mustSQL(t, DefaultLayout(), SQLConfig{}),
		"CREATE UNLOGGED TABLE made (hash bigint, started timestamptz, id bigint, finished timestamptz)")
	var script strings.Builder
	for range statements {
		// Every other id goes to the busy slot, which is slot 0.
		fmt.Fprintf(&script, `INSERT INTO made SELECT hash, clock_timestamp(), cleave.next_id(hash), clock_timestamp()
			FROM (SELECT CASE WHEN n %% 2 = 0 THEN 0 ELSE hashint8extended(n, 0) END AS hash FROM generate_series(1, %d) n) h;`+"\n", rows)
	}
	var group sync.WaitGroup
	for range sessions {
		group.Go(func() {
			if _, err := server.psql(db.name, script.String()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	checkMade(t, db, sessions*statements*rows)
}

// testPostgresConcurrentWithShifts lets sessions take counts of a clock that another session shifts all the time. Its milliseconds have
// so many ticks that nobody has to wait for the time of day.
func testPostgresConcurrentWithShifts(t *testing.T, server *postgresServer) {
	const sessions, rows = 4, 20_000
	layout, err := NewLayout(LayoutConfig{TimeBits: 40, SlotBits: 0, GeneratorBits: 1, SequenceBits: 22})
	if err != nil {
		t.Fatal(err)
	}
	db := server.database(t, "shifts", mustSQL(t, layout, SQLConfig{}), "CREATE UNLOGGED TABLE made (started timestamptz, id bigint, finished timestamptz)",
		`CREATE PROCEDURE shift() LANGUAGE plpgsql AS $$ BEGIN
			FOR i IN 1 .. 10000000 LOOP
				PERFORM pg_advisory_xact_lock(`+strconv.Itoa(lockClass)+`, 0);
				PERFORM setval('cleave.id_shift_0', coalesce(pg_sequence_last_value('cleave.id_shift_0'), 0) + 1);
				COMMIT;
			END LOOP;
		END $$`)
	shifter := make(chan struct{})
	go func() {
		defer close(shifter)
		_, _ = server.psql(db.name, "CALL shift()") // ended below
	}()
	waitFor(t, db, "SELECT pg_sequence_last_value('cleave.id_shift_0') > 0")
	var group sync.WaitGroup
	for range sessions {
		group.Go(func() {
			if _, err := server.psql(db.name, fmt.Sprintf(`INSERT INTO made SELECT clock_timestamp(), cleave.next_id(0), clock_timestamp()
				FROM generate_series(1, %d)`, rows)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := db.run(t, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query = 'CALL shift()'"); got != "1" {
		t.Errorf("%s sessions shifted the clock up to the end", got)
	}
	<-shifter
	if got := db.run(t, "SELECT count(DISTINCT id) || ' of ' || count(*) FROM made"); got != "80000 of 80000" {
		t.Errorf("ids that are different: %s", got)
	}
	var ids []made
	for line := range strings.Lines(db.run(t, `SELECT id, (date_part('epoch', started) * 1e6)::bigint, (date_part('epoch', finished) * 1e6)::bigint FROM made`)) {
		var m made
		if _, err := fmt.Sscanf(line, "%d|%d|%d", &m.id, &m.started, &m.finished); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m)
	}
	if err := increasing(ids); err != nil {
		t.Error(err)
	}
}

// checkMade checks the rows of table made: right slots, no duplicates, increasing per slot.
func checkMade(t *testing.T, db *postgresDatabase, want int) {
	t.Helper()
	layout := DefaultLayout()
	bySlot := map[int][]made{}
	seen := map[int64]bool{}
	output := db.run(t, `SELECT hash, id, (date_part('epoch', started) * 1e6)::bigint, (date_part('epoch', finished) * 1e6)::bigint FROM made`)
	for line := range strings.Lines(output) {
		var hash int64
		var m made
		if _, err := fmt.Sscanf(line, "%d|%d|%d|%d", &hash, &m.id, &m.started, &m.finished); err != nil {
			t.Fatal(err)
		}
		if seen[m.id] {
			t.Fatalf("id %d was made twice", m.id)
		}
		seen[m.id] = true
		slot := layout.SlotOf(uint64(hash))
		if parts := layout.Decode(m.id); parts.Slot != slot || parts.Generator != 0 {
			t.Fatalf("id %d for slot %d has parts %+v", m.id, slot, parts)
		}
		bySlot[slot] = append(bySlot[slot], m)
	}
	if len(seen) != want {
		t.Fatalf("got %d ids, want %d", len(seen), want)
	}
	for slot, ids := range bySlot {
		if err := increasing(ids); err != nil {
			t.Errorf("slot %d: %v", slot, err)
		}
	}
}

// increasing checks that an id whose making began after another was finished is greater.
func increasing(ids []made) error {
	byStart := slices.SortedFunc(slices.Values(ids), func(a, b made) int { return cmp.Compare(a.started, b.started) })
	byFinish := slices.SortedFunc(slices.Values(ids), func(a, b made) int { return cmp.Compare(a.finished, b.finished) })
	finished, highest := 0, int64(-1)
	for _, m := range byStart {
		for ; byFinish[finished].finished < m.started; finished++ {
			highest = max(highest, byFinish[finished].id)
		}
		if m.id <= highest {
			return fmt.Errorf("id %d was made after %d", m.id, highest)
		}
	}
	return nil
}

// testPostgresBurst overflows the sequence part many times in one statement.
func testPostgresBurst(t *testing.T, server *postgresServer) {
	db := server.database(t, "burst", mustSQL(t, DefaultLayout(), SQLConfig{}))
	ids := db.numbers(t, "SELECT cleave.next_id(-1) FROM generate_series(1, 5000)")
	checkIncreasing(t, ids)
	if slot := DefaultLayout().SlotOfID(ids[0]); slot != 1023 {
		t.Errorf("got slot %d for hash -1, want 1023", slot)
	}
}

func checkIncreasing(t *testing.T, ids []int64) {
	t.Helper()
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			t.Fatalf("id %d comes after %d", ids[i], ids[i-1])
		}
	}
}

const partsQuery = `SELECT id || '|' || (date_part('epoch', cleave.id_time(id)) * 1e6)::bigint || '|' || cleave.id_slot(id)
	|| '|' || cleave.id_generator(id) || '|' || cleave.id_sequence(id) FROM unnest(ARRAY[%s]::bigint[]) id`

// checkParts reads the parts of ids in SQL and in Go.
func checkParts(t *testing.T, db *postgresDatabase, layout Layout, ids []int64) {
	t.Helper()
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.FormatInt(id, 10)
	}
	output := db.run(t, fmt.Sprintf(partsQuery, strings.Join(list, ",")))
	for line := range strings.Lines(output) {
		var id, micro int64
		var got Parts
		if _, err := fmt.Sscanf(line, "%d|%d|%d|%d|%d", &id, &micro, &got.Slot, &got.Generator, &got.Sequence); err != nil {
			t.Fatal(err)
		}
		got.Time = time.UnixMicro(micro).UTC()
		if want := layout.Decode(id); got != want {
			t.Errorf("id %d: SQL reads %+v, Go reads %+v", id, got, want)
		}
	}
	if lines := strings.Count(output, "\n") + 1; lines != len(ids) {
		t.Errorf("got %d lines for %d ids", lines, len(ids))
	}
}

func testPostgresPartsAgree(t *testing.T, server *postgresServer) {
	layout := DefaultLayout()
	db := server.database(t, "parts", mustSQL(t, layout, SQLConfig{}))
	checkParts(t, db, layout, db.numbers(t, "SELECT cleave.next_id(hashint8extended(n, 7)) FROM generate_series(1, 200) n"))

	generator, err := New(Config{Number: 127})
	if err != nil {
		t.Fatal(err)
	}
	ids := []int64{0, math.MaxInt64}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		id, err := generator.Next(context.Background(), random.Uint64())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id, random.Int64())
	}
	checkParts(t, db, layout, ids)
}

// testPostgresLayouts tries layouts at the edges: without slots, with the most of each part, and shorter than 63 bits.
func testPostgresLayouts(t *testing.T, server *postgresServer) {
	configs := []LayoutConfig{
		{TimeBits: 42, SlotBits: 0, GeneratorBits: 16, SequenceBits: 5},
		{TimeBits: 42, SlotBits: 0, GeneratorBits: 1, SequenceBits: 20},
		{TimeBits: 41, SlotBits: 20, GeneratorBits: 1, SequenceBits: 1},
		{TimeBits: 39, SlotBits: 1, GeneratorBits: 1, SequenceBits: 22},
		{TimeBits: 41, SlotBits: 4, GeneratorBits: 4, SequenceBits: 4},
		{TimeBits: 42, SlotBits: 10, GeneratorBits: 6, SequenceBits: 5, Epoch: time.UnixMilli(1)},
	}
	random := rand.New(rand.NewPCG(3, 4))
	for i, config := range configs {
		layout, err := NewLayout(config)
		if err != nil {
			t.Fatal(err)
		}
		db := server.database(t, fmt.Sprintf("layout_%d", i), mustSQL(t, layout, SQLConfig{}))
		if got := db.run(t, "SELECT cleave.id_layout()"); got != layout.String() {
			t.Errorf("got layout %q, want %q", got, layout)
		}
		var ids []int64
		for range 20 {
			hash := random.Uint64()
			id := db.number(t, fmt.Sprintf("SELECT cleave.next_id('%d')", int64(hash)))
			if got, want := layout.SlotOfID(id), layout.SlotOf(hash); got != want || !layout.Contains(id) {
				t.Errorf("%v: id %d for hash %d has slot %d, want %d", layout, id, hash, got, want)
			}
			ids = append(ids, id, random.Int64()&int64(lowBits(layout.timeBits+layout.slotBits+layout.genBits+layout.seqBits)))
		}
		checkParts(t, db, layout, ids)
	}
}

// testPostgresRollback: an id of a transaction that did not commit is not made again.
func testPostgresRollback(t *testing.T, server *postgresServer) {
	db := server.database(t, "rollback", mustSQL(t, DefaultLayout(), SQLConfig{}))
	checkIncreasing(t, db.numbers(t, `
		SELECT cleave.next_id(5);
		BEGIN; SELECT cleave.next_id(5); SAVEPOINT s; SELECT cleave.next_id(5); ROLLBACK TO s; SELECT cleave.next_id(5); ROLLBACK;
		SELECT cleave.next_id(5);`))
}

// testPostgresOpenTransaction: a transaction that has made an id and stays open holds nobody up.
func testPostgresOpenTransaction(t *testing.T, server *postgresServer) {
	db := server.database(t, "open_transaction", mustSQL(t, DefaultLayout(), SQLConfig{}))
	got := db.run(t, `BEGIN; SELECT cleave.next_id(5) > 0; SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'; ROLLBACK;`)
	if got != "t\n0" {
		t.Errorf("got %q, want an id and no lock held", got)
	}
}

// testPostgresCancelledCall: a call that is cancelled while it waits for the lock leaves none behind.
func testPostgresCancelledCall(t *testing.T, server *postgresServer) {
	db := server.database(t, "cancelled_call", mustSQL(t, DefaultLayout(), SQLConfig{}))
	holder := make(chan struct{})
	go func() {
		defer close(holder)
		_, _ = server.psql(db.name, fmt.Sprintf("SELECT pg_advisory_lock(%d, 0), pg_sleep(60)", lockClass)) // ended below
	}()
	const held = "FROM pg_locks WHERE locktype = 'advisory' AND granted"
	waitFor(t, db, "SELECT count(*) = 1 "+held)
	got := db.run(t, `\set ON_ERROR_STOP 0
		SET statement_timeout = '50ms';
		BEGIN;
		SAVEPOINT s;
		SELECT cleave.next_id(0);
		ROLLBACK TO s;
		SELECT count(*) `+held+` AND pid = pg_backend_pid();
		COMMIT;
		SET statement_timeout = 0;
		SELECT pg_terminate_backend(pid) `+held+`;
		SELECT cleave.next_id(0) > 0;`)
	<-holder
	if got != "0\nt\nt" {
		t.Errorf("got %q, want no lock, the holder ended, then an id", got)
	}
}

func waitFor(t *testing.T, db *postgresDatabase, condition string) {
	t.Helper()
	for range 1000 {
		if db.run(t, condition) == "t" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never true: %s", condition)
}

// testPostgresClockBackwards: nobody can set the clock back in a test, but the clocks can be set ahead, which is the same to
// next_id: ids that are there carry later times than the clock tells.
func testPostgresClockBackwards(t *testing.T, server *postgresServer) {
	db := server.database(t, "clock_backwards", mustSQL(t, DefaultLayout(), SQLConfig{MaxBackwards: 10 * time.Second}))
	checkIncreasing(t, db.numbers(t, `
		SELECT cleave.next_id(5);
		SELECT (SELECT count(*) * 0 FROM cleave.id_raise_floor(clock_timestamp() + interval '200 ms')) + cleave.next_id(5);
		SELECT cleave.next_id(5) FROM generate_series(1, 100);`))
	// The wait is over when the clock has come within the permitted lead.
	if got := db.run(t, "SELECT cleave.id_time(cleave.next_id(5)) <= clock_timestamp() + interval '11 ms'"); got != "t" {
		t.Error("an id came back before its time")
	}
}

func testPostgresClockFarBackwards(t *testing.T, server *postgresServer) {
	db := server.database(t, "clock_far_backwards", mustSQL(t, DefaultLayout(), SQLConfig{}))
	db.run(t, "SELECT cleave.id_raise_floor(clock_timestamp() + interval '1 hour')")
	before := db.run(t, "SELECT cleave.id_high_water()")
	db.fails(t, "SELECT cleave.next_id(5)", "55000")
	db.fails(t, "SELECT cleave.next_id(5)", "ms behind the ids already made")
	if after := db.run(t, "SELECT cleave.id_high_water()"); after != before {
		t.Errorf("refused calls moved the high-water mark from %s to %s", before, after)
	}
	db.run(t, "SELECT cleave.id_raise_floor(clock_timestamp() - interval '1 hour')")
	if after := db.run(t, "SELECT cleave.id_high_water()"); after != before {
		t.Errorf("an earlier floor moved the high-water mark from %s to %s", before, after)
	}
}

// testPostgresLayoutEnds uses a layout that ended in 1972.
func testPostgresLayoutEnds(t *testing.T, server *postgresServer) {
	ended, err := NewLayout(LayoutConfig{Epoch: time.UnixMilli(0), TimeBits: 36, SlotBits: 4, GeneratorBits: 1, SequenceBits: 22})
	if err != nil {
		t.Fatal(err)
	}
	db := server.database(t, "layout_ends", mustSQL(t, ended, SQLConfig{}))
	db.fails(t, "SELECT cleave.next_id(5)", "2200H")
	db.fails(t, "SELECT cleave.id_raise_floor(clock_timestamp())", "22008")
	// No id can be made past the end, not even by counting on.
	db.run(t, "SELECT cleave.id_raise_floor('"+ended.End().Format(time.RFC3339Nano)+"')")
	db.fails(t, "SELECT cleave.next_id(5)", "2200H")
}

// testPostgresSlotMoves: the source's ids carry later times than the target's clock tells, which is what a target whose clock is
// behind looks like.
func testPostgresSlotMoves(t *testing.T, server *postgresServer) {
	text := mustSQL(t, DefaultLayout(), SQLConfig{MaxBackwards: time.Minute})
	source := server.database(t, "move_source", text)
	target := server.database(t, "move_target", text)
	source.run(t, "SELECT cleave.id_raise_floor(clock_timestamp() + interval '2 s')")
	last := source.number(t, `SELECT last_value - 1 FROM cleave.id_shift_5`)
	if behind := target.number(t, "SELECT cleave.next_id(5::bigint << 54) >> 22 << 5"); behind > last {
		t.Fatal("the source is not ahead of the target: this test tests nothing")
	}
	mark := source.run(t, "SELECT cleave.id_high_water()")
	target.run(t, fmt.Sprintf("SELECT cleave.id_raise_floor('%s')", mark))
	if first := target.number(t, "SELECT cleave.next_id(5::bigint << 54) >> 22 << 5"); first <= last {
		t.Errorf("the target made an id of tick %d, the source had got to %d", first, last)
	}
}

// testPostgresOwnGenerator: databases with numbers of their own cannot collide, whatever their clocks say.
func testPostgresOwnGenerator(t *testing.T, server *postgresServer) {
	db := server.database(t, "own_generator", mustSQL(t, DefaultLayout(), SQLConfig{Schema: "order", Generator: 99}))
	parts := DefaultLayout().Decode(db.number(t, `SELECT "order".next_id(7::bigint << 54)`))
	if parts.Generator != 99 || parts.Slot != 7 {
		t.Errorf("got %+v, want generator 99 and slot 7", parts)
	}
}

// testPostgresLostState: a promoted standby without the last WAL has older clocks. As long as time has gone on, nothing happens.
func testPostgresLostState(t *testing.T, server *postgresServer) {
	db := server.database(t, "lost_state", mustSQL(t, DefaultLayout(), SQLConfig{}))
	ids := db.numbers(t, "SELECT cleave.next_id(5) FROM generate_series(1, 100)")
	waitFor(t, db, "SELECT cleave.id_high_water() <= clock_timestamp()")
	db.run(t, "SELECT setval('cleave.id_count_0', 0), setval('cleave.id_shift_0', 0)")
	checkIncreasing(t, append(ids, db.numbers(t, "SELECT cleave.next_id(5) FROM generate_series(1, 100)")...))
}

func testPostgresPrivileges(t *testing.T, server *postgresServer) {
	db := server.database(t, "privileges", mustSQL(t, DefaultLayout(), SQLConfig{}), `
		CREATE ROLE outsider; CREATE ROLE app;
		GRANT USAGE ON SCHEMA cleave TO outsider, app;
		GRANT EXECUTE ON FUNCTION cleave.next_id(bigint) TO app;`)
	if got := db.run(t, "SET ROLE app; SELECT cleave.id_slot(cleave.next_id(3::bigint << 54))"); got != "3" {
		t.Errorf("got slot %s, want 3", got)
	}
	db.fails(t, "SET ROLE outsider; SELECT cleave.next_id(5)", "permission denied for function next_id")
	db.fails(t, "SET ROLE app; SELECT setval('cleave.id_count_0', 1)", "permission denied for sequence")
	db.fails(t, "SET ROLE app; SELECT nextval('cleave.id_count_0')", "permission denied for sequence")
	db.fails(t, "SET ROLE app; SELECT cleave.id_raise_floor(now())", "permission denied for function")
	db.fails(t, "SET ROLE app; SELECT cleave.id_high_water()", "permission denied for function")
	db.run(t, "CREATE ROLE mover; GRANT USAGE ON SCHEMA cleave TO mover; "+
		"GRANT EXECUTE ON FUNCTION cleave.id_high_water(), cleave.id_raise_floor(timestamptz) TO mover")
	db.run(t, "SET ROLE mover; SELECT cleave.id_raise_floor(cleave.id_high_water())")
}

func testPostgresDeclarations(t *testing.T, server *postgresServer) {
	db := server.database(t, "declarations", mustSQL(t, DefaultLayout(), SQLConfig{}))
	got := db.run(t, `SELECT proname, provolatile, proparallel, proisstrict, prosecdef, proconfig FROM pg_proc
		WHERE pronamespace = 'cleave'::regnamespace ORDER BY proname`)
	want := strings.Join([]string{
		`id_generator|i|s|t|f|`,
		`id_high_water|v|u|f|t|{"search_path=pg_catalog, pg_temp"}`,
		`id_layout|i|s|f|f|`,
		`id_maker|i|s|f|f|`,
		`id_raise_floor|v|u|t|t|{"search_path=pg_catalog, pg_temp"}`,
		`id_sequence|i|s|t|f|`,
		`id_slot|i|s|t|f|`,
		`id_time|i|s|t|f|`,
		`next_id|v|u|f|t|`,
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// The readers are inlined: the plan shows their bodies.
	plan := db.run(t, "CREATE TABLE r (id bigint); EXPLAIN (VERBOSE, COSTS OFF) SELECT cleave.id_slot(id), cleave.id_time(id) FROM r")
	if strings.Contains(plan, "id_slot") || strings.Contains(plan, "id_time") {
		t.Errorf("not inlined:\n%s", plan)
	}
}

func testPostgresRunAgain(t *testing.T, server *postgresServer) {
	text := mustSQL(t, DefaultLayout(), SQLConfig{})
	db := server.database(t, "run_again", text)
	before := db.number(t, "SELECT cleave.next_id(5)")
	db.run(t, text)
	if after := db.number(t, "SELECT cleave.next_id(5)"); after <= before {
		t.Errorf("got %d after %d", after, before)
	}
	other, err := NewLayout(LayoutConfig{TimeBits: 41, SlotBits: 10, GeneratorBits: 6, SequenceBits: 6})
	if err != nil {
		t.Fatal(err)
	}
	db.fails(t, mustSQL(t, other, SQLConfig{}), "this database makes ids with another layout")
	db.fails(t, mustSQL(t, DefaultLayout(), SQLConfig{Generator: 5}), "this database makes ids with another generator number")
	db.run(t, mustSQL(t, other, SQLConfig{Schema: "elsewhere"}))
}

func testPostgresNullHash(t *testing.T, server *postgresServer) {
	db := server.database(t, "null_hash", mustSQL(t, DefaultLayout(), SQLConfig{}))
	db.fails(t, "SELECT cleave.next_id(NULL)", "22004")
}

func testPostgresUUID(t *testing.T, server *postgresServer) {
	text, err := UUIDSQL("")
	if err != nil {
		t.Fatal(err)
	}
	db := server.database(t, "uuid", text)
	output := db.run(t, `SELECT floor(date_part('epoch', clock_timestamp()) * 1000)::bigint, cleave.uuidv7(),
		floor(date_part('epoch', clock_timestamp()) * 1000)::bigint FROM generate_series(1, 1000)`)
	seen := map[UUID]bool{}
	for line := range strings.Lines(output) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		id, err := ParseUUID(fields[1])
		if err != nil {
			t.Fatal(err)
		}
		if id.Version() != 7 || id[8]>>6 != 0b10 {
			t.Fatalf("%s is not of version 7", id)
		}
		milli := strconv.FormatInt(id.Time().UnixMilli(), 10)
		if milli < fields[0] || milli > fields[2] {
			t.Fatalf("%s has time %s, made between %s and %s", id, milli, fields[0], fields[2])
		}
		seen[id] = true
	}
	if len(seen) != 1000 {
		t.Errorf("got %d different UUIDs, want 1000", len(seen))
	}
}

func testPostgresSequenceSource(t *testing.T, server *postgresServer) {
	const block = 50
	create, next, err := SequenceSQL("public", "invoice_numbers", block)
	if err != nil {
		t.Fatal(err)
	}
	db := server.database(t, "sequence_source", create)
	seen := map[int64]bool{}
	for range 2 { // Two processes.
		source := SequenceSource(block, func(context.Context) (int64, error) {
			output, err := db.server.psql(db.name, next)
			if err != nil {
				return 0, err
			}
			return strconv.ParseInt(output, 10, 64)
		})
		blocks, err := NewBlocks(source, BlocksConfig{Max: 10_000}) // asks for more than the sequence's step
		if err != nil {
			t.Fatal(err)
		}
		defer blocks.Close()
		for range 3 * block {
			number, err := blocks.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if seen[number] {
				t.Fatalf("got %d twice", number)
			}
			seen[number] = true
		}
	}
	if !seen[1] {
		t.Error("the first number is not 1")
	}
}

// TestPostgresCrash kills the server while sessions make ids, several times, and looks at all ids that anybody has seen.
func TestPostgresCrash(t *testing.T) {
	server := startPostgres(t)
	db := server.database(t, "crash", mustSQL(t, DefaultLayout(), SQLConfig{}),
		"CREATE TABLE made (hash bigint, started timestamptz, id bigint, finished timestamptz)")
	for range 3 {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 1000 { // until the server is gone
					if _, err := server.psql(db.name, `INSERT INTO made SELECT hash, clock_timestamp(), cleave.next_id(hash), clock_timestamp()
						FROM (SELECT (n % 3)::bigint << 60 AS hash FROM generate_series(1, 100) n) h`); err != nil {
						return
					}
				}
			})
		}
		rows := db.number(t, "SELECT count(*) FROM made")
		waitFor(t, db, fmt.Sprintf("SELECT count(*) > %d + 1000 FROM made", rows))
		server.crash(t)
		group.Wait()
		server.restart(t)
	}
	checkMade(t, db, int(db.number(t, "SELECT count(*) FROM made")))
}

// TestPostgresCrashWithClockSetBack: what a clock knew before a crash it knows afterwards, without help from the time of day.
func TestPostgresCrashWithClockSetBack(t *testing.T) {
	server := startPostgres(t)
	db := server.database(t, "crash", mustSQL(t, DefaultLayout(), SQLConfig{}))
	before := db.run(t, "SELECT cleave.id_raise_floor(clock_timestamp() + interval '1 hour'); SELECT cleave.id_high_water() AT TIME ZONE 'UTC'")
	before = before[strings.LastIndexByte(before, '\n')+1:]
	server.crash(t)
	server.restart(t)
	if got := db.run(t, fmt.Sprintf("SELECT cleave.id_high_water() AT TIME ZONE 'UTC' >= '%s'", before)); got != "t" {
		t.Error("the high-water mark went back")
	}
	db.fails(t, "SELECT cleave.next_id(5)", "55000")
}
