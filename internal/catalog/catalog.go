package catalog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// Catalog knows what names stand for on the home shard.
type Catalog struct {
	config      Config
	connections *shard.Connections

	epoch atomic.Uint64 // written under mu
	used  atomic.Bool   // somebody asked since the last poll

	mu   sync.Mutex // guards what follows
	kept kept
	home string // the shard that it was read from
	// seen is what the catalogue looked like before anything that is kept was read, empty if nobody has looked.
	seen fingerprint

	cancel  context.CancelFunc
	polling sync.WaitGroup
}

// New returns a catalogue that knows nothing yet; it panics if the configuration makes no sense. It needs to be closed.
func New(config Config) *Catalog {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		panic("catalog: " + err.Error())
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Catalog{config: config, connections: config.Access.Keep(config.Connections, config.pause), cancel: cancel, kept: newKept(config.Names)}
	c.epoch.Store(1)
	c.polling.Go(func() { c.poll(ctx) })
	return c
}

// Close ends the polling, waits for those who are reading and closes the connections. Looking for what is not in memory
// fails from then on. It may be called twice.
func (c *Catalog) Close() {
	c.cancel()
	c.polling.Wait()
	c.connections.Close()
}

// Home returns the home shard, the one with the lowest number; nil while there is no map or it has no shards.
func Home(m *topology.Map) *topology.Shard {
	if m == nil {
		return nil
	}
	return m.Home()
}

// Epoch returns a number that grows with Forget and with every change that was noticed. Whoever keeps something under it
// reads it before calling Look, not after.
func (c *Catalog) Epoch() uint64 {
	c.use()
	return c.epoch.Load()
}

// use notes that somebody relies on the polling. Most find it noted already and write nothing.
func (c *Catalog) use() {
	if !c.used.Load() {
		c.used.Store(true)
	}
}

// Forget drops whatever is kept: something changed.
func (c *Catalog) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
}

func (c *Catalog) forget() {
	c.kept.clear()
	c.epoch.Add(1)
}

// Look returns what the names stand for. The search path is the one in effect: "$user" is replaced, and schemas that the
// role may not use are left out. An error that is the home shard's is an [UnavailableError].
func (c *Catalog) Look(ctx context.Context, relations []plan.RelationName, functions []plan.FunctionName, searchPath []string) (*plan.Known, error) {
	c.use()
	m := c.config.Map()
	wanted := want(relations, functions, searchPath)
	found, missing := c.recall(m, wanted)
	if !missing.empty() {
		if err := c.read(ctx, m, wanted, &found); err != nil {
			return nil, err
		}
	}
	return found.resolve(relations, functions, wanted.path, m), nil
}

// LookOn returns what the names stand for on a connection of the caller's, which sees what its own transaction has changed
// and nobody else does yet. Nothing is taken from memory or kept. The caller runs the question, which returns one row of one
// column, with pg_catalog as its search path; the arguments are in text format. An error of the caller's is returned as it is.
func (c *Catalog) LookOn(ask func(question string, arguments ...string) ([]byte, error), relations []plan.RelationName,
	functions []plan.FunctionName, searchPath []string,
) (*plan.Known, error) {
	wanted := want(relations, functions, searchPath)
	found := newAnswers()
	if !wanted.empty() {
		var err error
		if found, err = asker(ask).ask(wanted); err != nil {
			return nil, err
		}
	}
	return found.resolve(relations, functions, wanted.path, c.config.Map()), nil
}

// recall takes from memory what is there. What was read from another home shard is dropped first.
func (c *Catalog) recall(m *topology.Map, wanted names) (found answers, missing names) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if home := Home(m); home != nil && home.Name() != c.home {
		if c.home != "" {
			c.forget()
		}
		c.home, c.seen = home.Name(), ""
	}
	return c.kept.find(wanted)
}

// lookTime is how long the home shard may take to answer, so that nobody waits for one that has gone silent.
const lookTime = 10 * time.Second

// read asks the home shard for what is still missing when its turn has come.
func (c *Catalog) read(ctx context.Context, m *topology.Map, wanted names, found *answers) error {
	home := Home(m)
	if home == nil {
		return noHome()
	}
	limited, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	err := c.connections.Use(limited, home, func(conn *pgx.Conn) error {
		var missing names
		epoch := c.epoch.Load()
		*found, missing = c.recall(m, wanted) // somebody else may have read it while this one waited
		if missing.empty() {
			return nil
		}
		if err := c.lookFirst(limited, conn); err != nil {
			return err
		}
		read, err := on(limited, conn).ask(missing)
		if err != nil {
			return err
		}
		c.keep(epoch, read)
		found.add(read)
		return nil
	})
	if err != nil {
		return unavailable(ctx, home.Name(), err)
	}
	return nil
}

// lookFirst makes sure that the catalogue's fingerprint was taken before anything of it is read: only then is every later
// change a difference.
func (c *Catalog) lookFirst(ctx context.Context, conn *pgx.Conn) error {
	c.mu.Lock()
	seen := c.seen
	c.mu.Unlock()
	if seen != "" {
		return nil
	}
	now, _, err := takeFingerprint(ctx, conn)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == "" {
		c.seen = now
	}
	return nil
}

// keep puts into memory what was read, unless something changed since the reading began.
func (c *Catalog) keep(epoch uint64, read answers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch.Load() == epoch {
		c.kept.add(read)
	}
}

// want lists every schema and name that could be meant.
func want(relations []plan.RelationName, functions []plan.FunctionName, searchPath []string) names {
	w := names{path: effectivePath(searchPath)}
	for _, r := range relations {
		for _, schema := range w.schemas(r.Schema) {
			w.relations = append(w.relations, plan.RelationName{Schema: schema, Name: r.Name})
		}
	}
	for _, f := range functions {
		for _, schema := range w.schemas(f.Schema) {
			w.functions = append(w.functions, plan.FunctionName{Schema: schema, Name: f.Name, Kind: f.Kind})
		}
	}
	return w
}

const systemSchema = "pg_catalog"

// effectivePath puts PostgreSQL's own schema in front unless it is placed elsewhere.
func effectivePath(searchPath []string) []string {
	if slices.Contains(searchPath, systemSchema) {
		return searchPath
	}
	return append([]string{systemSchema}, searchPath...)
}
