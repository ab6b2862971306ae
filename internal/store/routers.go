package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Router is the record of a live router. It is for visibility and for knowing whom to wait for, never for safety.
type Router struct {
	ID          string    `json:"id"`                     // its incarnation: random, another after every start; made up where empty
	Name        string    `json:"name"`                   // what people call it
	Address     string    `json:"address"`                // where it takes PostgreSQL clients
	HTTPAddress string    `json:"http_address,omitempty"` // where it answers HTTP
	Started     time.Time `json:"started"`
	Binary      string    `json:"binary"`  // the version of its program
	Applied     uint64    `json:"applied"` // the version of the map it works with; 0: none yet
	// SchemaApplied is the epoch of the schema under which all its statements run; 0: none yet.
	SchemaApplied uint64 `json:"schema_applied,omitempty"`
	// Settled is the version of the map such that no statement or open transaction of the router uses what has changed under an earlier one; 0: none yet.
	Settled uint64 `json:"settled,omitempty"`
}

// Registration keeps a router's record in place. Make it with [Store.Register]. Safe for concurrent use.
type Registration struct {
	store  *Store
	cancel context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // holds one token when the record is to be written again
	stir   chan struct{} // holds one token when it is to be written again soon, unless it is anyhow

	mu     sync.Mutex // guards what follows
	router Router
	lease  clientv3.LeaseID
	closed bool
	// traffic is the router's report, and trafficDue whether it has yet to be written, under this lease.
	traffic    json.RawMessage
	trafficDue bool
}

// Register stores the router's record and keeps it there until Close, also through a time without etcd: a lost lease is
// replaced. It returns when the record is stored; a router registers before it reads the map. The context limits the
// registering, not the registration.
func (s *Store) Register(ctx context.Context, router Router) (*Registration, error) {
	if router.ID == "" {
		router.ID = rand.Text()
	}
	if strings.Contains(router.ID, "/") {
		return nil, fmt.Errorf("register router: id %q has a slash", router.ID)
	}
	r := &Registration{store: s, router: router, done: make(chan struct{}), wake: make(chan struct{}, 1), stir: make(chan struct{}, 1)}
	if err := r.renew(ctx); err != nil {
		return nil, fmt.Errorf("register router: %w", err)
	}
	var life context.Context
	life, r.cancel = context.WithCancel(s.ctx)
	started := s.start(func() {
		defer close(r.done)
		r.run(life)
	})
	if !started {
		r.cancel()
		return nil, fmt.Errorf("register router: %w", ErrClosed)
	}
	return r, nil
}

// Router returns the record as it should be stored.
func (r *Registration) Router() Router {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.router
}

// appliedAfter is how long it takes until a record says which map has been applied. Most often the router has settled on it by then, and says both at once: somebody waits for that, in a switch, and would wait for two writes of etcd one behind the other.
const appliedAfter = 10 * time.Millisecond

// SetApplied tells everyone that the router works with this version of the map. It does not wait: the record follows in a moment,
// if etcd takes it. A lower version than before is ignored.
func (r *Registration) SetApplied(version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version > r.router.Applied {
		r.router.Applied = version
		poke(r.stir)
	}
}

// SetSchemaApplied tells everyone that no statement of the router runs under an earlier epoch of the schema any more, and none
// on what is held in this one. It does not wait: the record follows as soon as etcd takes it. A lower epoch than before is
// ignored.
func (r *Registration) SetSchemaApplied(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch > r.router.SchemaApplied {
		r.router.SchemaApplied = epoch
		poke(r.wake)
	}
}

// SetSettled tells everyone that nothing of the router goes by an earlier version of the map where that matters. It does not wait: the record follows as soon as
// etcd takes it. A lower version than before is ignored.
func (r *Registration) SetSettled(version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version > r.router.Settled {
		r.router.Settled = version
		poke(r.wake)
	}
}

func poke(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// Close removes the record at once. If etcd does not answer it says so, and the record expires by itself. It may be called
// twice.
func (r *Registration) Close() error {
	r.cancel()
	<-r.done
	r.mu.Lock()
	lease, closed := r.lease, r.closed
	r.closed = true
	r.mu.Unlock()
	if closed || r.store.isClosed() {
		return nil
	}
	if err := r.store.revoke(context.Background(), lease); err != nil {
		return fmt.Errorf("remove router: it vanishes in %v by itself: %w", r.store.config.LeaseTTL, err)
	}
	return nil
}

// run keeps the record alive, and puts it back whenever its lease is lost.
func (r *Registration) run(ctx context.Context) {
	for {
		r.keepAlive(ctx)
		if ctx.Err() != nil {
			return
		}
		r.store.config.Logger.Warn("router record: lost, registering again", "router", r.Router().ID)
		if !r.renewUntilDone(ctx) {
			return
		}
		r.store.config.Logger.Info("router record: registered again", "router", r.Router().ID)
	}
}

func (r *Registration) renewUntilDone(ctx context.Context) bool {
	for pause := firstPause; r.renew(ctx) != nil; pause = min(2*pause, longestPause) {
		if !sleep(ctx, jitter(pause)) {
			return false
		}
	}
	return true
}

// keepAlive renews the lease, and writes the record when it has changed, until the lease is lost or the context ends.
func (r *Registration) keepAlive(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	renewals, err := r.store.keepLease(ctx, r.leaseID())
	if err != nil {
		return
	}
	var due <-chan time.Time
	for {
		select {
		case _, open := <-renewals:
			if !open {
				return
			}
		case <-r.stir:
			if due == nil {
				due = time.After(appliedAfter)
			}
		case <-due:
			poke(r.wake)
		case <-r.wake:
			due = nil
			err := r.write(ctx, r.leaseID())
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return
			}
			if err != nil && sleep(ctx, jitter(firstPause)) {
				poke(r.wake)
			}
		}
	}
}

func (r *Registration) leaseID() clientv3.LeaseID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease
}

// renew takes a new lease and writes the record under it.
func (r *Registration) renew(ctx context.Context) error {
	lease, err := r.store.grant(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.lease, r.trafficDue = lease, r.traffic != nil
	r.mu.Unlock()
	return r.write(ctx, lease)
}

func (r *Registration) write(ctx context.Context, lease clientv3.LeaseID) error {
	router := r.Router()
	value, err := json.Marshal(router)
	if err != nil {
		return fmt.Errorf("encode router record: %w", err)
	}
	err = r.store.request(ctx, "write router record", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, r.store.keys.routers+router.ID, string(value), clientv3.WithLease(lease))
		return err
	})
	if err != nil {
		return err
	}
	return r.writeTraffic(ctx, lease)
}

// Routers lists the records of routers that are thought to be alive, in the order of their names.
func (s *Store) Routers(ctx context.Context) ([]Router, error) {
	const routersPerRead = 1000
	var routers []Router
	err := s.readPages(ctx, "list routers", s.keys.routers, 0, routersPerRead, func(_ string, kv keyValue) error {
		router, err := decodeRouter(kv)
		routers = append(routers, router)
		return err
	})
	sortRouters(routers)
	return routers, err
}

func decodeRouter(kv keyValue) (Router, error) {
	var router Router
	if err := json.Unmarshal(kv.Value, &router); err != nil {
		return Router{}, fmt.Errorf("read router record %s: %w", kv.Key, err)
	}
	return router, nil
}

func sortRouters(routers []Router) {
	slices.SortFunc(routers, func(a, b Router) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}
