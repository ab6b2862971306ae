package session

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"
)

// A switch changes who owns rows, and waits until no router has anything under way that goes by an older map. A session says which version it goes by after it has said what it is about to use,
// and whoever asks whether a map has settled looks in the opposite order, after that map was published. A transaction goes by the newest map until it has used a keyspace that changes; that one it
// keeps to its end, and is waited for.

// goBy makes a map the transaction's. One that is on a shard already may have snapshots there that are older.
func (s *session) goBy(view *mapView) {
	if was := s.tx.view; was != nil && (s.backend != nil || s.isSpread()) && !was.sameOwners(view) {
		s.tx.since = append(s.tx.since, was.m)
	}
	s.tx.view = view
	s.noteVersion()
}

// sameOwners says whether all that is on shards is on the same ones by another view.
func (v *mapView) sameOwners(other *mapView) bool {
	if v.m == other.m {
		return true
	}
	return v.tables == other.tables && !slices.ContainsFunc(v.m.Keyspaces(), func(k *topology.Keyspace) bool { return !k.SameOwners(other.m.Keyspace(k.Name())) })
}

// noteVersion says which version of the map the session goes by: that of its transaction, or the one that it has looked at. There may be a newer one by now.
func (s *session) noteVersion() {
	view := s.tx.view
	if view == nil {
		view = s.view
	}
	if view.m != nil {
		s.version.Store(view.m.Version())
	}
}

// takeMap has the transaction go by the newest map, if it may, and notes what a statement is about to use of it; one that needs the newest map and cannot have it is refused.
func (s *session) takeMap(st *plan.Statement) *pgerr.Error {
	switch {
	case s.tx.view == nil:
		s.goBy(s.view) // what it was planned with
	case s.tx.view.m == s.view.m || s.tx.view.m.Version() >= s.view.m.Version():
	default:
		if refused := s.takeNewer(st); refused != nil {
			return refused
		}
	}
	if len(s.tx.since) > 0 {
		if refused := s.newToSnapshot(st); refused != nil {
			return refused
		}
	}
	if s.tx.view.m.HasSharded() {
		s.used.addKeyspaces(s.wantedKeyspaces(st))
	}
	if refused := s.refuseHeld(st); refused != nil {
		return refused
	}
	if st.Schema { // of a table that is on one shard alone
		return s.moveInTheWay(st)
	}
	return nil
}

// refuseHeld refuses a table that is about to be on another shard. Routers that are heard of do not come here: they know that it is held, and wait.
func (s *session) refuseHeld(st *plan.Statement) *pgerr.Error {
	m := s.currentMap()
	if !m.HoldsTables() {
		return nil
	}
	return cmp.Or(heldIn(m, st), heldIn(m, s.whatRuns(st)))
}

// refuseHeld refuses a plan of such a table before any shard is asked about it: the one that had it may have dropped it.
func (p *planned) refuseHeld(m *topology.Map) *pgerr.Error {
	if m == nil || !m.HoldsTables() {
		return nil
	}
	for i := range p.plan.Statements {
		if refused := heldIn(m, &p.plan.Statements[i]); refused != nil {
			return refused
		}
	}
	return nil
}

// heldIn refuses a statement that uses a table which is held by a map, or may: a name that nobody knows may be that of one which was dropped where it was.
func heldIn(m *topology.Map, st *plan.Statement) *pgerr.Error {
	if st.Unseen {
		return pgerr.New(pgerr.CannotConnectNow, "a table is moving to another shard").WithDetail("The statement runs code that may use it.").WithHint("Try again.")
	}
	if st.Missing {
		return pgerr.New(pgerr.CannotConnectNow, "a table is moving to another shard").WithDetail("The statement names one that is not where it was.").WithHint("Try again.")
	}
	for _, name := range st.Uses {
		if t := m.Table(name.Schema, name.Name); t != nil && t.IsHeld() {
			return pgerr.New(pgerr.CannotConnectNow, "table %s is moving to another shard", t.Name()).WithHint("Try again.")
		}
	}
	return nil
}

// namesUnknown says whether a plan is of a name that nobody knows.
func (p *planned) namesUnknown() bool {
	for i := range p.plan.Statements { // each is large
		if p.plan.Statements[i].Missing {
			return true
		}
	}
	return false
}

// takeNewer goes by a newer map than the transaction did so far, if it has used nothing that changes.
func (s *session) takeNewer(st *plan.Statement) *pgerr.Error {
	used, older, newer := s.used.keyspaces, s.tx.view.m, s.view.m
	if (s.declaredAlike(s.view) || s.onlyNowMoved()) && !slices.ContainsFunc(used, func(name string) bool { return staysWith(older.Keyspace(name), newer.Keyspace(name)) }) {
		s.goBy(s.view)
		return nil
	}
	for _, name := range s.wantedKeyspaces(st) {
		if !slices.Contains(used, name) && !older.Keyspace(name).Same(newer.Keyspace(name)) {
			return errMoved(name)
		}
	}
	return s.whatMoved(st, older, newer, errTableMoved)
}

// whatMoved calls a function for the first table that a statement uses, or may use, and that is on another shard than it was.
func (s *session) whatMoved(st *plan.Statement, older, newer *topology.Map, refuse func(table string) *pgerr.Error) *pgerr.Error {
	for _, st := range []*plan.Statement{st, s.whatRuns(st)} {
		uses := st.Uses
		if st.Unseen {
			uses = slices.Concat(uses, tablesIn(older), tablesIn(newer))
		}
		for _, name := range uses {
			if was, is := specIn(older, name), specIn(newer, name); was.Kind == topology.Single && is.Kind == topology.Single && was.Shard != is.Shard {
				return refuse(topology.TableName(name).String())
			}
		}
	}
	return nil
}

// tablesIn are the names of the tables that a map has.
func tablesIn(m *topology.Map) (names []plan.RelationName) {
	for _, t := range m.Tables() {
		names = append(names, plan.RelationName(t.Name()))
	}
	return names
}

// declaredAlike says whether another view says the same of all tables that the transaction has used and is about to. What else has changed, such as that a move has begun, is none of its business.
func (s *session) declaredAlike(view *mapView) bool { return s.alikeSince(s.tx.view, view) }

func (s *session) alikeSince(by, view *mapView) bool {
	return by.tables == view.tables || s.usedAlike(by, view) && !slices.ContainsFunc(s.unitPlans, func(p *planned) bool { return !p.declaredAlike(by.m, view.m) })
}

// plannedAlike says the same of what the session is about to run, or looks at.
func (s *session) plannedAlike(by, view *mapView) bool {
	p := s.using.Load()
	return by.tables == view.tables || p == nil || p != anyTables && !p.namesUnknown() && p.declaredAlike(by.m, view.m)
}

// usedAlike says the same of the tables that the transaction has used before.
func (s *session) usedAlike(by, view *mapView) bool {
	return (!s.used.unseen || sameTables(by.m, view.m)) && !slices.ContainsFunc(s.used.tables, func(name plan.RelationName) bool { return !alike(by.m, view.m, name) })
}

// onlyNowMoved says whether tables that the one statement at hand is about to use are on another shard than by the map that the transaction goes by, and nothing else has changed for it. It was planned by the newer map.
func (s *session) onlyNowMoved() bool {
	return len(s.unitPlans) == 1 && len(s.unitPlans[0].plan.Statements) == 1 && s.unitPlans[0].onlyMoved(s.tx.view.m, s.view.m) && s.usedAlike(s.tx.view, s.view)
}

// staysWith says whether a transaction that has used a keyspace keeps it as it was. While some of it is held, only keys are used whose owner stays.
func staysWith(older, newer *topology.Keyspace) bool {
	return older != nil && !older.Holds() && !older.Same(newer)
}

// newToSnapshot refuses what has changed its owner since the transaction took its snapshots: those may be older than the rows' arrival, whatever it has used before that.
func (s *session) newToSnapshot(st *plan.Statement) *pgerr.Error {
	for _, name := range s.wantedKeyspaces(st) {
		if refused := s.movedSince(name); refused != nil {
			return refused
		}
	}
	for older, newer := range s.changesSince() {
		if refused := s.whatMoved(st, older, newer, func(table string) *pgerr.Error { return s.isFresh(errTableMoved(table)) }); refused != nil {
			return refused
		}
	}
	return nil
}

// movedSince refuses a keyspace of which something has changed its owner since the transaction took its snapshots.
func (s *session) movedSince(keyspace string) *pgerr.Error {
	for older, newer := range s.changesSince() {
		if !older.Keyspace(keyspace).SameOwners(newer.Keyspace(keyspace)) {
			return s.isFresh(errMoved(keyspace))
		}
	}
	return nil
}

// changesSince are the changes of owners, each with the map before and behind it, that the transaction has gone along with since it is on shards. What went away and came back has moved twice.
func (s *session) changesSince() iter.Seq2[*topology.Map, *topology.Map] {
	return func(yield func(older, newer *topology.Map) bool) {
		for i, older := range s.tx.since {
			newer := s.currentMap()
			if i+1 < len(s.tx.since) {
				newer = s.tx.since[i+1]
			}
			if !yield(older, newer) {
				return
			}
		}
	}
}

// The levels at which every statement has a snapshot of its own. To PostgreSQL both are one.
const (
	readCommitted   = "read committed"
	readUncommitted = "read uncommitted"
)

// mustStay says whether a transaction has used keys of a keyspace whose owner may change now: then it goes by the map that it has, or not at all, so that it is waited for.
func (s *session) mustStay(newer *topology.Keyspace) bool {
	if newer == nil || !newer.Holds() || !slices.Contains(s.used.keyspaces, newer.Name()) {
		return false
	}
	older := s.tx.view.m.Keyspace(newer.Name())
	return older != nil && !older.Holds() && (s.backend != nil || s.isSpread())
}

// keepsOthers refuses to go by a map in which another keyspace that the transaction has used is not as it was: what it did there goes by that one.
func (s *session) keepsOthers(m *topology.Map, awaited string) *pgerr.Error {
	for _, name := range s.used.keyspaces {
		if name != awaited && staysWith(s.tx.view.m.Keyspace(name), m.Keyspace(name)) {
			return errMoved(name)
		}
	}
	return nil
}

// isFresh refuses what has moved to a transaction that keeps the snapshots it has: one of them may be older than the last rows' arrival.
func (s *session) isFresh(moved *pgerr.Error) *pgerr.Error {
	if s.backend == nil && !s.isSpread() {
		return nil
	}
	level, refused := s.levelWithin()
	if refused == nil && level != readCommitted && level != readUncommitted {
		refused = moved
	}
	return refused
}

// levelWithin is the level of a transaction that is on some shard. If one of those has to be asked, it is asked once.
func (s *session) levelWithin() (string, *pgerr.Error) {
	if s.tx.level != "" {
		return s.tx.level, nil
	}
	if s.tx.begin != "" && s.saysIsolation() { // whoever is asked must have answered all else
		if refused := s.goOn(); refused != nil {
			return "", refused
		}
	}
	defer s.visitEnds(s.backend)
	if s.backend == nil {
		s.visitAny()
	}
	level, refused := s.isolation()
	if refused == nil {
		s.tx.level = level
	}
	return level, refused
}

// mayRunOn refuses a backend to a statement that was planned by an older map than its shard allows. Most often the pool has none of those: a router says hello with the map that it has, and whoever goes by an older one is waited for. But a router that has slept may have
// been given up, and have read the newer map since.
func (s *session) mayRunOn(backend *pool.Backend) *pgerr.Error {
	minimum := backend.State.(*serverState).greeting.MinimumVersion //nolint:forcetypeassert // OnLogin puts it there
	by := s.tx.view
	if by == nil { // it is not run yet, but looked at
		by = s.view
		if len(s.unitPlans) > 0 {
			by = s.unitView
		}
	}
	if by == nil || by.m == nil || by.m.Version() >= minimum {
		return nil
	}
	view := s.server.see()
	older, newest := by.m, view.m
	if newest == nil || s.waitsFor(newest) || !s.alikeSince(by, view) || !s.plannedAlike(by, view) {
		return tablesChanged
	}
	for _, name := range s.used.keyspaces {
		if !older.Keyspace(name).Same(newest.Keyspace(name)) {
			return errMoved(name)
		}
	}
	return nil
}

// waitsFor says whether what the session is about to run, or looks at, is held by a map: the one behind it may say anything.
func (s *session) waitsFor(m *topology.Map) bool {
	p := s.using.Load()
	return m.HoldsTables() && (p == anyTables || p != nil && p.refuseHeld(m) != nil || slices.ContainsFunc(s.unitPlans, func(p *planned) bool { return p.refuseHeld(m) != nil }))
}

func errMoved(keyspace string) *pgerr.Error {
	return pgerr.New(pgerr.SerializationFailure, "rows of keyspace %q were moved to another shard while the transaction was running", keyspace).
		WithDetail("What the transaction has seen or done so far goes by where rows were before.").WithHint("Begin it again.")
}

func errTableMoved(table string) *pgerr.Error {
	return pgerr.New(pgerr.SerializationFailure, "table %s was moved to another shard while the transaction was running", table).
		WithDetail("What the transaction sees goes by where the table was before.").WithHint("Begin it again.")
}

// wantedKeyspaces are those that a statement uses.
func (s *session) wantedKeyspaces(st *plan.Statement) []string {
	m := s.view.m
	if s.tx.view != nil && s.tx.view.m.Version() > m.Version() {
		m = s.tx.view.m
	}
	wants := addKeyspaces(s.wants[:0], m, st)
	if run := s.whatRuns(st); run != st {
		wants = addKeyspaces(wants, m, run)
	}
	s.wants = wants
	return wants
}

// addKeyspaces adds the keyspaces that a statement uses. One that foreign keys carry on may use any.
func addKeyspaces(names []string, m *topology.Map, st *plan.Statement) []string {
	for _, name := range st.Uses {
		if t := m.Table(name.Schema, name.Name); t != nil && t.Kind() == topology.Sharded && !slices.Contains(names, t.Keyspace().Name()) {
			names = append(names, t.Keyspace().Name())
		}
	}
	if st.Cascades {
		for _, k := range m.Keyspaces() {
			if k.Strategy() != topology.BySchema && !slices.Contains(names, k.Name()) {
				names = append(names, k.Name())
			}
		}
	}
	return names
}

func (p *planned) addKeyspaces(names []string, m *topology.Map) []string {
	for i := range p.plan.Statements {
		names = addKeyspaces(names, m, &p.plan.Statements[i])
	}
	return names
}

// awaitKeyspace waits until nothing of a keyspace is held, and all shards know that they do not have what they do not get.
func (s *session) awaitKeyspace(route *plan.Route) (*topology.Keyspace, *pgerr.Error) {
	refused := s.awaitOwner(route, func(k *topology.Keyspace) bool { return !k.Holds() && !k.Closes() })
	return s.currentMap().Keyspace(route.Keyspace), refused
}

// awaitUnbound waits as [session.awaitKeyspace] does for all keyspaces of a statement of which nothing says which rows it uses where it runs: on the shard that the client names, or wherever foreign keys carry it on.
func (s *session) awaitUnbound(st *plan.Statement) *pgerr.Error {
	for {
		names := s.wantedKeyspaces(st)
		moving := slices.IndexFunc(names, func(name string) bool {
			k := s.currentMap().Keyspace(name)
			return k != nil && (k.Holds() || k.Closes())
		})
		if moving < 0 {
			return nil
		}
		if _, refused := s.awaitKeyspace(&plan.Route{Keyspace: names[moving], Table: "keyspace " + names[moving]}); refused != nil {
			return refused
		}
	}
}

// settle tells which version of the map this router goes by, as soon as nothing uses what has changed under an older one.
func (s *Server) settle(ctx context.Context) {
	var settled *topology.Map
	for ctx.Err() == nil {
		changed := s.config.MapChanged()
		if m := s.see().m; m != nil && m != settled && s.awaitSettled(ctx, settled, m, changed) {
			settled = m
			s.config.Settled(m.Version())
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// awaitSettled waits until no session uses anything that differs between two maps under the older one. It gives up when there is another map.
func (s *Server) awaitSettled(ctx context.Context, before, m *topology.Map, changed <-chan struct{}) bool {
	differs := differingKeyspaces(before, m)
	began := time.Now()
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if s.isSettled(m, differs) {
			return true
		}
		if time.Since(began) > settlesSoon { // a long transaction, most likely, and each look takes its time
			pause = 10 * time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-changed:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// settlesSoon is how long it is looked at again and again whether a map has settled: in a switch others wait for it.
const settlesSoon = 200 * time.Millisecond

func differingKeyspaces(before, m *topology.Map) []string {
	var names []string
	for _, k := range m.Keyspaces() {
		if before == nil || !k.Same(before.Keyspace(k.Name())) {
			names = append(names, k.Name())
		}
	}
	return names
}

func (s *Server) isSettled(m *topology.Map, keyspaces []string) bool {
	if len(keyspaces) == 0 {
		return true
	}
	concerns := func(name string) bool { return slices.Contains(keyspaces, name) }
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.sessions {
		if session.isBehind(m, concerns) {
			return false
		}
	}
	s.forgetLeft()
	return !slices.ContainsFunc(s.left, func(l leftBehind) bool { return l.session.isBehind(m, concerns) })
}

// isBehind says whether the session uses a keyspace of a kind under an older map. Anybody may ask.
func (s *session) isBehind(m *topology.Map, concerns func(keyspace string) bool) bool {
	p := s.using.Load() // first: the version is said after it
	uses := p == anyTables || p != nil && slices.ContainsFunc(p.addKeyspaces(nil, m), concerns) || s.used.hasKeyspace(concerns)
	return uses && s.version.Load() < m.Version()
}

// leftBehind is a session that has ended in the middle of something, which a server may still commit: it counts until that has hung up.
type leftBehind struct {
	session *session
	retired uint64 // backends, when it had given back its own
}

// noteLeft has a session that has ended count for a while, if it was in the middle of something.
func (s *Server) noteLeft(session *session) {
	if session.using.Load() == nil && !session.used.hasKeyspace(func(string) bool { return true }) {
		return
	}
	retired := s.config.Pools.Retired()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLeft()
	s.left = append(s.left, leftBehind{session, retired})
}

// forgetLeft forgets those whose servers have hung up. The caller has the lock.
func (s *Server) forgetLeft() {
	s.left = slices.DeleteFunc(s.left, func(l leftBehind) bool { return s.config.Pools.HaveParted(l.retired) })
}

// addKeyspaces notes that a statement goes where the map says of them.
func (u *usedTables) addKeyspaces(names []string) {
	for _, name := range names {
		if !slices.Contains(u.keyspaces, name) {
			u.mu.Lock()
			u.keyspaces = append(u.keyspaces, name)
			u.mu.Unlock()
		}
	}
}

// forgetKeyspaces: nothing goes by them any more.
func (u *usedTables) forgetKeyspaces() {
	if len(u.keyspaces) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.keyspaces = u.keyspaces[:0]
}

// hasKeyspace says whether there is one of a kind. Anybody may ask.
func (u *usedTables) hasKeyspace(concerns func(string) bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.ContainsFunc(u.keyspaces, concerns)
}
