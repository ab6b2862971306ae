package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/failpoint"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// settling has the last word on copies that seemed to differ: it compares them while nobody writes, and repairs them. All routers are kept from the
// tables, and they are locked on the home shard and where they may differ, against transactions that are in doubt and people who write past the routers. What
// it changes is one transaction on each shard. DESIGN.md has the rest, and its crash table.
type settling struct {
	// declaration lends its hold, its connections, and the names by which whoever finishes for a dead process finds them.
	declaration
	settleHow
	// suspects are the names of shards, by table.
	suspects map[topology.TableName][]string
	state    string // of the home shard's server
	// compared are the tables in the order of their names, with what the home shard has.
	compared []comparedTable
	// doubts say why the home shard's rows must not be taken for right, by table.
	doubts map[topology.TableName]string
	// unknown says why copies of a shard are not compared, by its name.
	unknown map[string]error
	// results are what became known, by the shard's name and in the order of compared.
	results map[string][]copyResult
}

// settleHow says whether to repair, even if the home shard may be wrong, and how long to wait for routers that use the tables.
type settleHow struct {
	repair, force bool
	patience      time.Duration
}

// comparedTable is a table, how it is compared, what the home shard has, and what differs, by the shard's name.
type comparedTable struct {
	comparison *shard.Comparison
	home       *shard.Digest
	differing  map[string][]int32
}

// settleTimeout bounds for how long routers may be kept from tables.
const settleTimeout = 15 * time.Minute

// settleSteps in their order.
var settleSteps = []struct {
	name string
	run  func(*settling, context.Context) error
}{
	{"connect", (*settling).connectSuspects},
	{"hold the tables", (*settling).holdTables},
	{"lock the tables", (*settling).lockTables},
	{"compare them", (*settling).compareHeld},
	{"see who is right", (*settling).judge},
	{"repair them", (*settling).repairAll},
	{"commit", (*settling).commitRepairs},
	{"note it", (*settling).note},
}

// settleCopies compares copies for certain, and repairs those that differ. An error says that nothing is known that was not before.
func (c *Cluster) settleCopies(ctx context.Context, looks []tableLook, how settleHow) ([]copyResult, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	s := c.newSettling(looks, how)
	defer s.end(ctx)
	for _, step := range settleSteps {
		if err := step.run(s, ctx); err != nil {
			return nil, s.explained(err, step.name)
		}
	}
	return s.all(), nil
}

func (c *Cluster) newSettling(looks []tableLook, how settleHow) *settling {
	s := &settling{
		declaration: declaration{cluster: c, id: rand.Text(), patience: how.patience}, settleHow: how,
		suspects: map[topology.TableName][]string{}, unknown: map[string]error{}, results: map[string][]copyResult{},
	}
	for _, look := range looks {
		s.tables = append(s.tables, look.table)
		s.suspects[look.table] = look.suspects
	}
	slices.SortFunc(s.tables, compareTables)
	s.why = "compare the copies of " + s.names()
	return s
}

// end lets routers go on, whatever came of it.
func (s *settling) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	s.close() // what is not committed is rolled back, before anybody writes again
	s.giveUpHold(ctx)
}

// all are the results of all shards.
func (s *settling) all() []copyResult {
	var all []copyResult
	for _, m := range s.others {
		all = append(all, s.results[m.spec.Name]...)
	}
	return all
}

func (s *settling) connectSuspects(ctx context.Context) (err error) {
	if s.m, err = s.cluster.config.Store.Map(ctx); err != nil {
		return err
	}
	if s.m.Home() == nil {
		return pgerr.New(pgerr.ObjectNotInPrerequisite, "the cluster has no shards")
	}
	s.home = &member{spec: s.m.Home().Spec()}
	for _, spec := range specsOf(s.m) {
		if slices.ContainsFunc(s.tables, func(t topology.TableName) bool { return slices.Contains(s.suspects[t], spec.Name) }) {
			s.others = append(s.others, &member{spec: spec})
		}
	}
	return s.eachSuspect(append([]*member{s.home}, s.others...), func(m *member) (err error) {
		if m.conn, err = s.cluster.connectToCompare(ctx, m.spec); err != nil {
			return err
		}
		return s.nameConnection(ctx, m.conn)
	})
}

// eachSuspect runs work for members side by side. An error of the home shard ends all, one of another that member's part.
func (s *settling) eachSuspect(members []*member, work func(*member) error) error {
	failures := make([]error, len(members))
	_ = eachMember(members, func(m *member) error {
		if s.unknown[m.spec.Name] == nil {
			failures[slices.Index(members, m)] = work(m)
		}
		return nil
	})
	for i, err := range failures {
		switch {
		case err == nil:
		case members[i] == s.home:
			return fmt.Errorf("shard %q: %w", s.home.spec.Name, err)
		default:
			s.unknown[members[i].spec.Name] = err
		}
	}
	return nil
}

// holdTables keeps routers from the tables. What the tables are cannot change from now on.
func (s *settling) holdTables(ctx context.Context) error {
	if err := s.hold(ctx); err != nil {
		return err
	}
	failpoint.Hit("copies.held")
	m, err := s.cluster.config.Store.Map(ctx)
	if err != nil {
		return err
	}
	_, err = referencesOf(m, s.tables)
	return err
}

// lockTables waits on the home shard first, as everybody does who writes there and elsewhere.
func (s *settling) lockTables(ctx context.Context) (err error) {
	if s.home.tx, err = s.home.conn.Begin(ctx); err != nil {
		return err
	}
	if err := s.lockOn(ctx, s.home); err != nil {
		return err
	}
	return s.eachSuspect(s.others, func(m *member) (err error) {
		if s.repair {
			err = m.begin(ctx)
		} else {
			m.tx, err = m.conn.Begin(ctx)
		}
		if err != nil {
			return err
		}
		return s.lockOn(ctx, m)
	})
}

func (s *settling) lockOn(ctx context.Context, m *member) error {
	for _, table := range s.tables {
		if m != s.home && !slices.Contains(s.suspects[table], m.spec.Name) {
			continue
		}
		if err := shard.LockAgainstWrites(ctx, m.tx, table); err != nil {
			return err
		}
	}
	return nil
}

// compareHeld is certain: nobody has written since the tables were locked.
func (s *settling) compareHeld(ctx context.Context) (err error) {
	if s.state, err = shard.ServerState(ctx, s.home.tx); err != nil {
		return err
	}
	for _, table := range s.tables {
		definition, err := shard.Describe(ctx, s.home.tx, table)
		if err != nil {
			return err
		}
		comparison, err := definition.Compared(ctx, s.home.tx)
		if err != nil {
			return err
		}
		members := slices.DeleteFunc(slices.Clone(s.others), func(m *member) bool {
			return s.unknown[m.spec.Name] != nil || !slices.Contains(s.suspects[table], m.spec.Name)
		})
		digests, failures := digestAll(ctx, comparison, append([]*member{s.home}, members...))
		t := comparedTable{comparison: comparison, home: digests[s.home.spec.Name], differing: map[string][]int32{}}
		if err := s.eachSuspect(append([]*member{s.home}, members...), func(m *member) error { return failures[m.spec.Name] }); err != nil {
			return err
		}
		for _, m := range members {
			if s.unknown[m.spec.Name] == nil {
				t.differing[m.spec.Name] = t.home.Differing(digests[m.spec.Name])
			}
		}
		s.compared = append(s.compared, t)
	}
	return nil
}

// judge sees whether the home shard's rows may be taken for right, if there is something to repair.
func (s *settling) judge(ctx context.Context) error {
	if !s.repair || s.force {
		return nil
	}
	var tables []topology.TableName
	for _, t := range s.compared {
		for _, buckets := range t.differing {
			if len(buckets) > 0 && !slices.Contains(tables, t.comparison.Definition.Table) {
				tables = append(tables, t.comparison.Definition.Table)
			}
		}
	}
	s.doubts = s.cluster.doubts(ctx, s.m, tables, s.state)
	return nil
}

// repairAll goes from shard to shard, because the home shard's transaction is one. Without a repair it only counts.
func (s *settling) repairAll(ctx context.Context) error {
	for _, m := range s.others {
		if s.unknown[m.spec.Name] != nil {
			continue
		}
		if err := s.repairOn(ctx, m); err != nil {
			if ctx.Err() != nil || s.home.conn.IsClosed() {
				return err
			}
			s.unknown[m.spec.Name] = err
			m.rollback(ctx)
		}
	}
	return nil
}

// repairOn finds which rows differ on a shard, and mends them in its transaction.
func (s *settling) repairOn(ctx context.Context, m *member) error {
	var repairs []*shard.CopyRepair
	var at []int // which result each is about
	results := []copyResult{}
	for i, t := range s.compared {
		buckets, suspected := t.differing[m.spec.Name]
		if !suspected {
			continue
		}
		result := copyResult{table: t.comparison.Definition.Table, shard: m.spec.Name, home: s.state, difference: &shard.Difference{}}
		if len(buckets) > 0 {
			repair, err := s.bring(ctx, m, i, buckets)
			if err != nil {
				return err
			}
			*result.difference = repair.Difference()
			repairs, at = append(repairs, repair), append(at, len(results))
		}
		results = append(results, result)
	}
	s.results[m.spec.Name] = results
	if !s.repair || len(repairs) == 0 {
		return nil
	}
	var due []*shard.CopyRepair
	for i, repair := range repairs {
		result := &results[at[i]]
		if result.reason = s.doubts[result.table]; result.reason == "" {
			due = append(due, repair)
		}
	}
	for repair, refused := range s.mend(ctx, m, due) {
		result := &results[at[slices.Index(repairs, repair)]]
		if result.repaired = refused == nil; refused != nil {
			result.reason = oneLine(refused)
		}
	}
	return nil
}

// bring carries the right rows of the buckets that differ to a shard, and counts what differs there.
func (s *settling) bring(ctx context.Context, m *member, number int, buckets []int32) (*shard.CopyRepair, error) {
	comparison := s.compared[number].comparison
	repair, err := comparison.Repair(ctx, m.tx, number, buckets)
	if err != nil {
		return nil, err
	}
	if _, err := shard.Carry(ctx, s.home.conn, comparison.ReadSQL(buckets), m.conn, repair.WriteSQL(), nil); err != nil {
		return nil, fmt.Errorf("carry rows of table %s: %w", comparison.Definition.Table, err)
	}
	return repair, repair.Count(ctx)
}

// mend repairs tables together, since foreign keys between them may leave no order, and each alone if that is refused.
func (s *settling) mend(ctx context.Context, m *member, repairs []*shard.CopyRepair) map[*shard.CopyRepair]error {
	outcome := map[*shard.CopyRepair]error{}
	if len(repairs) == 0 {
		return outcome
	}
	err := s.mendTogether(ctx, m, repairs)
	for _, r := range repairs {
		outcome[r] = err
		if err != nil && len(repairs) > 1 {
			outcome[r] = s.mendTogether(ctx, m, []*shard.CopyRepair{r})
		}
	}
	failpoint.Hit("copies.mended")
	return outcome
}

// mendTogether changes nothing unless all of the copies are equal to the home shard's afterwards.
func (s *settling) mendTogether(ctx context.Context, m *member, repairs []*shard.CopyRepair) error {
	return shard.MendCopies(ctx, m.tx, repairs, func(r *shard.CopyRepair) *shard.Digest {
		at := slices.IndexFunc(s.compared, func(t comparedTable) bool { return t.comparison == r.Comparison })
		return s.compared[at].home
	})
}

// commitRepairs ends the transactions of all shards. What is repaired is repaired, whoever dies between two of them.
func (s *settling) commitRepairs(ctx context.Context) error {
	for _, m := range s.others {
		name := m.spec.Name
		if s.unknown[name] != nil {
			continue
		}
		if !slices.ContainsFunc(s.results[name], func(r copyResult) bool { return r.repaired }) {
			m.rollback(ctx)
			continue
		}
		if err := m.tx.Commit(ctx); err != nil {
			s.unknown[name] = fmt.Errorf("whether its repair is committed is not known: %w", err)
			continue
		}
		failpoint.Hit("copies.committed")
	}
	s.home.rollback(ctx)
	return nil
}

// note keeps and says what became known. Copies of shards that could not be compared are unknown.
func (s *settling) note(ctx context.Context) error {
	for name, err := range s.unknown {
		s.results[name] = nil
		for _, table := range s.tables {
			if slices.Contains(s.suspects[table], name) {
				s.results[name] = append(s.results[name], copyResult{table: table, shard: name, home: s.state, reason: oneLine(err)})
			}
		}
	}
	log := s.cluster.config.Logger
	for _, r := range s.all() {
		switch d := r.difference; {
		case d == nil:
			log.Warn("a copy of a reference table could not be compared", "table", r.table, "shard", r.shard, "error", r.reason)
		case r.repaired:
			log.Warn("a copy of a reference table had other rows than the home shard, and is repaired", "table", r.table, "shard", r.shard, "missing", d.Missing, "extra", d.Extra, "changed", d.Changed)
		case !d.IsZero():
			log.Warn("a copy of a reference table has other rows than the home shard", "table", r.table, "shard", r.shard, "missing", d.Missing, "extra", d.Extra, "changed", d.Changed, "reason", r.reason)
		}
	}
	reached := slices.DeleteFunc(slices.Clone(s.others), func(m *member) bool { return m.conn == nil })
	s.cluster.noteCopies(ctx, &copySet{home: s.home, others: reached}, s.all())
	return nil
}

// oneLine is an error for a table or a log, with all that it says.
func oneLine(err error) string {
	var forClient *pgerr.Error
	if !errors.As(err, &forClient) {
		return err.Error()
	}
	return strings.TrimSpace(strings.Join([]string{forClient.Message + ".", forClient.Detail, forClient.Hint}, " "))
}
