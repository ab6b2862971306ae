package shard

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Delta is what brings a shard from the record of one plan to that of another from which not much differs, as one text: what has changed is written without a look at what is there. It is worked out before anybody waits for it, of a
// map that may be published later under another version. Make it with [Plan.Delta].
type Delta struct {
	plan *Plan
	name string
	// before is the version that the shard has to have recorded.
	before uint64
	// statements are all that is written but the identity, and possible says whether it can be written so.
	statements []string
	possible   bool
}

// FenceAndRecord is [RaiseMinimum] and [Plan.Record] of a map in one transaction and in one round trip, for which others wait. The map should have in it what the delta is of. If it has not, the shard has recorded something else than was thought, or too much has changed, the one comes after the other.
// It is durable with the next commit there that waits for the disk, such as that of a mark or note of [PassMark].
func (d *Delta) FenceAndRecord(ctx context.Context, conn *pgx.Conn, m *topology.Map, minimum uint64, settled []string) error {
	if script := d.script(m); script != "" {
		_, err := fence(ctx, conn, minimum, settled, "SET LOCAL synchronous_commit = off; "+script)
		if !isUnexpected(err) {
			return err
		}
	}
	if _, err := RaiseMinimum(ctx, conn, minimum, settled); err != nil {
		return err
	}
	_, err := Record(ctx, conn, m, d.name)
	return err
}

// Rehearse does what FenceAndRecord will do, ends no backend, and takes it back. A connection that has never done it takes some ten milliseconds for what is read from the catalogue and for a language that is loaded, for which nobody waits now.
func (d *Delta) Rehearse(ctx context.Context, conn *pgx.Conn) error {
	script := d.script(d.plan.m)
	if script == "" {
		return nil
	}
	_, failed := conn.PgConn().Exec(ctx, "BEGIN; SET LOCAL lock_timeout = '100ms'; "+fenceScript(0, "false")+script+"; ROLLBACK").ReadAll() // in one text: what it locks nobody is to wait for
	if failed != nil {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			return fmt.Errorf("take a rehearsal back: %w", err)
		}
	}
	if failed != nil && !isUnexpected(failed) && CodeOf(failed) != codeLockTimeout {
		return fmt.Errorf("rehearse what a switch records: %w", failed)
	}
	return nil
}

// script is the text for a map; empty if the delta is not of that.
func (d *Delta) script(m *topology.Map) string {
	if !d.possible || !d.plan.fits(m) {
		return ""
	}
	s := m.Shard(d.name)
	entry, _ := json.Marshal(s.Spec()) // it has a JSON form
	// The identity comes first here: it locks the record, and sees that it is the one that was expected.
	identity := fmt.Sprintf(`UPDATE cleave.identity SET entry = %s, map_version = %d, minimum_version = greatest(minimum_version, %d), recorded_at = now() WHERE map_version = %d AND cluster = %s AND shard = %s;
		DO $$ BEGIN IF NOT EXISTS (SELECT FROM cleave.identity WHERE map_version = %[2]d) THEN RAISE EXCEPTION USING ERRCODE = '%[7]s', MESSAGE = 'another map is recorded'; END IF; END $$;
		`, sqltext.QuoteLiteral(string(entry)), m.Version(), s.MinimumVersion(), d.before, sqltext.QuoteLiteral(m.Cluster()), sqltext.QuoteLiteral(d.name), pgerr.ObjectNotInPrerequisite)
	return identity + strings.Join(d.statements, ";\n")
}

// fits says whether the plan is of another map too, which asks routers for another version at most.
func (p *Plan) fits(m *topology.Map) bool {
	if p.m == m {
		return true
	}
	if p.m.Cluster() != m.Cluster() || p.m.LastShardNumber() != m.LastShardNumber() || p.m.ShardCount() != m.ShardCount() || !p.m.Alike(m) {
		return false
	}
	for s := range p.m.Shards() {
		other := m.Shard(s.Name())
		if other == nil {
			return false
		}
		one, another := s.Spec(), other.Spec()
		if one.MinimumVersion = another.MinimumVersion; !reflect.DeepEqual(one, another) {
			return false
		}
	}
	return true
}

// isUnexpected says that a shard has recorded another map than was thought.
func isUnexpected(err error) bool {
	return CodeOf(err) == pgerr.ObjectNotInPrerequisite
}

// CodeOf is the SQLSTATE of an error; empty if it has none.
func CodeOf(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

// Delta works out what brings a shard from what another plan has it record to what this one does.
func (p *Plan) Delta(name string, before *Plan) (*Delta, error) {
	was, err := before.expected(name)
	if err != nil {
		return nil, err
	}
	is, err := p.expected(name)
	if err != nil {
		return nil, err
	}
	d := &Delta{plan: p, name: name, before: was.MapVersion}
	if was.Cluster != is.Cluster || was.Number != is.Number || was.LastShardNumber != is.LastShardNumber || !slices.Equal(was.Members, is.Members) || !bytes.Equal(before.tableRows.digest, p.tableRows.digest) ||
		len(was.Keyspaces) != len(is.Keyspaces) {
		return d, nil
	}
	r := &recordDelta{}
	for i := range is.Keyspaces {
		number := p.m.Shard(name).Number()
		if !r.keyspace(&was.Keyspaces[i], &is.Keyspaces[i]) || !r.pins(is.Keyspaces[i].Head.Name, before.keyspaces[i].guardPins(number), p.keyspaces[i].guardPins(number)) {
			return d, nil
		}
	}
	d.possible, err = r.functions(before, p, name)
	d.statements = r.statements
	return d, err
}

// recordDelta collects statements.
type recordDelta struct {
	statements []string
}

func (d *recordDelta) add(format string, arguments ...any) {
	d.statements = append(d.statements, fmt.Sprintf(format, arguments...))
}

// mostDelta is how many rows are written as a text: more than a move may have of pins.
const mostDelta = 4 * mostSelectedPins

// insert adds rows to a table, many with each statement.
func (d *recordDelta) insert(table, columns string, rows []string) {
	const atOnce = 1000
	for some := range slices.Chunk(rows, atOnce) {
		d.add("INSERT INTO cleave.%s (%s) VALUES %s", table, columns, list(some))
	}
}

// keyspace writes the ranges and pins that differ; false if there are too many.
func (d *recordDelta) keyspace(was, is *Keyspace) bool {
	if was.Head.Name != is.Head.Name || !equalJSON(was.Head, is.Head) {
		return false
	}
	digest := is.digest()
	if bytes.Equal(was.digest(), digest) {
		return true
	}
	gone, come := diffRows(was.Ranges, is.Ranges)
	gonePins, comePins := diffRows(was.Pins, is.Pins)
	if len(gone)+len(come)+len(gonePins)+len(comePins) > mostDelta {
		return false
	}
	keyspace := sqltext.QuoteLiteral(is.Head.Name)
	d.remove("ranges", keyspace, idsOf(gone))
	d.remove("pins", keyspace, idsOf(gonePins))
	ranges, pins := make([]string, len(come)), make([]string, len(comePins))
	for i, r := range come {
		id := r.id()
		ranges[i] = fmt.Sprintf("(%s, %s, %s, %s, %s, %t)", keyspace, byteaSQL(id[:]), jsonSQL(r.Lower), jsonSQL(r.Upper), sqltext.QuoteLiteral(string(r.State)), r.Held)
	}
	for i, p := range comePins {
		id := p.id()
		pins[i] = fmt.Sprintf("(%s, %s, %s, %s, %t)", keyspace, byteaSQL(id[:]), jsonSQL(p.Key), sqltext.QuoteLiteral(string(p.State)), p.Held)
	}
	d.insert("ranges", "keyspace, id, lower, upper, state, held", ranges)
	d.insert("pins", "keyspace, id, key, state, held", pins)
	d.add("UPDATE cleave.keyspaces SET digest = %s WHERE name = %s", byteaSQL(digest), keyspace)
	return true
}

// diffRows are the rows that are not in the other list, each way.
func diffRows[R row](was, is []R) (gone, come []R) {
	had := make(map[rowID]bool, len(was))
	for _, one := range was {
		had[one.id()] = true
	}
	has := make(map[rowID]bool, len(is))
	for _, one := range is {
		has[one.id()] = true
		if !had[one.id()] {
			come = append(come, one)
		}
	}
	for _, one := range was {
		if !has[one.id()] {
			gone = append(gone, one)
		}
	}
	return gone, come
}

func idsOf[R row](rows []R) []rowID {
	ids := make([]rowID, len(rows))
	for i, r := range rows {
		ids[i] = r.id()
	}
	return ids
}

func (d *recordDelta) remove(table, keyspace string, ids []rowID) {
	if len(ids) == 0 {
		return
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = byteaSQL(id[:])
	}
	d.add("DELETE FROM cleave.%s WHERE keyspace = %s AND id IN (%s)", table, keyspace, list(texts))
}

// pins writes what guards have to know of pins; false if there is too much.
func (d *recordDelta) pins(keyspace string, was, is map[rowID]guardPin) bool {
	digest := digestOf(is)
	if bytes.Equal(digestOf(was), digest) {
		return true
	}
	quotedKeyspace := sqltext.QuoteLiteral(keyspace)
	var gone []rowID
	for id := range was {
		if _, stays := is[id]; !stays {
			gone = append(gone, id)
		}
	}
	var come []string
	for id, pin := range is {
		if _, had := was[id]; had {
			continue
		}
		values := make([]string, len(pin.Key))
		for i, value := range pin.Key {
			values[i] = byteaSQL(value)
		}
		come = append(come, fmt.Sprintf("(%s, %s, %s, ARRAY[%s]::bytea[], %t)", quotedKeyspace, byteaSQL(id[:]), "'"+strconv.FormatInt(pin.Hash, 10)+"'::bigint", list(values), pin.Here))
	}
	if len(gone)+len(come) > mostDelta {
		return false
	}
	d.remove("guard_pins", quotedKeyspace, gone)
	d.insert("guard_pins", "keyspace, id, hash, key, here", come)
	d.add("UPDATE cleave.keyspaces SET guard_pins_digest = %s WHERE name = %s", byteaSQL(digest), quotedKeyspace)
	return true
}

// functions replaces those of guards and views that differ; false if there are guards whose triggers differ: they need locks, and more than one text.
func (d *recordDelta) functions(before, now *Plan, name string) (possible bool, err error) {
	was, err := before.guardsOf(before.m.Shard(name))
	if err != nil {
		return false, err
	}
	is, err := now.guardsOf(now.m.Shard(name))
	if err != nil {
		return false, err
	}
	for i := range is {
		if i >= len(was) || was[i].table != is[i].table || was[i].digest != is[i].digest || was[i].generator != is[i].generator {
			return false, nil
		}
		if !slices.Equal(was[i].making, is[i].making) {
			d.statements = append(d.statements, is[i].making...)
		}
	}
	owned, err := before.ownsOf(before.m.Shard(name))
	if err != nil {
		return false, err
	}
	owns, err := now.ownsOf(now.m.Shard(name))
	if err != nil {
		return false, err
	}
	for i := range owns {
		if i >= len(owned) || owned[i].name != owns[i].name {
			return false, nil
		}
		switch {
		case owns[i].left != owned[i].left, owns[i].left && owned[i].source != owns[i].source: // it has to be looked whether it is there
			return false, nil
		case owned[i].source != owns[i].source:
			d.statements = append(d.statements, owns[i].create())
		}
	}
	return true, nil
}

func byteaSQL(value []byte) string { return `'\x` + hex.EncodeToString(value) + `'::bytea` }

// jsonSQL is a bound as a column has it.
func jsonSQL(p topology.Point) string {
	content := pointJSON(p)
	if content == nil {
		return "NULL"
	}
	return sqltext.QuoteLiteral(string(content)) + "::jsonb"
}

// RaiseMinimum has a shard refuse routers with an older map, and ends the backends of those that are not among those that have settled on it; all in one transaction, under the lock that hello needs. It returns
// when they are gone.
func RaiseMinimum(ctx context.Context, conn *pgx.Conn, version uint64, settled []string) (ended int, err error) {
	return fence(ctx, conn, version, settled, forgetEndedSQL)
}

// fenceScript raises the minimum version and ends backends that a condition is true of, and that are still there: another process may have the number by now.
func fenceScript(version uint64, whose string) string {
	return fmt.Sprintf(`LOCK TABLE cleave.backends IN SHARE ROW EXCLUSIVE MODE;
		UPDATE cleave.identity SET minimum_version = %d WHERE minimum_version < %[1]d;
		SELECT pid FROM cleave.backends b WHERE CASE WHEN %s THEN
			CASE WHEN EXISTS (SELECT FROM pg_stat_get_activity(b.pid) a WHERE a.backend_start = b.start) THEN pg_terminate_backend(pid) ELSE false END ELSE false END;
		`, version, whose)
}

// fence ends backends, and does more in the same transaction. It is one text, and so one round trip.
func fence(ctx context.Context, conn *pgx.Conn, version uint64, settled []string, more string) (ended int, err error) {
	routers := make([]string, len(settled))
	for i, id := range settled {
		routers[i] = sqltext.QuoteLiteral(id)
	}
	script := fenceScript(version, fmt.Sprintf("router <> ALL (ARRAY[%s]::text[])", list(routers)))
	results, err := conn.PgConn().Exec(ctx, script+more).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("end the backends of routers with an older map: %w", err)
	}
	var pids []int32
	for _, result := range results {
		for _, values := range result.Rows {
			pid, err := strconv.ParseInt(string(values[0]), 10, 32)
			if err != nil {
				return 0, err
			}
			pids = append(pids, int32(pid))
		}
	}
	if len(pids) == 0 {
		return 0, nil
	}
	return len(pids), awaitEnded(ctx, conn, pids)
}
