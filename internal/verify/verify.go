package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// Config says what a verification works with. All is required.
type Config struct {
	// Newest reads the map in force, and Known is the last that this process has seen, which costs nothing.
	Newest func(context.Context) (*topology.Map, error)
	Known  func() *topology.Map
	// Schema reads which tables are being changed or moved.
	Schema func(context.Context) (topology.SchemaState, error)
	// Access says how to log in to shards.
	Access shard.Access
}

// Request says what to look at.
type Request struct {
	// Tables are sharded ones, and Shards those on which they are looked at; none: all.
	Tables []*topology.Table
	Shards []string
	// Repair mends what is found. Prefer is which row counts if both differ: api.PreferOwner or api.PreferStray. Default: nothing is done about those.
	Repair bool
	Prefer string
	// Limit is how many strays are listed.
	Limit int
	// MaxRate is how many bytes are read in a second on each shard. 0: as many as go.
	MaxRate int64
	// Progress hears from time to time how far it is. Default: nobody does. It is never called twice at once.
	Progress func(api.VerifyProgress)
}

// shardsAtOnce is how many shards are read at the same time.
const shardsAtOnce = 4

// verification is one that runs.
type verification struct {
	Config
	Request

	mu sync.Mutex // guards what follows
	// found is the answer so far.
	found api.Verified
	// presence of keyspaces by the newest map that it was worked out for.
	presence map[string]knownPresence
	last     *topology.Map // the newest that was read
	doing    string
	rows     int64
	told     time.Time
}

type knownPresence struct {
	keyspace *topology.Keyspace
	presence *shard.Presence
}

// Run looks at tables one after the other, those first that others refer to, each on some shards at once. Shards that cannot be looked at are findings.
func Run(ctx context.Context, config Config, request Request) (api.Verified, error) {
	v := &verification{Config: config, Request: request, presence: map[string]knownPresence{}}
	v.found = api.Verified{Tables: []api.VerifiedTable{}, Strays: []api.Stray{}}
	m, err := v.current(ctx)
	if err != nil {
		return v.found, err
	}
	var shards []*topology.Shard
	for s := range m.Shards() {
		if len(request.Shards) == 0 || slices.Contains(request.Shards, s.Name()) {
			shards = append(shards, s)
		}
	}
	tables := request.Tables
	if request.Repair && len(tables) > 1 {
		if tables, err = v.ordered(ctx, m.Home(), tables); err != nil {
			return v.found, err
		}
	}
	for i, t := range tables {
		v.say(fmt.Sprintf("table %s, %d of %d", t.Name(), i+1, len(tables)))
		v.table(ctx, t, shards)
		if ctx.Err() != nil {
			return v.found, ctx.Err()
		}
	}
	v.sort()
	return v.found, nil
}

// ordered puts tables behind those that they refer to, as far as that goes: a row is brought only to where the rows are that it refers to.
func (v *verification) ordered(ctx context.Context, home *topology.Shard, tables []*topology.Table) ([]*topology.Table, error) {
	conn, err := v.connect(ctx, home)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(conn)
	refers := map[topology.TableName][]topology.TableName{}
	for _, t := range tables {
		if described, err := shard.DescribeStrays(ctx, conn, t); err == nil { // if it is not there, that is found out on every shard
			refers[t.Name()] = described.RefersTo()
		}
	}
	var order []*topology.Table
	seen := map[topology.TableName]bool{}
	var visit func(*topology.Table)
	visit = func(t *topology.Table) {
		if seen[t.Name()] {
			return
		}
		seen[t.Name()] = true
		for _, other := range tables {
			if slices.Contains(refers[t.Name()], other.Name()) {
				visit(other)
			}
		}
		order = append(order, t)
	}
	for _, t := range tables {
		visit(t)
	}
	return order, nil
}

// table looks at one table on all shards.
func (v *verification) table(ctx context.Context, t *topology.Table, shards []*topology.Shard) {
	places := make(chan struct{}, shardsAtOnce)
	var working sync.WaitGroup
	for _, s := range shards {
		places <- struct{}{}
		working.Go(func() {
			defer func() { <-places }()
			if err := v.tableOn(ctx, t, s); err != nil && ctx.Err() == nil {
				v.note(api.Finding{
					Severity: api.Warning, Code: "not_verified", Shard: s.Name(), Message: fmt.Sprintf("table %s was not looked at, or not to its end, on shard %s: %v", t.Name(), s.Name(), err),
					Hint: "Mend that, and verify it again with --table and --shard.",
				})
			}
		})
	}
	working.Wait()
}

// connect logs in to a shard, for work that may take long.
func (v *verification) connect(ctx context.Context, s *topology.Shard) (*pgx.Conn, error) {
	conn, err := v.Access.Connect(ctx, s.Spec())
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, shard.CompareSettings+"; SET application_name = 'cleave/verify'"); err != nil {
		closeQuietly(conn)
		return nil, err
	}
	return conn, nil
}

func closeQuietly(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing is lost with it
}

// presenceIn is which rows of a keyspace may be where by a map, worked out once for each keyspace that is different.
func (v *verification) presenceIn(k *topology.Keyspace) *shard.Presence {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := v.presence[k.Name()]
	if known.presence == nil || !known.keyspace.Same(k) {
		known = knownPresence{k, shard.PresenceOf(k)}
		v.presence[k.Name()] = known
	}
	return known.presence
}

func (v *verification) note(f api.Finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found.Findings = append(v.found.Findings, f)
}

// say tells what is being done.
func (v *verification) say(doing string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doing, v.told = doing, time.Time{}
	v.tell()
}

// tellEvery is how often somebody hears how far it is.
const tellEvery = 500 * time.Millisecond

// tell must be called with the lock.
func (v *verification) tell() {
	if v.Progress == nil || time.Since(v.told) < tellEvery {
		return
	}
	v.told = time.Now()
	v.Progress(api.VerifyProgress{Doing: v.doing, Rows: v.rows, Strays: v.found.StraysFound})
}

// add counts rows that were looked at.
func (v *verification) add(rows int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows += rows
	v.tell()
}

// list counts strays of a table, and lists the first.
func (v *verification) list(of *api.VerifiedTable, strays []api.Stray) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range strays {
		of.Strays++
		v.found.StraysFound++
		if s.Repaired != "" {
			of.Repaired++
			v.found.StraysRepaired++
		}
		if len(v.found.Strays) < v.Limit {
			v.found.Strays = append(v.found.Strays, s)
		}
	}
	v.tell()
}

// finish notes what was found of a table on a shard.
func (v *verification) finish(of api.VerifiedTable) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.found.Tables = append(v.found.Tables, of)
}

// current reads the map in force.
func (v *verification) current(ctx context.Context) (*topology.Map, error) {
	m, err := v.Newest(ctx)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil || m.Version() > v.last.Version() {
		v.last, v.found.MapVersion = m, m.Version()
	}
	return m, nil
}

// latest is the newest map that can be had without asking.
func (v *verification) latest() *topology.Map {
	known := v.Known()
	v.mu.Lock()
	defer v.mu.Unlock()
	if known != nil && known.Version() > v.last.Version() {
		return known
	}
	return v.last
}

// sort puts what shards were found to have side by side into an order.
func (v *verification) sort() {
	slices.SortStableFunc(v.found.Tables, func(a, b api.VerifiedTable) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Shard, b.Shard))
	})
	slices.SortStableFunc(v.found.Strays, func(a, b api.Stray) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Shard, b.Shard), slices.Compare(a.Key, b.Key), slices.Compare(a.PrimaryKey, b.PrimaryKey))
	})
}
