package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// The sequences of tables that move as a whole give numbers on one shard alone, also to whoever names nothing but the sequence, of which nobody knows that it moves. Those of the copy stand at their end, where they give none, from when they
// are made until they go on where the owner's have stopped.

// SequencesOf are the sequences that belong to columns of tables, as far as those are there.
func SequencesOf(ctx context.Context, on querier, tables []topology.TableName) ([]string, error) {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = table.String()
	}
	rows, err := on.Query(ctx, `SELECT d.objid::regclass::text FROM unnest($1::text[]) AS t JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = to_regclass(t) AND d.refobjsubid > 0
		AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i') JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S' ORDER BY 1`, names)
	if err != nil {
		return nil, fmt.Errorf("look for sequences: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// CarryBounds lets the sequences of tables on one shard count from where to where those of the other do. They give no numbers before [CarryNumbers].
func CarryBounds(ctx context.Context, from querier, to executor, tables []topology.TableName) error {
	sequences, err := SequencesOf(ctx, from, tables)
	if err != nil || len(sequences) == 0 {
		return err
	}
	found, err := readBounds(ctx, from, sequences)
	if err != nil {
		return err
	}
	ends := make([]int64, len(found))
	for i, b := range found {
		if err := setBounds(ctx, to, b.Name, b.Least, b.Greatest, b.Start, b.Start); err != nil {
			return err
		}
		sequences[i], ends[i] = b.Name, b.Limit
	}
	if _, err := to.Exec(ctx, standSQL, sequences, ends); err != nil {
		return fmt.Errorf("keep sequences from giving numbers: %w", err)
	}
	return nil
}

// stretch is from where to where a sequence counts, and where it stands when it has no number left.
type stretch struct {
	Name                          string
	Least, Greatest, Start, Limit int64
}

func readBounds(ctx context.Context, on querier, sequences []string) ([]stretch, error) {
	rows, err := on.Query(ctx, "SELECT n, s.seqmin, s.seqmax, s.seqstart, CASE WHEN s.seqincrement > 0 THEN s.seqmax ELSE s.seqmin END FROM unnest($1::text[]) AS n JOIN pg_sequence s ON s.seqrelid = to_regclass(n) ORDER BY n", sequences)
	if err != nil {
		return nil, fmt.Errorf("read the bounds of sequences: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stretch])
	if err != nil {
		return nil, fmt.Errorf("read the bounds of sequences: %w", err)
	}
	return found, nil
}

// OtherBounds are the sequences of tables that do not count from where to where they do on another shard: somebody may have changed that since it was carried.
func OtherBounds(ctx context.Context, on, other querier, tables []topology.TableName) (differing []string, err error) {
	sequences, err := SequencesOf(ctx, on, tables)
	if err != nil {
		return nil, err
	}
	here, err := readBounds(ctx, on, sequences)
	if err != nil {
		return nil, err
	}
	there, err := readBounds(ctx, other, sequences)
	for _, b := range here {
		if !slices.Contains(there, b) {
			differing = append(differing, b.Name)
		}
	}
	return differing, err
}

// standSQL has sequences stand somewhere.
const standSQL = "SELECT setval(name::regclass, at) FROM unnest($1::text[], $2::bigint[]) AS s (name, at)"

// standing is where a sequence stands, how it counts, and how many numbers a session takes from it at once.
type standing struct {
	Name                     string
	Last, Step, Limit, Cache int64
	Ended                    bool
}

// left is how many numbers it can still give. The difference of two numbers may need one bit more than they have.
func (s standing) left() uint64 {
	if s.Step < 0 {
		return (uint64(s.Last) - uint64(s.Limit)) / -uint64(s.Step) //nolint:gosec // it is meant to wrap
	}
	return (uint64(s.Limit) - uint64(s.Last)) / uint64(s.Step) //nolint:gosec // it is meant to wrap
}

// after is the number that comes so many later, or the last one that the sequence can give.
func (s standing) after(numbers int64) int64 {
	return s.Last + s.Step*int64(min(uint64(numbers*max(s.Cache, 1)), s.left())) //nolint:gosec // left is a difference of two numbers
}

// A sequence leaves out some numbers when its table moves, as one does when its server crashes: some are drawn between the looking and the stopping, as clients that name the sequence alone are held back by nobody. More than that may not be.
const (
	skipped  = 64
	maxDrawn = 32
	// unheard is how many it leaves out, or half of those that are left, if another shard may have given some and cannot be asked.
	unheard = 1 << 20
)

// behind is where nobody has come yet.
func (s standing) behind() int64 { return s.after(skipped) }

// farBehind is where nobody has come yet who could draw from it without this shard's knowing.
func (s standing) farBehind() int64 {
	return s.after(int64(min(unheard, max(skipped, s.left()/2/uint64(max(s.Cache, 1)))))) //nolint:gosec // it is not more than a million
}

// further is which of two numbers comes later.
func (s standing) further(a, b int64) int64 {
	if s.Step < 0 {
		return min(a, b)
	}
	return max(a, b)
}

// Standings are where sequences stood when they were stopped.
type Standings []standing

// behind is where a sequence of this shard goes on: behind where it stood, and behind what another shard has given.
func (given Standings) behind(s standing) int64 {
	if at := given.find(s.Name); at >= 0 {
		return s.further(s.behind(), given[at].behind())
	}
	return s.behind()
}

// stopQuery ends sequences, but for those of which more was drawn than is left out, and says whether it has ended all.
const stopQuery = `
	SELECT bool_and(CASE WHEN CASE WHEN s.step > 0 THEN l.at <= s.reached ELSE l.at >= s.reached END THEN setval(s.name::regclass, s.ends) IS NOT NULL ELSE false END)
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS s (name, step, reached, ends), LATERAL (SELECT coalesce(pg_sequence_last_value(s.name::regclass), s.reached) AS at) AS l`

// stop ends them.
func (given Standings) stop(ctx context.Context, on *pgx.Conn, haste Haste) (stopped bool, err error) {
	names, steps, reached, ends := make([]string, len(given)), make([]int64, len(given)), make([]int64, len(given)), make([]int64, len(given))
	for i, one := range given {
		names[i], steps[i], reached[i], ends[i] = one.Name, one.Step, one.after(maxDrawn), one.Limit
	}
	if err := haste.do(ctx, on, &stopped, stopQuery, names, steps, reached, ends); err != nil {
		return false, fmt.Errorf("keep sequences from giving numbers: %w", err)
	}
	return stopped, nil
}

func (given Standings) find(sequence string) int {
	return slices.IndexFunc(given, func(s standing) bool { return s.Name == sequence })
}

// StopNumbers has sequences give no numbers any more, and returns where those stood that gave some: that is noted first, and done again it knows what it was.
func StopNumbers(ctx context.Context, on *pgx.Conn, move string, sequences []string) (Standings, error) {
	return stopNumbers(ctx, on, move, sequences, Lasting)
}

// stopNumbers may end sequences without waiting for the disk, but not before the note is there that they go on by: whoever is told to give numbers then is asked what he has given.
func stopNumbers(ctx context.Context, on *pgx.Conn, move string, sequences []string, haste Haste) (Standings, error) {
	if len(sequences) == 0 {
		return nil, nil
	}
	const tries = 3
	for range tries {
		stood, giving, err := lookAtNumbers(ctx, on, move, sequences)
		if err != nil || len(giving) == 0 {
			return stood, err
		}
		if err := noteNumbers(ctx, on, move, stood); err != nil {
			return nil, err
		}
		if stopped, err := giving.stop(ctx, on, haste); err != nil || stopped {
			return stood, err
		}
	}
	return nil, errors.New("numbers are drawn from a sequence faster than it can be stopped")
}

// lookAtNumbers finds where sequences stand, or stood when they were stopped, and those among them that give numbers. Of one that has never given any, or has none left, there is nothing to say.
func lookAtNumbers(ctx context.Context, on *pgx.Conn, move string, sequences []string) (stood, giving Standings, err error) {
	noted, err := notedNumbers(ctx, on, move)
	if err != nil {
		return nil, nil, err
	}
	now, err := readStanding(ctx, on, sequences)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range now {
		switch at := noted.find(s.Name); {
		case !s.Ended:
			stood, giving = append(stood, s), append(giving, s)
		case at >= 0:
			stood = append(stood, noted[at])
		}
	}
	return stood, giving, nil
}

func noteNumbers(ctx context.Context, on executor, move string, stood Standings) error {
	note, err := json.Marshal(stood)
	if err == nil {
		err = writeNote(ctx, on, move, numbersNote, note)
	}
	if err != nil {
		return fmt.Errorf("note where sequences stand: %w", err)
	}
	return nil
}

func notedNumbers(ctx context.Context, on querier, move string) (stood Standings, err error) {
	note, err := readNote(ctx, on, move, numbersNote)
	if err == nil && note != "" {
		err = json.Unmarshal([]byte(note), &stood)
	}
	if err != nil {
		return nil, fmt.Errorf("see where sequences stood: %w", err)
	}
	return stood, nil
}

// standingQuery tells nothing of where a sequence stands that has never given a number.
const standingQuery = `
	SELECT name, coalesce(l.at, 0), s.seqincrement, e.at, s.seqcache, coalesce(l.at = e.at, false), l.at IS NULL
	FROM unnest($1::text[]) AS name JOIN pg_sequence s ON s.seqrelid = name::regclass, LATERAL (SELECT pg_sequence_last_value(s.seqrelid::regclass) AS at) AS l, LATERAL (SELECT CASE WHEN s.seqincrement > 0 THEN s.seqmax ELSE s.seqmin END AS at) AS e`

func readStanding(ctx context.Context, on *pgx.Conn, sequences []string) (stood Standings, err error) {
	rows, err := on.Query(ctx, standingQuery, sequences)
	if err != nil {
		return nil, fmt.Errorf("read sequences: %w", err)
	}
	var fresh []int
	var s standing
	var isFresh bool
	_, err = pgx.ForEachRow(rows, []any{&s.Name, &s.Last, &s.Step, &s.Limit, &s.Cache, &s.Ended, &isFresh}, func() error {
		if isFresh {
			fresh = append(fresh, len(stood))
		}
		stood = append(stood, s)
		return nil
	})
	if err == nil {
		err = stood.readEach(ctx, on, fresh)
	}
	if err != nil {
		return nil, fmt.Errorf("read sequences: %w", err)
	}
	return stood, nil
}

// RehearseNumbers reads sequences once: when they are carried, what that reads of the catalogue for the first time takes several times as long.
func RehearseNumbers(ctx context.Context, on *pgx.Conn, sequences []string) error {
	_, err := readStanding(ctx, on, sequences)
	return err
}

// readEach reads some of the sequences as the tables that they are, which takes far longer.
func (given Standings) readEach(ctx context.Context, on *pgx.Conn, some []int) error {
	if len(some) == 0 {
		return nil
	}
	reads := make([]string, len(some))
	for i, at := range some {
		reads[i] = "SELECT last_value FROM " + given[at].Name
	}
	results, err := on.PgConn().Exec(ctx, strings.Join(reads, "; ")).ReadAll()
	for i, at := range some {
		if err == nil {
			given[at].Last, err = strconv.ParseInt(string(results[i].Rows[0][0]), 10, 64)
		}
	}
	return err
}

// CarryNumbers lets sequences on one shard go on behind where those of the other stand, which give no numbers any more. Others wait for it; that it is so on both is durable when something is that they do later.
func CarryNumbers(ctx context.Context, from, to *pgx.Conn, move string, sequences []string) error {
	stood, err := stopNumbers(ctx, from, move, sequences, AtOnce)
	if err != nil || len(stood) == 0 {
		return err
	}
	given, err := notedNumbers(ctx, to, move)
	if err != nil {
		return err
	}
	names, goes := make([]string, len(stood)), make([]int64, len(stood))
	for i, s := range stood {
		names[i], goes[i] = s.Name, given.behind(s)
	}
	const carry = "WITH untrue AS (DELETE FROM cleave.move_notes WHERE move = $3 AND note = $4) " + standSQL
	if err := AtOnce.do(ctx, to, nil, carry, names, goes, move, numbersNote); err != nil {
		return fmt.Errorf("carry numbers of sequences: %w", err)
	}
	return nil
}

// HasStopped says whether sequences give no numbers because of a move, so that those of the other shard may have begun to.
func HasStopped(ctx context.Context, on querier, move string) (bool, error) {
	stood, err := notedNumbers(ctx, on, move)
	return len(stood) > 0, err
}

// ResumeNumbers lets sequences go on that [StopNumbers] has stopped: behind where they stood, and behind what the other shard has given meanwhile. If that is not known, they leave out many.
func ResumeNumbers(ctx context.Context, tx pgx.Tx, move string, given Standings, isKnown bool) error {
	stood, err := notedNumbers(ctx, tx, move)
	if err != nil || len(stood) == 0 {
		return err
	}
	names, ends, goes, steps := make([]string, len(stood)), make([]int64, len(stood)), make([]int64, len(stood)), make([]int64, len(stood))
	for i, s := range stood {
		names[i], ends[i], goes[i], steps[i] = s.Name, s.Limit, given.behind(s), s.Step
		if !isKnown {
			goes[i] = s.farBehind()
		}
	}
	const resume = `SELECT setval(s.name::regclass, s.at) FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS s (name, at, ends, step), LATERAL (SELECT pg_sequence_last_value(s.name::regclass) AS now) AS l
		WHERE l.now IS NULL OR l.now = s.ends OR CASE WHEN s.step > 0 THEN l.now < s.at ELSE l.now > s.at END` // a server that has crashed may have lost that it was stopped
	if _, err := tx.Exec(ctx, resume, names, goes, ends, steps); err != nil {
		return fmt.Errorf("let sequences give numbers again: %w", err)
	}
	return forgetNote(ctx, tx, move, numbersNote)
}
