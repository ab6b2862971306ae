package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// marksLeft is the step of the schema for marks: rows that are written on one shard and published with a move, so that whoever sees one on the other shard knows that all that was committed before it has
// come there too.
const marksLeft = `
	CREATE TABLE cleave.marks (
		move text,
		mark text,
		made timestamptz NOT NULL DEFAULT now(),
		PRIMARY KEY (move, mark)
	);
	COMMENT ON TABLE cleave.marks IS 'how far the changes of moves have come: a mark is written on one shard, and arrives on the other behind all that was written before';
	REVOKE ALL ON cleave.marks FROM PUBLIC;`

// LeaveMark writes a mark, durably.
func LeaveMark(ctx context.Context, conn *pgx.Conn, move, mark string) error {
	_, err := conn.Exec(ctx, "INSERT INTO cleave.marks (move, mark) VALUES ($1, $2) ON CONFLICT DO NOTHING", move, mark)
	if err != nil {
		return fmt.Errorf("leave a mark: %w", err)
	}
	return nil
}

// HasMark says whether a mark has arrived, or was left here.
func HasMark(ctx context.Context, conn *pgx.Conn, move, mark string) (has bool, err error) {
	if err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM cleave.marks WHERE move = $1 AND mark = $2)", move, mark).Scan(&has); err != nil {
		return false, fmt.Errorf("look for a mark: %w", err)
	}
	return has, nil
}

// DropMarks removes what a move has left, and noted.
func DropMarks(ctx context.Context, conn *pgx.Conn, move string) error {
	if _, err := conn.Exec(ctx, "WITH notes AS (DELETE FROM cleave.move_notes WHERE move = $1) DELETE FROM cleave.marks WHERE move IN ($1, $2)", move, beatsOf(move)); err != nil {
		return fmt.Errorf("remove marks: %w", err)
	}
	return nil
}

// beatsOf is what marks stand under that a move writes again and again, so that who applies changes on the other shard comes by there. They do not stand under the move itself: while a snapshot is in use no older version of a row goes away, and whoever looks
// for another mark of the move would have to walk over all of them.
func beatsOf(move string) string { return move + " beats" }

// BeatTravels is the condition of such marks, for a publication.
func BeatTravels(move string) string { return "move = " + sqltext.QuoteLiteral(beatsOf(move)) }

// Beats writes a mark again and again.
type Beats struct {
	conn  *pgx.Conn
	move  string
	mark  string
	times int
}

// beatsOfAName is how often one is written before another takes its place: each time takes longer than the one before while no version goes away.
const beatsOfAName = 100

// NewBeats forgets those of before: a mark that was there before the other shard's copy would never come there.
func NewBeats(ctx context.Context, conn *pgx.Conn, move string) (*Beats, error) {
	if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil { // nothing depends on them
		return nil, fmt.Errorf("prepare to write a mark again and again: %w", err)
	}
	return &Beats{conn: conn, move: beatsOf(move)}, nil
}

// Beat writes it once.
func (b *Beats) Beat(ctx context.Context) error {
	var err error
	if b.times%beatsOfAName == 0 {
		b.mark = time.Now().UTC().Format(time.RFC3339Nano)
		_, err = b.conn.Exec(ctx, "WITH older AS (DELETE FROM cleave.marks WHERE move = $1) INSERT INTO cleave.marks (move, mark) VALUES ($1, $2)", b.move, b.mark)
	} else {
		_, err = b.conn.Exec(ctx, "UPDATE cleave.marks SET made = clock_timestamp() WHERE move = $1 AND mark = $2", b.move, b.mark)
	}
	if err != nil {
		return fmt.Errorf("write a mark again: %w", err)
	}
	b.times++
	return nil
}

// HoldBeats keeps who applies changes here waiting for a time, where it comes by such a mark. Nobody has to wait for a standby for that, and if whoever holds it is not heard of any more, the server lets it go.
func HoldBeats(ctx context.Context, conn *pgx.Conn, move string, rest time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, rest+holdPatience)
	defer cancel()
	limit := (rest + holdPatience).Milliseconds()
	if _, err := conn.PgConn().Exec(ctx, fmt.Sprintf("BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL lock_timeout = '1s'; SET LOCAL idle_in_transaction_session_timeout = %d; SELECT FROM cleave.marks WHERE %s FOR UPDATE", limit, BeatTravels(move))).ReadAll(); err != nil {
		return fmt.Errorf("hold a mark: %w", err)
	}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
	}
	letting, done := context.WithTimeout(context.WithoutCancel(ctx), holdPatience) // also if whoever holds it has been told to end
	defer done()
	if _, err := conn.Exec(letting, "ROLLBACK"); err != nil {
		return fmt.Errorf("let a mark go: %w", err)
	}
	return nil
}

// holdPatience is how much longer than said a mark is held at most.
const holdPatience = 2 * time.Second

// AwaitMark leaves a mark on one shard, and waits until it has come to the other.
func AwaitMark(ctx context.Context, from, to *pgx.Conn, move, mark string) error {
	return passes(ctx, from, move, mark, 20*time.Millisecond, func() {}, func() (bool, error) { return HasMark(ctx, to, move, mark) })
}

// MarkComes waits until a mark has come to a shard, for so long at most, and says whether it has.
func MarkComes(ctx context.Context, to *pgx.Conn, move, mark string, patience time.Duration) (bool, error) {
	over := time.After(patience)
	for pause := 300 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if has, err := HasMark(ctx, to, move, mark); err != nil || has {
			return has, err
		}
		select {
		case <-time.After(pause):
		case <-over:
			return false, nil
		case <-ctx.Done():
			return false, fmt.Errorf("changes have not come over: %w", ctx.Err())
		}
	}
}

// PassMark leaves a mark on one shard, waits until it has come to the other, and notes there, durably, that it has, and from where on the shard's own changes are its own. Others wait for that. Somebody is told when the mark is left.
// It returns from where.
func PassMark(ctx context.Context, from, to *pgx.Conn, move, mark, note string, left func()) (begins string, err error) {
	err = passes(ctx, from, move, mark, 2*time.Millisecond, left, func() (bool, error) {
		err := to.QueryRow(ctx, "INSERT INTO cleave.marks (move, mark) SELECT $1, $3 || pg_current_wal_insert_lsn() FROM cleave.marks WHERE move = $1 AND mark = $2 ON CONFLICT DO NOTHING RETURNING substr(mark, length($3) + 1)", move, mark, note).Scan(&begins)
		if errors.Is(err, pgx.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
	return begins, err
}

// passes leaves a mark and looks for it on the other shard until it is there, at times that are so far apart at most.
func passes(ctx context.Context, from *pgx.Conn, move, mark string, apart time.Duration, left func(), there func() (bool, error)) error {
	if err := LeaveMark(ctx, from, move, mark); err != nil {
		return err
	}
	left()
	for pause := 300 * time.Microsecond; ; pause = min(2*pause, apart) {
		if has, err := there(); err != nil || has {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("changes have not come over: %w", ctx.Err())
		}
	}
}

// LastNote is what stands behind the beginning of the last such note; empty if there is none.
func LastNote(ctx context.Context, conn *pgx.Conn, move, note string) (rest string, err error) {
	err = conn.QueryRow(ctx, "SELECT coalesce((SELECT substr(mark, length($2) + 1) FROM cleave.marks WHERE move = $1 AND starts_with(mark, $2) ORDER BY made DESC LIMIT 1), '')", move, note).Scan(&rest)
	if err != nil {
		return "", fmt.Errorf("look for a note: %w", err)
	}
	return rest, nil
}

// TakeLead has a shard know who carries a move out, by a number that is higher for every later leader, and ends the connections of those before, which may have slept. It returns when they are gone. Connections of a move
// are called application followed by their leader's number; each asks [Leads] when it begins. Whether the number is still the leader's is asked between the two: after that, any later one is noted here later.
func TakeLead(ctx context.Context, conn *pgx.Conn, move, application string, number int64, stillLeads func() error) error {
	if err := LeaveMark(ctx, conn, move, leadMark(number)); err != nil {
		return err
	}
	if err := stillLeads(); err != nil {
		_, _ = conn.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND mark = $2", move, leadMark(number)) // it says nothing, and would be left
		return err
	}
	return EndOthers(ctx, conn, application, number)
}

// EndOthers ends the connections of a move's other leaders, and returns when they are gone.
func EndOthers(ctx context.Context, conn *pgx.Conn, application string, number int64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var left int
		err := conn.QueryRow(ctx, "SELECT count(CASE WHEN pg_terminate_backend(pid) THEN 1 ELSE 1 END) FROM pg_stat_activity WHERE starts_with(application_name, $1 || ' ') AND application_name <> $2", application, Application(application, number)).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("connections of an earlier leader do not end: %w", ctx.Err())
		}
	}
}

// Application is what connections of a move are called under a leader.
func Application(application string, number int64) string {
	return fmt.Sprintf("%s %d", application, number)
}

// MarkTravels is the condition of marks that are for the other shard: who leads, and that a switch was taken back, each shard is told by itself.
const MarkTravels = "NOT starts_with(mark, 'leader ') AND mark <> '" + takenBack + "'"

const (
	// arrivedMark begins the note that a shard has everything of another one. Behind that one's name stands from where on the shard's own changes are its own.
	arrivedMark, arrivedAt = "everything of ", " at "
	// takenBack says that a shard owns again, or still, what it was about to lose.
	takenBack = "taken back"
)

// ArrivedFrom begins the note that a shard has everything of another.
func ArrivedFrom(name string) string { return arrivedMark + name + arrivedAt }

// BeginSwitch forgets on both shards how an earlier switch of a move has ended, before one begins: of what the heir has it is said anew that it is everything.
func BeginSwitch(ctx context.Context, owner, heir *pgx.Conn, move, ownerName string) error {
	// The heir forgets first: as long as its note is there, the owner's is what says that it does not count.
	if _, err := heir.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND starts_with(mark, $2)", move, ArrivedFrom(ownerName)); err != nil {
		return fmt.Errorf("forget earlier switches: %w", err)
	}
	if _, err := owner.Exec(ctx, "DELETE FROM cleave.marks WHERE move = $1 AND mark = $2", move, takenBack); err != nil {
		return fmt.Errorf("forget earlier switches: %w", err)
	}
	return nil
}

// TakeBackSwitch notes on the owner, durably, that a switch has not come to its end, before anybody changes anything there again.
func TakeBackSwitch(ctx context.Context, owner *pgx.Conn, move string) error {
	return LeaveMark(ctx, owner, move, takenBack)
}

// KnownMove is a move that a shard knows of.
type KnownMove struct {
	ID string
	// Keyspace or Whole are what it moves, to the shard Target, and Description all that is known of it. Schemas move with the tables in Whole.
	Keyspace    string
	Target      string
	Whole       []string
	Schemas     []string
	Description []byte
	// ArrivedFrom are shards of which this one has everything. TakenBack: this one owns again what another was about to get.
	ArrivedFrom []string
	TakenBack   bool
}

// readMoves reads the moves that a shard knows of. One of which it does not know what it is has ended there, or nothing was made there yet.
func readMoves(ctx context.Context, tx pgx.Tx, r *Recorded) error {
	if there, err := isThere(ctx, tx, topology.TableName{Schema: "cleave", Name: "move_notes"}); err != nil || !there {
		return err // nothing has ever moved
	}
	rows, err := tx.Query(ctx, `SELECT move, content, (SELECT array_agg(k.mark ORDER BY k.made) FROM cleave.marks k WHERE k.move = n.move AND (starts_with(k.mark, $2) OR k.mark = $3))
		FROM cleave.move_notes n WHERE note = $1 ORDER BY move COLLATE "C"`, moveNote, arrivedMark, takenBack)
	if err != nil {
		return err
	}
	var id, description string
	var marks []string
	_, err = pgx.ForEachRow(rows, []any{&id, &description, &marks}, func() error {
		move, err := knownMove(id, description)
		if err != nil {
			return err
		}
		for _, mark := range marks {
			move.add(mark)
		}
		r.Moves = append(r.Moves, move)
		return nil
	})
	return err
}

func knownMove(id, description string) (KnownMove, error) {
	var is struct {
		Keyspace string   `json:"keyspace"`
		Target   string   `json:"target"`
		Whole    []string `json:"whole"`
		Schemas  []string `json:"schemas"`
	}
	if err := json.Unmarshal([]byte(description), &is); err != nil {
		return KnownMove{}, fmt.Errorf("read what move %s is: %w", id, err)
	}
	for i, table := range is.Whole {
		is.Whole[i] = topology.NormalTableName(table)
	}
	return KnownMove{ID: id, Keyspace: is.Keyspace, Target: is.Target, Whole: is.Whole, Schemas: is.Schemas, Description: []byte(description)}, nil
}

func (m *KnownMove) add(mark string) {
	if mark == takenBack {
		m.TakenBack = true
	} else if at := strings.LastIndex(mark, arrivedAt); at > len(arrivedMark) {
		m.ArrivedFrom = append(m.ArrivedFrom, mark[len(arrivedMark):at])
	}
}

// ForgetLeaders forgets who led moves, but for who leads now: whoever did in another life of the store, which was lost, may have had a higher number.
func ForgetLeaders(ctx context.Context, conn *pgx.Conn, now int64) error {
	if there, err := isThere(ctx, conn, topology.TableName{Schema: "cleave", Name: "marks"}); err != nil || !there {
		return err
	}
	if _, err := conn.Exec(ctx, "DELETE FROM cleave.marks WHERE starts_with(mark, 'leader ') AND mark <> $1", leadMark(now)); err != nil {
		return fmt.Errorf("forget leaders of moves: %w", err)
	}
	return nil
}

// leadMark sorts as its number does.
func leadMark(number int64) string { return fmt.Sprintf("leader %020d", number) }

// Leads says whether this number is the last one that a shard has heard of for a move.
func Leads(ctx context.Context, conn *pgx.Conn, move string, number int64) (leads bool, err error) {
	err = conn.QueryRow(ctx, "SELECT coalesce(max(mark COLLATE \"C\") = $2, false) FROM cleave.marks WHERE move = $1 AND starts_with(mark, 'leader ')", move, leadMark(number)).Scan(&leads)
	if err != nil {
		return false, fmt.Errorf("see who carries a move out: %w", err)
	}
	return leads, nil
}
