package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/topology"
)

// Record writes into the shard's database what the shard of this name owns according to the map, in one transaction, and
// says whether there was anything to write. It reads as little as it can and writes differences alone. A record of a newer
// map is a [NewerError], anything else under the same version a [ForkError], a database that belongs to somebody else a
// [ClaimedError] and one that belongs to nobody [ErrNotClaimed]; then nothing is changed. Whoever tells many shards calls
// [Prepare] once and [Plan.Record] for each.
func Record(ctx context.Context, conn *pgx.Conn, m *topology.Map, name string) (changed bool, err error) {
	return planFor(m, m.Shard(name)).Record(ctx, conn, name)
}

// recorder is one run of [Plan.Record].
type recorder struct {
	tx        pgx.Tx
	want      *Recorded
	tableRows tableRows
	have      *recordedHead // as it was before
	changed   bool
	// pins and guards are what stands on the tables, by keyspace and in the order of names.
	pins   map[string]map[rowID]guardPin
	guards []guard
	// owns are the functions that say what the shard takes, of keyspaces of which something moves.
	owns []ownsFunction
	// generator is the number with which the shard makes ids.
	generator int
}

// recordedHead is the one row that a record begins with.
type recordedHead struct {
	Identity
	entry, members, tablesDigest []byte
	lastShardNumber              int
}

func (r *recorder) run(ctx context.Context) error {
	if err := r.admit(ctx); err != nil {
		return err
	}
	if err := r.keyspaces(ctx); err != nil {
		return err
	}
	if err := r.guardPins(ctx); err != nil {
		return err
	}
	released, err := r.tables(ctx)
	if err != nil {
		return err
	}
	if err := ensureMaker(ctx, r.tx, r.generator); err != nil {
		return err
	}
	if err := r.standGuards(ctx, released); err != nil {
		return err
	}
	return r.identity(ctx)
}

// admit locks the record and sees whether this map may be written.
func (r *recorder) admit(ctx context.Context) (err error) {
	if r.have, err = lockHead(ctx, r.tx); err != nil {
		return err
	}
	if r.have.Cluster != r.want.Cluster || r.have.Shard != r.want.Shard {
		return &ClaimedError{Cluster: r.have.Cluster, Shard: r.have.Shard}
	}
	if r.have.MapVersion > r.want.MapVersion {
		return &NewerError{Recorded: r.have.MapVersion, Map: r.want.MapVersion}
	}
	installed, err := installedVersion(ctx, r.tx)
	if err != nil {
		return err
	}
	if installed > len(steps) {
		return &NewerSchemaError{Installed: installed, Known: len(steps)}
	}
	return nil
}

func lockHead(ctx context.Context, tx pgx.Tx) (*recordedHead, error) {
	id, err := lockIdentity(ctx, tx)
	if err != nil {
		return nil, err
	}
	head := &recordedHead{Identity: *id}
	err = tx.QueryRow(ctx, "SELECT entry, members, tables_digest, last_shard_number FROM cleave.identity").
		Scan(&head.entry, &head.members, &head.tablesDigest, &head.lastShardNumber)
	return head, err
}

// sameVersion says whether this very version is recorded already.
func (r *recorder) sameVersion() bool { return r.have.MapVersion == r.want.MapVersion }

// differs notes that something has to be written. Under a version that is recorded already there is nothing to write, unless
// there are two maps of that version; what is recorded stays, as the only trace of the other one.
func (r *recorder) differs(format string, arguments ...any) error {
	if r.sameVersion() {
		return &ForkError{Version: r.want.MapVersion, Difference: fmt.Sprintf(format, arguments...)}
	}
	r.changed = true
	return nil
}

// recordedKeyspace is a keyspace's row.
type recordedKeyspace struct {
	Definition json.RawMessage
	Digest     []byte
}

func (r *recorder) keyspaces(ctx context.Context) error {
	have, err := keyspaceRows(ctx, r.tx)
	if err != nil {
		return err
	}
	for _, want := range r.want.Keyspaces {
		row, there := have[want.Head.Name]
		delete(have, want.Head.Name)
		if err := r.keyspace(ctx, want, row, there); err != nil {
			return fmt.Errorf("keyspace %q: %w", want.Head.Name, err)
		}
	}
	for name := range have {
		if err := r.dropKeyspace(ctx, name); err != nil {
			return fmt.Errorf("keyspace %q: %w", name, err)
		}
	}
	return nil
}

func keyspaceRows(ctx context.Context, tx pgx.Tx) (map[string]recordedKeyspace, error) {
	rows, err := tx.Query(ctx, "SELECT name, definition, digest FROM cleave.keyspaces")
	if err != nil {
		return nil, err
	}
	all := map[string]recordedKeyspace{}
	var name string
	var row recordedKeyspace
	_, err = pgx.ForEachRow(rows, []any{&name, &row.Definition, &row.Digest}, func() error {
		all[name] = recordedKeyspace{bytes.Clone(row.Definition), bytes.Clone(row.Digest)}
		return nil
	})
	return all, err
}

// keyspace brings one keyspace's head, ranges and pins up to date. A digest alone may differ if another program made it.
func (r *recorder) keyspace(ctx context.Context, want Keyspace, have recordedKeyspace, there bool) error {
	definition, err := json.Marshal(want.Head)
	if err != nil {
		return err
	}
	digest := want.digest()
	sameHead := there && sameJSON[topology.KeyspaceHead](definition, have.Definition)
	sameRows := there && bytes.Equal(digest, have.Digest)
	if sameHead && sameRows {
		return nil
	}
	if !sameHead {
		err = r.differs("the definition of keyspace %q", want.Head.Name)
	}
	if err == nil && !sameRows {
		err = r.rows(ctx, want)
	}
	if err != nil {
		return err
	}
	r.changed = true
	_, err = r.tx.Exec(ctx, `
		INSERT INTO cleave.keyspaces (name, definition, digest) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, digest = excluded.digest`, want.Head.Name, definition, digest)
	return err
}

// sameJSON compares two texts by what this program understands of them: the server keeps fields in an order of its own.
func sameJSON[T any](a, b []byte) bool {
	var left, right T
	if json.Unmarshal(a, &left) != nil || json.Unmarshal(b, &right) != nil {
		return false
	}
	leftText, leftErr := json.Marshal(left)
	rightText, rightErr := json.Marshal(right)
	return leftErr == nil && rightErr == nil && bytes.Equal(leftText, rightText)
}

// rows adds and removes the ranges and pins that differ.
func (r *recorder) rows(ctx context.Context, want Keyspace) error {
	ranges, pins := make(map[rowID]Range, len(want.Ranges)), make(map[rowID]Pin, len(want.Pins))
	for _, one := range want.Ranges {
		ranges[one.id()] = one
	}
	for _, one := range want.Pins {
		pins[one.id()] = one
	}
	strayRanges, err := stray(ctx, r.tx, "ranges", want.Head.Name, ranges, scanRange)
	if err != nil {
		return err
	}
	strayPins, err := stray(ctx, r.tx, "pins", want.Head.Name, pins, scanPin)
	if err != nil {
		return err
	}
	if len(ranges)+len(pins)+len(strayRanges)+len(strayPins) == 0 {
		return nil
	}
	if err := r.differs("the ranges or pins of keyspace %q", want.Head.Name); err != nil {
		return err
	}
	if err := errors.Join(r.remove(ctx, "ranges", want.Head.Name, strayRanges), r.remove(ctx, "pins", want.Head.Name, strayPins)); err != nil {
		return err
	}
	return errors.Join(r.addRanges(ctx, want.Head.Name, ranges), r.addPins(ctx, want.Head.Name, pins))
}

// row is a range or pin.
type row interface{ id() rowID }

// stray takes out of wanted what the table has, and returns the identifiers of what it should not have. It goes by the
// content of rows and not by their identifiers, so that rows that somebody changed are mended.
func stray[R row](ctx context.Context, tx pgx.Tx, table, keyspace string, wanted map[rowID]R, scan func(pgx.Rows) ([]byte, R, error)) ([][]byte, error) {
	rows, err := tx.Query(ctx, selectRows(table)+" WHERE keyspace = $1", keyspace)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids [][]byte
	for rows.Next() {
		stored, content, err := scan(rows)
		if err != nil {
			return nil, err
		}
		id := content.id()
		if _, want := wanted[id]; want && bytes.Equal(stored, id[:]) {
			delete(wanted, id)
			continue
		}
		ids = append(ids, stored)
	}
	return ids, rows.Err()
}

// selectRows selects what scanRange, scanPin and scanGuardPin scan.
func selectRows(table string) string {
	switch table {
	case "ranges":
		return "SELECT keyspace, id, lower, upper, state, held FROM cleave.ranges"
	case "guard_pins":
		return "SELECT keyspace, id, hash, key, here FROM cleave.guard_pins"
	}
	return "SELECT keyspace, id, key, state, held FROM cleave.pins"
}

func scanRange(rows pgx.Rows) (id []byte, r Range, err error) {
	_, id, r, err = scanKeyspaceRange(rows)
	return id, r, err
}

func scanKeyspaceRange(rows pgx.Rows) (keyspace string, id []byte, r Range, err error) {
	var lower, upper []byte
	if err = rows.Scan(&keyspace, &id, &lower, &upper, &r.State, &r.Held); err != nil {
		return "", nil, Range{}, err
	}
	if r.Lower, err = parsePoint(lower); err == nil {
		r.Upper, err = parsePoint(upper)
	}
	return keyspace, id, r, err
}

func scanPin(rows pgx.Rows) (id []byte, p Pin, err error) {
	_, id, p, err = scanKeyspacePin(rows)
	return id, p, err
}

func scanKeyspacePin(rows pgx.Rows) (keyspace string, id []byte, p Pin, err error) {
	var point []byte
	if err = rows.Scan(&keyspace, &id, &point, &p.State, &p.Held); err != nil {
		return "", nil, Pin{}, err
	}
	p.Key, err = parsePoint(point)
	return keyspace, id, p, err
}

func (r *recorder) remove(ctx context.Context, table, keyspace string, ids [][]byte) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := r.tx.Exec(ctx, "DELETE FROM cleave."+table+" WHERE keyspace = $1 AND id = ANY ($2)", keyspace, ids)
	return err
}

func (r *recorder) addRanges(ctx context.Context, keyspace string, ranges map[rowID]Range) error {
	rows := make([][]any, 0, len(ranges))
	for id, one := range ranges {
		rows = append(rows, []any{keyspace, id[:], pointJSON(one.Lower), pointJSON(one.Upper), string(one.State), one.Held})
	}
	return r.add(ctx, "ranges", []string{"keyspace", "id", "lower", "upper", "state", "held"}, rows)
}

func (r *recorder) addPins(ctx context.Context, keyspace string, pins map[rowID]Pin) error {
	rows := make([][]any, 0, len(pins))
	for id, one := range pins {
		rows = append(rows, []any{keyspace, id[:], pointJSON(one.Key), string(one.State), one.Held})
	}
	return r.add(ctx, "pins", []string{"keyspace", "id", "key", "state", "held"}, rows)
}

func (r *recorder) add(ctx context.Context, table string, columns []string, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	_, err := r.tx.CopyFrom(ctx, pgx.Identifier{"cleave", table}, columns, pgx.CopyFromRows(rows))
	return err
}

func (r *recorder) dropKeyspace(ctx context.Context, name string) error {
	if err := r.differs("which keyspaces there are"); err != nil {
		return err
	}
	for _, query := range []string{
		"DELETE FROM cleave.ranges WHERE keyspace = $1", "DELETE FROM cleave.pins WHERE keyspace = $1", "DELETE FROM cleave.guard_pins WHERE keyspace = $1",
		"DELETE FROM cleave.keyspaces WHERE name = $1",
	} {
		if _, err := r.tx.Exec(ctx, query, name); err != nil {
			return err
		}
	}
	return nil
}

// tables brings the definitions of the cluster's tables up to date, and returns those that were there and are there no more,
// or are of another kind.
func (r *recorder) tables(ctx context.Context) (released []string, err error) {
	want := r.tableRows
	if want.err != nil || bytes.Equal(r.have.tablesDigest, want.digest) {
		return nil, want.err
	}
	if err := r.compareTables(ctx); err != nil {
		return nil, err
	}
	r.changed = true
	rows, err := r.tx.Query(ctx, "DELETE FROM cleave.tables AS t WHERE NOT EXISTS (SELECT FROM unnest($1::text[], $2::jsonb[]) AS want (name, definition) WHERE t.name = want.name AND t.definition = want.definition) RETURNING name",
		want.names, want.definitions)
	if err != nil {
		return nil, err
	}
	if released, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	if _, err := r.tx.Exec(ctx, "INSERT INTO cleave.tables (name, definition) SELECT * FROM unnest($1::text[], $2::jsonb[]) ON CONFLICT (name) DO NOTHING", want.names, want.definitions); err != nil {
		return nil, err
	}
	_, err = r.tx.Exec(ctx, "UPDATE cleave.identity SET tables_digest = $1", want.digest)
	return released, err
}

// compareTables looks for a fork: if the version is recorded already the tables must be the same, whatever their digest.
func (r *recorder) compareTables(ctx context.Context) error {
	if !r.sameVersion() {
		return nil
	}
	rows, err := r.tx.Query(ctx, "SELECT definition FROM cleave.tables")
	if err != nil {
		return err
	}
	have, err := recordedTables(rows)
	if err != nil {
		return err
	}
	if !slices.EqualFunc(have, r.want.Tables, equalJSON[topology.TableSpec]) {
		return r.differs("the tables' definitions")
	}
	return nil
}

// identity comes last: with it the version becomes this map's. The minimum version never goes back, whatever the map says.
func (r *recorder) identity(ctx context.Context) error {
	entry, err := json.Marshal(r.want.Entry)
	if err != nil {
		return err
	}
	members, err := json.Marshal(slices.Concat([]string{}, r.want.Members))
	if err != nil {
		return err
	}
	if r.have.Number != r.want.Number || !sameJSON[topology.ShardSpec](r.have.entry, entry) {
		err = r.differs("the shard's own entry")
	}
	if err == nil && (r.have.lastShardNumber != r.want.LastShardNumber || !sameJSON[[]string](r.have.members, members)) {
		err = r.differs("which shards there are")
	}
	if err != nil {
		return err
	}
	minimum := max(r.have.MinimumVersion, r.want.MinimumVersion)
	written, err := r.tx.Exec(ctx, `
		UPDATE cleave.identity
		SET number = $1, entry = $2, map_version = $3, minimum_version = $4, last_shard_number = $5, members = $6, recorded_at = now()
		WHERE (number, entry, map_version, minimum_version, last_shard_number, members) IS DISTINCT FROM ($1::int, $2::jsonb, $3::bigint, $4::bigint, $5::int, $6::jsonb)`,
		r.want.Number, entry, r.want.MapVersion, minimum, r.want.LastShardNumber, members)
	r.changed = r.changed || written.RowsAffected() > 0
	return err
}
