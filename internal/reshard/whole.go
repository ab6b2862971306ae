package reshard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// IsWhole says whether whole tables move, each of which is on one shard alone, by themselves or with their schemas.
func (m *Move) IsWhole() bool { return len(m.Whole)+len(m.Schemas) > 0 }

// isUntouched says whether the move has made nothing yet: on shards it does so only when it is stored which tables it moves.
func (m *Move) isUntouched() bool { return len(m.Published)+len(m.Schemas) == 0 }

// Needs says whether the move could neither go on nor be cancelled without a shard.
func (m *Move) Needs(shard string) bool {
	isOver := m.Phase.HasEnded() || m.Phase == Cancelling && m.isUntouched()
	return !isOver && (m.Source == shard || m.Target == shard)
}

// wholeTables are the names of the tables that move as a whole.
func (m *Move) wholeTables() []topology.TableName {
	var names []topology.TableName
	for _, text := range m.Whole {
		if name, err := topology.ParseTableName(text); err == nil { // which it was written from
			names = append(names, name)
		}
	}
	return names
}

// markedWhole is what the map says of the tables; false if that is not one thing. The tables of a schema are in the map only while it moves.
func (m *Move) markedWhole(now *topology.Map) (is mark, alike bool) {
	tables := m.tables(now)
	for i, t := range tables {
		one := mark{owner: t.Shard().Name(), held: t.IsHeld()}
		if i > 0 && one != is {
			return mark{}, false
		}
		is = one
	}
	for _, schema := range m.Schemas {
		place, keyspace := now.LocateSchema(schema)
		switch {
		case keyspace == nil || keyspace.Name() != m.Keyspace:
			return mark{}, false
		case len(tables) == 0:
			return plain(place.Shard.Name()), true
		case place.Shard.Name() != is.owner:
			return mark{}, false
		}
	}
	return is, len(tables) == len(m.Whole)
}

func (m *Move) changesWhole(next mark) []topology.Change {
	var changes []topology.Change
	for _, schema := range m.Schemas {
		changes = append(changes, topology.SetPins(m.Keyspace, topology.PinSpec{Key: topology.Point{schema}, Shard: next.owner}))
	}
	for _, name := range m.Whole {
		changes = append(changes, topology.SetTable(topology.TableSpec{Name: name, Kind: topology.Single, Shard: next.owner, Held: next.held}))
	}
	return changes
}

// checkWhole looks at both servers before anything is touched. What the target has of the names that are needed there is not the move's.
func (r *run) checkWhole(ctx context.Context, now *topology.Map) error {
	move := r.state()
	var definitions shard.Definitions
	err := r.on(ctx, move.Source, func(ctx context.Context, source *pgx.Conn) (err error) {
		var problems []string
		if definitions, problems, err = move.whatStays(ctx, source, now); err != nil {
			return err
		}
		if len(problems) > 0 {
			return stop("shard %q: %s", move.Source, strings.Join(problems, "; "))
		}
		return checkServer(ctx, source, move.Source, move.Whole, move.needs(true))
	})
	if err != nil {
		return err
	}
	return r.on(ctx, move.Target, func(ctx context.Context, target *pgx.Conn) error {
		if err := move.hasPlace(ctx, target, definitions); err != nil {
			return err
		}
		return checkServer(ctx, target, move.Target, nil, move.needs(false))
	})
}

// hasPlace stops the move if something on the target keeps the tables from being made there.
func (m *Move) hasPlace(ctx context.Context, target *pgx.Conn, definitions shard.Definitions) error {
	problems, err := definitions.CheckPlace(ctx, target, m.Schemas)
	if err == nil && len(problems) > 0 {
		err = stop("shard %q: %s; and resume the move", m.Target, strings.Join(problems, "; "))
	}
	return err
}

// prepareWhole guards the tables, long before anybody waits for that, and publishes their changes.
func (r *run) prepareWhole(ctx context.Context, now *topology.Map) error {
	move := r.state()
	err := r.on(ctx, move.Source, func(ctx context.Context, conn *pgx.Conn) error {
		if err := shard.OpenWhole(ctx, conn, r.id, shard.Lasting); err != nil {
			return err
		}
		return r.watchWhole(ctx, conn)
	})
	if err != nil {
		return err
	}
	if err := r.publication(ctx, now, move.Source, move.forward()); err != nil {
		return err
	}
	return r.enter(ctx, Copying)
}

// watchWhole puts the move's trigger on tables that lack it, one after the other, each in a transaction of its own: whoever has one of them locked and wants the other would wait for this, and this for them.
func (r *run) watchWhole(ctx context.Context, conn *pgx.Conn) error {
	lacking, err := shard.Unwatched(ctx, conn, r.id, r.state().wholeTables())
	for _, table := range lacking {
		if err == nil {
			err = r.inShortLock(ctx, conn, func(tx pgx.Tx) error { return shard.WatchWhole(ctx, tx, r.id, table) })
		}
		if err == nil {
			failpoint.Hit("move.watched")
		}
	}
	return err
}

// unwatchWhole takes it off again.
func (r *run) unwatchWhole(ctx context.Context, conn *pgx.Conn) error {
	watched, err := shard.Watched(ctx, conn, r.id)
	for _, table := range watched {
		if err == nil {
			err = r.inShortLock(ctx, conn, func(tx pgx.Tx) error { return shard.UnwatchWhole(ctx, tx, table) })
		}
	}
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return shard.ForgetWhole(ctx, tx, r.id) })
}

// inShortLock runs work in a transaction until it gets the locks that it needs without making others wait long.
func (r *run) inShortLock(ctx context.Context, conn *pgx.Conn, work func(pgx.Tx) error) error {
	return r.patiently(ctx, func() error { return pgx.BeginFunc(ctx, conn, work) })
}

// definitions are the tables as the owner has them.
func (r *run) definitions(ctx context.Context, on *pgx.Conn) (definitions shard.Definitions, err error) {
	for _, name := range r.state().wholeTables() {
		d, err := shard.Describe(ctx, on, name)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, d)
	}
	return definitions, nil
}

// makeWhole makes the tables on the target anew, without rows, and without what is better made when the rows are there.
func (r *run) makeWhole(ctx context.Context, now *topology.Map, side string) error {
	move := r.state()
	if err := r.dropPublication(ctx, side, move.back()); err != nil {
		return err
	}
	return r.withDefinitions(ctx, now, func(ctx context.Context, source, target *pgx.Conn, definitions shard.Definitions) error {
		if err := r.reopenWhole(ctx, source, move.Source, side); err != nil { // a standby that has become the server may have lost that a switch was taken back
			return err
		}
		if err := r.untie(ctx, target); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, target, func(tx pgx.Tx) error {
			if err := shard.DropWhole(ctx, tx, move.ID, move.wholeTables()); err != nil {
				return err
			}
			if err := definitions.Clear(ctx, tx, move.Schemas); err != nil {
				return err
			}
			if err := definitions.Create(ctx, tx, side); err != nil {
				return err
			}
			return shard.CarryBounds(ctx, source, tx, move.wholeTables())
		})
	})
}

// completeWhole makes indexes, constraints and triggers, and lets nobody change the copy. It goes on where it ended.
func (r *run) completeWhole(ctx context.Context, now *topology.Map) error {
	move := r.state()
	r.say(ctx, "indexes and constraints are made on shard "+move.Target, nil)
	return r.withDefinitions(ctx, now, func(ctx context.Context, _, target *pgx.Conn, definitions shard.Definitions) error {
		if err := shard.CloseWhole(ctx, target, r.id, move.Source, shard.Lasting); err != nil {
			return err
		}
		for _, d := range definitions {
			if err := d.CompleteWhole(ctx, target, r.id, func() { failpoint.Hit("move.complete.part") }); err != nil {
				return fmt.Errorf("on shard %q: %w", move.Target, err)
			}
		}
		return nil
	})
}

// tieWhole makes the foreign keys, when the changes since the copy have nearly all come over: until then rows of the copy may refer to some that a reference table does not have any more. It goes on where it ended.
func (r *run) tieWhole(ctx context.Context, now *topology.Map) error {
	move := r.state()
	r.say(ctx, "foreign keys are made on shard "+move.Target, nil)
	return r.withDefinitions(ctx, now, func(ctx context.Context, _, target *pgx.Conn, definitions shard.Definitions) error {
		var keys []shard.ForeignKey
		for _, d := range definitions {
			of, err := d.ForeignKeys(ctx, target)
			if err != nil {
				return err
			}
			keys = append(keys, of...)
		}
		for _, key := range keys {
			if key.IsMade {
				continue
			}
			if err := r.inShortLock(ctx, target, func(tx pgx.Tx) error { return key.Add(ctx, tx) }); err != nil {
				return fmt.Errorf("on shard %q: %w", move.Target, err)
			}
			failpoint.Hit("move.tied")
		}
		for _, key := range keys {
			if key.IsValid {
				continue
			}
			if err := key.Validate(ctx, target); err != nil { // a row that it refers to may be about to come, and one that refers to none about to go
				return fmt.Errorf("on shard %q: %w", move.Target, err)
			}
			failpoint.Hit("move.validated")
		}
		problems, err := differencesOn(ctx, target, definitions)
		if err != nil {
			return err
		}
		return stopUnlike(problems)
	})
}

// stopUnlike stops a move whose tables are not alike on both shards, or cannot be moved any more.
func stopUnlike(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return stop("%s; or cancel the move and start it again", strings.Join(problems, "; "))
}

// differencesOn says which tables are not the same on another shard.
func differencesOn(ctx context.Context, other *pgx.Conn, definitions shard.Definitions) (problems []string, err error) {
	for _, d := range definitions {
		differing, err := d.DiffersOn(ctx, other)
		if err != nil {
			return nil, err
		}
		if len(differing) > 0 {
			problems = append(problems, fmt.Sprintf("table %s is not alike on both shards: %s", d.Table, strings.Join(differing, ", ")))
		}
	}
	return problems, nil
}

// withDefinitions runs work with connections to both shards and the definitions that the source has.
func (r *run) withDefinitions(ctx context.Context, now *topology.Map, work func(ctx context.Context, source, target *pgx.Conn, definitions shard.Definitions) error) error {
	move := r.state()
	if is, alike := move.markedWhole(now); !alike || is.owner != move.Source {
		return fmt.Errorf("%w: the tables on shard %q may be the original", errOtherMap, move.Target)
	}
	return r.on(ctx, move.Source, func(ctx context.Context, source *pgx.Conn) error {
		definitions, err := r.definitions(ctx, source)
		if err != nil {
			return err
		}
		return r.on(ctx, move.Target, func(ctx context.Context, target *pgx.Conn) error {
			return work(ctx, source, target, definitions)
		})
	})
}

// untie drops the foreign keys of the tables to others, which somebody else uses.
func (r *run) untie(ctx context.Context, conn *pgx.Conn) error {
	ties, err := shard.Ties(ctx, conn, r.state().wholeTables())
	for _, sql := range ties {
		if err == nil {
			err = r.alterPatiently(ctx, conn, sql)
		}
	}
	return err
}

// wholeSteps are those of a switch of whole tables, in their order.
var wholeSteps = []switchStep{
	{"hold", (*switching).holdWhole},
	{"fence", (*switching).fenceWhole},
	{"close", (*switching).closeWhole},
	{"writers", (*switching).awaitAllWriters},
	{"numbers", (*switching).carryNumbers},
	{"pass", (*switching).mark}, // what it notes has to be true of the numbers too
	{"open", (*switching).openWhole},
}

// holdPrefix begins the names of the holds of a move.
func (m *Move) holdPrefix() string { return "move " + m.ID + " " }

// holdWhole has routers hold back statements on the tables, and waits until none is under way.
func (s *switching) holdWhole(ctx context.Context) error {
	config := s.r.mover.config
	if config.Router == "" {
		return stop("the process that leads is no router, and can hold nothing")
	}
	s.heldBy = s.move.holdPrefix() + rand.Text()
	state, err := config.Store.Hold(ctx, topology.Hold{ID: s.heldBy, Tables: s.tables, Holder: config.Router, Why: "move " + s.move.ID, Move: s.move.ID})
	if errors.Is(err, store.ErrOutcomeUnknown) { // it may come to be later
		config.Store.ReleaseInBackground(s.heldBy, 0)
	}
	if err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, s.move.Options.PauseLimit/2)
	defer cancel()
	late, err := config.Store.AwaitSchema(patience, state.Epoch)
	if err != nil {
		return err
	}
	routers, err := config.Store.Routers(ctx)
	if err != nil {
		return err
	}
	for _, router := range routers {
		switch isLate := slices.ContainsFunc(late, func(l store.Router) bool { return l.ID == router.ID }); {
		case !isLate && router.SchemaApplied >= state.Epoch:
			s.settled = append(s.settled, router.ID)
		case !s.deaf[router.ID]:
			return fmt.Errorf("router %s has not stopped using the tables", router.Name)
		}
	}
	return nil
}

// fenceWhole ends the backends of routers that do not hold the tables. Those that come back have read that the tables are held.
func (s *switching) fenceWhole(ctx context.Context) (err error) {
	if s.now, err = s.r.publish(ctx, s.holding(), []string{s.from, s.to}, s.before()); err != nil {
		return err
	}
	failpoint.Hit("move.switch.published")
	return s.fence(ctx)
}

// closeWhole has the owner refuse changes of the tables by anybody but replication, as the heir does. The disk is not waited for: the note of step numbers and the mark of step pass come later in the same WAL, and do wait; and an owner that crashes before that loses its connections with what it has lost, so that the next step fails.
func (s *switching) closeWhole(ctx context.Context) error {
	s.mayBeClosed = true
	if err := shard.CloseWhole(ctx, s.owner, s.move.ID, s.to, shard.AtOnce); err != nil {
		return err
	}
	return s.nothingIsNew(ctx)
}

// awaitAllWriters waits for whoever writes, of routers too: what a function writes they do not see.
func (s *switching) awaitAllWriters(ctx context.Context) error {
	return shard.AwaitWriters(ctx, s.owner, s.relations, nil)
}

// carryNumbers lets the heir's sequences go on where the owner's stand, and the heir be changed. What that does on the heir is durable with the note of step pass.
func (s *switching) carryNumbers(ctx context.Context) error {
	if err := shard.CarryNumbers(ctx, s.owner, s.heir, s.move.ID, s.numbers); err != nil {
		return err
	}
	failpoint.Hit("move.switch.carried")
	return shard.OpenWhole(ctx, s.heir, s.move.ID, shard.AtOnce)
}

// openWhole gives the tables to their new owner. That routers wait no more is nothing to fail for: the owner has changed.
func (s *switching) openWhole(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	if _, err := s.r.mover.config.Store.Release(ctx, s.heldBy, s.now.Version()); err != nil && !errors.Is(err, store.ErrNotHeld) {
		s.r.mover.config.Store.ReleaseInBackground(s.heldBy, s.now.Version())
	}
	return nil
}

// takeBackWhole lets the owner be changed again, and routers go on. They hold until the end of it, so the map can come first: when that says what it said before, the owner cannot change any more.
func (s *switching) takeBackWhole(ctx context.Context, now *topology.Map, is mark) error {
	if is == s.turned() {
		return s.r.releaseWhole(ctx, now)
	}
	if is.held {
		var err error
		if now, err = s.r.publish(ctx, s.before(), nil, s.holding()); err != nil {
			return err
		}
	}
	wasBegun := len(s.move.Published) > 0 && is.owner == s.from // or there is nothing on a server yet, or the map is somebody else's
	if wasBegun {
		err := s.r.on(ctx, s.from, func(ctx context.Context, owner *pgx.Conn) error { return s.r.reopenWhole(ctx, owner, s.from, s.to) })
		if err != nil {
			return err
		}
	}
	if err := s.r.releaseWhole(ctx, now); err != nil {
		return err
	}
	if wasBegun {
		s.closeHeir(ctx)
	}
	return nil
}

// reopenWhole lets the owner be changed again, and give numbers.
func (r *run) reopenWhole(ctx context.Context, owner *pgx.Conn, name, heir string) error {
	if err := shard.TakeBackSwitch(ctx, owner, r.id); err != nil {
		return err
	}
	given, isKnown, err := r.givenBy(ctx, owner, name, heir)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, owner, func(tx pgx.Tx) error {
		if err := shard.ResumeNumbers(ctx, tx, r.id, given, isKnown); err != nil {
			return err
		}
		return shard.OpenWhole(ctx, tx, r.id, shard.Lasting)
	})
}

// givenBy has the heir give no more numbers, and finds out which ones it has given, if the owner has stopped giving any. If the heir cannot be told now, that is not known.
func (r *run) givenBy(ctx context.Context, owner *pgx.Conn, name, heir string) (given shard.Standings, isKnown bool, err error) {
	if stopped, err := shard.HasStopped(ctx, owner, r.id); err != nil || !stopped {
		return nil, true, err
	}
	soon, cancel := context.WithTimeout(ctx, heirPatience)
	defer cancel()
	err = r.on(soon, heir, func(ctx context.Context, conn *pgx.Conn) (err error) {
		given, err = r.closeOn(ctx, conn, name)
		return err
	})
	if err != nil && !isOver(err) {
		r.mover.config.Logger.Warn("a shard did not say which numbers it has given in a switch that is taken back, so many are left out", "move", r.id, "shard", heir, "error", err)
		return nil, false, nil
	}
	return given, true, err
}

// closeOn has a shard refuse changes of the tables by anybody but replication, because another one owns them, and give no numbers. It returns where its sequences stood, if they ever gave any.
func (r *run) closeOn(ctx context.Context, conn *pgx.Conn, owner string) (shard.Standings, error) {
	if err := shard.CloseWhole(ctx, conn, r.id, owner, shard.Lasting); err != nil {
		return nil, err
	}
	sequences, err := shard.SequencesOf(ctx, conn, r.state().wholeTables())
	if err != nil {
		return nil, err
	}
	return shard.StopNumbers(ctx, conn, r.id, sequences)
}

// closeHeir has the heir refuse changes again, when nobody waits any more. If it cannot be told now, the next attempt does it.
func (s *switching) closeHeir(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, heirPatience)
	defer cancel()
	err := s.r.on(soon, s.to, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := s.r.closeOn(ctx, conn, s.from)
		return err
	})
	if err != nil {
		s.r.mover.config.Logger.Warn("a shard was not told that a switch is taken back", "move", s.move.ID, "shard", s.to, "error", err)
	}
}

// guardBoth sees that both shards have the move's triggers, and that the heir refuses changes and gives no numbers: an attempt that was taken back may have left it open. It reads what step numbers needs.
func (s *switching) guardBoth(ctx context.Context) (err error) {
	if s.numbers, err = shard.SequencesOf(ctx, s.owner, s.tables); err != nil {
		return err
	}
	if err = shard.RehearseNumbers(ctx, s.owner, s.numbers); err != nil {
		return err
	}
	if err = shard.OpenWhole(ctx, s.owner, s.move.ID, shard.Lasting); err != nil {
		return err
	}
	if _, err = s.r.closeOn(ctx, s.heir, s.from); err != nil {
		return err
	}
	for _, conn := range []*pgx.Conn{s.owner, s.heir} {
		if err = s.r.watchWhole(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// alikeFor is how long it is believed that tables are alike on both shards.
const alikeFor = 10 * time.Second

// lookAtWhole sees that nothing has come to the tables since they were made on the heir, as a definition may have that was under way when those began to be refused. What comes to their schemas later is counted when they are closed.
func (s *switching) lookAtWhole(ctx context.Context) (err error) {
	if s.inSchemas, err = s.sizesOfSchemas(ctx); err != nil {
		return err
	}
	if err := s.areAlike(ctx); err != nil {
		return err
	}
	s.alikeAt = time.Now()
	return nil
}

// areAlike stops the move if the tables cannot be moved as they are now, or are not alike on both shards.
func (s *switching) areAlike(ctx context.Context) error {
	definitions, problems, err := s.move.whatStays(ctx, s.owner, s.now)
	if err != nil {
		return err
	}
	differences, err := differencesOn(ctx, s.heir, definitions)
	if err != nil {
		return err
	}
	sequences, err := shard.OtherBounds(ctx, s.owner, s.heir, s.tables)
	if err != nil {
		return err
	}
	for _, name := range sequences {
		differences = append(differences, fmt.Sprintf("sequence %s does not count from where to where it does on the other shard", name))
	}
	return stopUnlike(append(problems, differences...))
}

// heldWhole are the holds of the move, whoever has begun them.
func (r *run) heldWhole(ctx context.Context) (holds []topology.Hold, err error) {
	if !r.state().IsWhole() {
		return nil, nil
	}
	state, err := r.mover.config.Store.Schema(ctx)
	for _, hold := range state.Holds {
		if strings.HasPrefix(hold.First(), r.state().holdPrefix()) {
			holds = append(holds, hold)
		}
	}
	return holds, err
}

// releaseWhole ends what the move holds.
func (r *run) releaseWhole(ctx context.Context, now *topology.Map) error {
	holds, err := r.heldWhole(ctx)
	if err != nil {
		return err
	}
	for _, hold := range holds {
		if _, err := r.mover.config.Store.Release(ctx, hold.ID, now.Version()); err != nil && !errors.Is(err, store.ErrNotHeld) {
			return err
		}
	}
	return nil
}

// cleanWhole drops the tables where they are not owned any more.
func (r *run) cleanWhole(ctx context.Context, now *topology.Map, is mark, alike bool) error {
	move := r.state()
	c := move.course()
	if !alike || is != plain(c.to) {
		return fmt.Errorf("%w: the tables on shard %q may be the original", errOtherMap, c.from)
	}
	if err := r.releaseWhole(ctx, now); err != nil {
		return err
	}
	if len(move.Schemas) > 0 {
		if err := r.nobodyCameLate(ctx, c.from); err != nil {
			return err
		}
	}
	if err := r.dropWhole(ctx, now, c.from); err != nil {
		return err
	}
	r.count(ctx, now)
	if err := r.forget(ctx, now); err != nil {
		return err
	}
	return r.depart(ctx)
}

// cancelWhole drops the tables on the target, if the move has made any there.
func (r *run) cancelWhole(ctx context.Context, now *topology.Map, is mark, alike bool) error {
	move := r.state()
	if len(move.Published) > 0 {
		if !alike || is.owner == move.Target {
			return fmt.Errorf("%w: the tables on shard %q may be the original", errOtherMap, move.Target)
		}
		if err := r.dropWhole(ctx, now, move.Target); err != nil {
			return err
		}
	}
	return r.forget(ctx, now)
}

// dropWhole drops the tables on a shard, with the types and functions that they needed of their schemas, but not on the home shard: by that one routers know what such names mean. The schemas themselves are on all shards.
func (r *run) dropWhole(ctx context.Context, now *topology.Map, side string) error {
	r.say(ctx, "the tables are dropped on shard "+side, nil)
	move := r.state()
	return r.on(ctx, side, func(ctx context.Context, conn *pgx.Conn) error {
		if err := r.untie(ctx, conn); err != nil {
			return err
		}
		var definitions shard.Definitions
		if len(move.Schemas) > 0 && side != now.Home().Name() {
			var err error
			if definitions, err = shard.DescribeThere(ctx, conn, move.wholeTables()); err != nil {
				return err
			}
		}
		err := r.inShortLock(ctx, conn, func(tx pgx.Tx) error {
			if err := shard.DropWhole(ctx, tx, r.id, move.wholeTables()); err != nil {
				return err
			}
			return definitions.Clear(ctx, tx, move.Schemas)
		})
		if err != nil {
			return err
		}
		failpoint.Hit("move.tables.dropped")
		return nil
	})
}
