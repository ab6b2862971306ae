package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
	"github.com/cleavedb/cleave/placement/key"
)

const (
	// pagesAtOnce is how many pages one statement reads: a snapshot lasts some milliseconds, and memory for what it finds is bounded.
	pagesAtOnce = 1024
	// straysAtOnce is how many strays are compared with their owners, or repaired, at a time.
	straysAtOnce = 200
	// mapTries is how often strays are looked at again because the map has changed meanwhile.
	mapTries = 10
)

// visit is the look at one table on one shard.
type visit struct {
	*verification
	shard *topology.Shard
	name  topology.TableName
	conn  *pgx.Conn
	// table and part are what was last used: by which map, and with which pins on the connection.
	table   *topology.Table
	strays  *shard.StrayTable
	part    shard.Part
	carried *shard.Presence
	// owners are connections to other shards, by their names.
	owners map[string]*pgx.Conn
	result api.VerifiedTable
}

// tableOn looks at a table on a shard.
func (v *verification) tableOn(ctx context.Context, t *topology.Table, s *topology.Shard) error {
	conn, err := v.connect(ctx, s)
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	w := &visit{verification: v, shard: s, name: t.Name(), conn: conn, owners: map[string]*pgx.Conn{}, result: api.VerifiedTable{Table: t.Name().String(), Shard: s.Name()}}
	defer w.close()
	if w.strays, err = shard.DescribeStrays(ctx, conn, t); err != nil {
		return err
	}
	if v.Repair {
		forget, err := prepareRepair(ctx, conn)
		if err != nil {
			return err
		}
		defer forget()
	}
	leaves, err := shard.Leaves(ctx, conn, t.Name())
	if err != nil {
		return err
	}
	for _, leaf := range leaves {
		if err := w.leaf(ctx, leaf); err != nil {
			return err
		}
	}
	v.finish(w.result)
	return nil
}

func (w *visit) close() {
	for _, conn := range w.owners {
		closeQuietly(conn)
	}
}

// leaf looks at all rows of a leaf. If they were put onto other pages meanwhile, some may not have been seen.
func (w *visit) leaf(ctx context.Context, leaf shard.Leaf) error {
	before, err := shard.FileOf(ctx, w.conn, leaf)
	if err != nil {
		return err
	}
	if err := w.pages(ctx, leaf); err != nil {
		return err
	}
	now, err := shard.FileOf(ctx, w.conn, leaf)
	if err == nil && now != before {
		err = shard.WrittenAnew(leaf)
	}
	return err
}

// pages goes through the pages. What is added while it does is read with the last ones.
func (w *visit) pages(ctx context.Context, leaf shard.Leaf) error {
	for from := int64(0); from == 0 || from < leaf.Pages; from += pagesAtOnce {
		to, pages := from+pagesAtOnce, int64(pagesAtOnce)
		if to >= leaf.Pages {
			to, pages = -1, leaf.Pages-from
		}
		began := time.Now()
		if err := w.judgeBy(ctx, w.latest()); err != nil {
			return err
		}
		rows, places, err := w.strays.Look(ctx, w.conn, leaf.Name, from, to, w.part)
		if err != nil {
			return err
		}
		w.add(rows)
		w.result.Rows += rows
		for some := range slices.Chunk(places, straysAtOnce) {
			if err := w.found(ctx, leaf.Name, some); err != nil {
				return err
			}
		}
		const pageSize = 8192
		Rest(ctx, time.Since(began), pages*pageSize, w.MaxRate)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// Rest lets others have a server for a while behind the reading of some bytes: a quarter of the time that it took, or as long as a limit asks for, if there is one.
func Rest(ctx context.Context, took time.Duration, bytes, maxRate int64) {
	pause := took / 4
	if maxRate > 0 {
		pause = max(pause, time.Duration(float64(bytes)/float64(maxRate)*float64(time.Second))-took)
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// errNoTable says that the map has the table no more, or not as it was.
var errNoTable = errors.New("it is not a sharded table of that keyspace any more")

// judgeBy has rows judged by a map from now on.
func (w *visit) judgeBy(ctx context.Context, m *topology.Map) error {
	t := m.Table(w.name.Schema, w.name.Name)
	s := m.Shard(w.shard.Name())
	if t == nil || t.Kind() != topology.Sharded || s == nil {
		return errNoTable
	}
	presence := w.presenceIn(t.Keyspace())
	w.table = t
	if w.carried == presence {
		return nil
	}
	w.part = presence.Part(s, t)
	if err := w.part.CarryPins(ctx, w.conn); err != nil {
		return err
	}
	w.carried = presence
	return nil
}

// stray is a row that was found, with what is known of it.
type stray struct {
	api.Stray
	place string
}

// found makes sure of strays, says what their owners have of them, and repairs them if that is wanted.
func (w *visit) found(ctx context.Context, leaf topology.TableName, places []string) error {
	strays, err := w.certain(ctx, leaf, places)
	if err != nil {
		return err
	}
	if w.Repair {
		if err := w.repair(ctx, leaf, strays); err != nil {
			return err
		}
	}
	listed := make([]api.Stray, len(strays))
	for i, s := range strays {
		listed[i] = s.Stray
	}
	w.list(&w.result, listed)
	return nil
}

// certain looks at strays by the map in force, and again if that has changed meanwhile. Rows that came or went with a move are none.
func (w *visit) certain(ctx context.Context, leaf topology.TableName, places []string) ([]*stray, error) {
	for range mapTries {
		m, err := w.current(ctx)
		if err != nil {
			return nil, err
		}
		if err := w.judgeBy(ctx, m); err != nil {
			return nil, err
		}
		strays, err := w.compared(ctx, m, leaf, places)
		if err != nil || len(strays) == 0 {
			return nil, err
		}
		now, err := w.current(ctx)
		if err != nil {
			return nil, err
		}
		if k := now.Keyspace(w.table.Keyspace().Name()); k != nil && k.Same(w.table.Keyspace()) {
			return strays, nil
		}
	}
	return nil, errors.New("the shard map changes too often for what was found to be certain")
}

// compared reads strays, and says what their owners have, all of it in one snapshot of the shard. Nothing is changed.
func (w *visit) compared(ctx context.Context, m *topology.Map, leaf topology.TableName, places []string) ([]*stray, error) {
	tx, err := w.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	defer rollback(tx)
	rows, err := w.strays.Read(ctx, tx, leaf, places, w.part, false)
	if err != nil {
		return nil, err
	}
	strays := make([]*stray, len(rows))
	for i, row := range rows {
		strays[i] = w.describe(row)
	}
	for owner, its := range byOwner(strays) {
		if owner == "" {
			continue
		}
		if err := w.ask(ctx, m.Shard(owner), leaf, its); err != nil {
			return nil, fmt.Errorf("see what shard %q has: %w", owner, err)
		}
	}
	return strays, nil
}

// describe says where a row belongs.
func (w *visit) describe(row shard.StrayRow) *stray {
	s := &stray{place: row.Place, Stray: api.Stray{Table: w.name.String(), Shard: w.shard.Name(), Key: []string{}, PrimaryKey: row.PrimaryKey}}
	texts := make([]string, len(row.Key))
	for i, value := range row.Key {
		if value == nil {
			s.Reason = "a part of its shard key is null, so no shard owns it"
			return s
		}
		texts[i] = *value
	}
	s.Key = texts
	owner, err := ownerOf(w.table.Keyspace(), texts)
	if err != nil {
		s.Reason = err.Error()
		return s
	}
	s.Owner = owner
	return s
}

// ownerOf is the name of the shard that owns a key.
func ownerOf(k *topology.Keyspace, texts []string) (string, error) {
	values := make([]key.Value, len(texts))
	for i, t := range shard.KeyFamilies(k.KeyTypes()) { // a table's columns may be of any of the family
		var err error
		if values[i], err = t.Parse(texts[i]); err != nil {
			return "", fmt.Errorf("its shard key cannot be read: %w", err)
		}
	}
	place, err := k.Locate(values...)
	if err != nil {
		return "", err
	}
	return place.Shard.Name(), nil
}

func byOwner(strays []*stray) map[string][]*stray {
	groups := map[string][]*stray{}
	for _, s := range strays {
		groups[s.Owner] = append(groups[s.Owner], s)
	}
	return groups
}

func placesOf(strays []*stray) []string {
	places := make([]string, len(strays))
	for i, s := range strays {
		places[i] = s.place
	}
	return places
}

// ask carries strays to their owner to be compared there, and leaves nothing behind.
func (w *visit) ask(ctx context.Context, owner *topology.Shard, leaf topology.TableName, strays []*stray) error {
	conn, err := w.ownerConn(ctx, owner)
	if err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer rollback(tx)
	there, err := w.carry(ctx, conn, tx, leaf, placesOf(strays))
	if err != nil {
		return err
	}
	judged, err := there.Judge(ctx)
	for _, s := range strays {
		s.AtOwner = string(judged[s.place])
	}
	return err
}

// carry brings rows along to their owner.
func (w *visit) carry(ctx context.Context, owner *pgx.Conn, tx pgx.Tx, leaf topology.TableName, places []string) (*shard.StrayVisit, error) {
	there, err := w.strays.Visit(ctx, tx)
	if err != nil {
		return nil, err
	}
	_, err = shard.Carry(ctx, w.conn, w.strays.ReadSQL(leaf, places), owner, there.WriteSQL(), nil)
	return there, err
}

// ownerConn is a connection to the owner of strays, which is kept.
func (w *visit) ownerConn(ctx context.Context, owner *topology.Shard) (*pgx.Conn, error) {
	if conn := w.owners[owner.Name()]; conn != nil && !conn.IsClosed() {
		return conn, nil
	}
	conn, err := w.connect(ctx, owner)
	if err == nil {
		w.owners[owner.Name()] = conn
	}
	return conn, err
}

// rollback ends a transaction that is not committed, whatever became of the context; if that fails, the connection is closed, which does the same.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}
