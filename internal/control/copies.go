package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/topology"
)

// CopiesRequest asks for the copies of reference tables to be compared with the home shard's.
type CopiesRequest struct {
	// Tables to compare. Default: all reference tables.
	Tables []topology.TableName
	// Shards whose copies are compared with the home shard's. Default: all.
	Shards []string
	// Repair makes copies that differ equal to the home shard's, unless that may have lost something itself. Force does it all the same.
	Repair, Force bool
	// Role is who asks: it must own the tables, or be a superuser. Default: an operator, who may.
	Role string
}

// CheckCopies compares the copies of reference tables. What differs while nobody writes is a difference; it is shown by a status until it is gone.
func (c *Cluster) CheckCopies(ctx context.Context, request CopiesRequest) (api.CopiesChecked, error) {
	m, err := c.config.Store.Map(ctx)
	if err != nil {
		return api.CopiesChecked{}, err
	}
	tables, err := referencesOf(m, request.Tables)
	if err != nil {
		return api.CopiesChecked{}, err
	}
	set, err := c.openCopies(ctx, m, request.Shards)
	if err != nil {
		return api.CopiesChecked{}, err
	}
	defer set.close()
	if err := set.mayCheck(ctx, request.Role, tables); err != nil {
		return api.CopiesChecked{}, err
	}
	var results []copyResult
	var suspected []tableLook
	for _, table := range tables {
		look, err := set.compare(ctx, table)
		if err != nil {
			return api.CopiesChecked{}, err
		}
		results = append(results, look.results...)
		if len(look.suspects) > 0 {
			suspected = append(suspected, look)
		}
	}
	c.noteCopies(ctx, set, results)
	if len(suspected) > 0 {
		settled, err := c.settleCopies(ctx, suspected, settleHow{repair: request.Repair, force: request.Force})
		if err != nil {
			return api.CopiesChecked{}, err
		}
		results = append(results, settled...)
	}
	return answerCopies(tables, results), nil
}

// referencesOf returns the reference tables of the map, or those named, which have to be.
func referencesOf(m *topology.Map, names []topology.TableName) ([]topology.TableName, error) {
	var tables []topology.TableName
	if len(names) == 0 {
		for _, t := range m.Tables() {
			if t.Kind() == topology.Reference {
				tables = append(tables, t.Name())
			}
		}
		return tables, nil
	}
	for _, name := range names {
		if t := m.Table(name.Schema, name.Name); t == nil || t.Kind() != topology.Reference {
			return nil, pgerr.New(pgerr.ObjectNotInPrerequisite, "table %s is not a reference table", name).WithHint("cleave.tables lists those that are.")
		}
		if !slices.Contains(tables, name) {
			tables = append(tables, name)
		}
	}
	return tables, nil
}

// copyResult is what became known of one shard's copy of a table.
type copyResult struct {
	table topology.TableName
	shard string
	// home is which server the home shard was, and on which timeline.
	home string
	// difference that there is, or was before it was repaired; nil: it is not known whether there is one.
	difference *shard.Difference
	repaired   bool
	// reason says why it is not known, or not repaired.
	reason string
}

// isEqual says whether the copy is now as it should be.
func (r copyResult) isEqual() bool {
	return r.difference != nil && (r.repaired || r.difference.IsZero())
}

func answerCopies(tables []topology.TableName, results []copyResult) api.CopiesChecked {
	answer := api.CopiesChecked{Tables: []string{}, Differences: []api.CopyDifference{}}
	for _, t := range tables {
		answer.Tables = append(answer.Tables, t.String())
	}
	for _, r := range results {
		switch d := r.difference; {
		case d == nil:
			answer.Findings = append(answer.Findings, copyFinding(shard.CopyFinding{Table: r.table.String(), Shard: r.shard, Reason: r.reason}))
		case !d.IsZero():
			answer.Differences = append(answer.Differences, api.CopyDifference{
				Table: r.table.String(), Shard: r.shard, Missing: d.Missing, Extra: d.Extra, Changed: d.Changed, Repaired: r.repaired, Reason: r.reason,
			})
		}
	}
	return answer
}

// copyFinding is what people are told of a copy that differs, or may.
func copyFinding(f shard.CopyFinding) api.Finding {
	if f.Difference == nil {
		return api.Finding{
			Severity: api.Warning, Code: "reference_copy_unchecked", Shard: f.Shard,
			Message: fmt.Sprintf("it is not known whether shard %s has the rows of reference table %s: %s", f.Shard, f.Table, f.Reason),
			Hint:    "It is looked at again by itself; 'cleave table check-copies' does it now.",
		}
	}
	message := fmt.Sprintf("shard %s has other rows of reference table %s than the home shard (%s)", f.Shard, f.Table, f.Difference)
	if f.Reason != "" {
		message += ", and they are not repaired: " + f.Reason
	}
	return api.Finding{
		Severity: api.Problem, Code: "reference_copy_differs", Shard: f.Shard, Message: message,
		Hint: "'cleave table check-copies --repair' makes them equal to the home shard's, with --force even if that may have lost some: look at both before.",
	}
}

// copySet is the connections over which copies are compared.
type copySet struct {
	cluster *Cluster
	m       *topology.Map
	home    *member
	others  []*member
	// failed are shards that could not be reached.
	failed map[string]error
}

// openCopies connects to the home shard and to those named, or to all. Without the home shard nothing can be compared.
func (c *Cluster) openCopies(ctx context.Context, m *topology.Map, only []string) (*copySet, error) {
	if m.Home() == nil {
		return nil, pgerr.New(pgerr.ObjectNotInPrerequisite, "the cluster has no shards").WithHint("Add one with: cleave shard add")
	}
	s := &copySet{cluster: c, m: m, home: &member{spec: m.Home().Spec()}, failed: map[string]error{}}
	for _, spec := range specsOf(m) {
		if spec.Name != s.home.spec.Name && (len(only) == 0 || slices.Contains(only, spec.Name)) {
			s.others = append(s.others, &member{spec: spec})
		}
	}
	failures := make(map[string]error)
	var lock sync.Mutex
	_ = eachMember(append([]*member{s.home}, s.others...), func(m *member) (err error) {
		if m.conn, err = c.connectToCompare(ctx, m.spec); err != nil {
			lock.Lock()
			defer lock.Unlock()
			failures[m.spec.Name] = err
		}
		return nil
	})
	if err := failures[s.home.spec.Name]; err != nil {
		s.close()
		return nil, pgerr.New(pgerr.ConnectionFailure, "reference tables cannot be compared while the home shard, %q, is away", s.home.spec.Name).WithDetail("%v", err)
	}
	s.failed = failures
	s.others = slices.DeleteFunc(s.others, func(m *member) bool { return m.conn == nil })
	return s, nil
}

func (c *Cluster) connectToCompare(ctx context.Context, spec topology.ShardSpec) (session, error) {
	conn, err := c.config.Access.Connect(ctx, spec)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, shard.CompareSettings); err != nil {
		closeQuietly(conn)
		return nil, err
	}
	return conn, nil
}

func (s *copySet) close() {
	var open []session
	for _, m := range append([]*member{s.home}, s.others...) {
		if m.conn != nil {
			open = append(open, m.conn)
		}
	}
	closeAll(open)
}

// mayCheck refuses a role that does not own the tables: a look may keep others from them for a moment.
func (s *copySet) mayCheck(ctx context.Context, role string, tables []topology.TableName) error {
	if role == "" {
		return nil
	}
	for _, table := range tables {
		definition, err := shard.Describe(ctx, s.home.conn, table)
		if err != nil {
			return err
		}
		if err := definition.CheckRole(ctx, s.home.conn, role); err != nil {
			return err
		}
	}
	return nil
}

// tableLook is what a look at a table without a hold gave.
type tableLook struct {
	table topology.TableName
	// results are certain, or cannot be had.
	results []copyResult
	// suspects are the names of shards whose copies differed each time in the same buckets.
	suspects []string
}

// comparePauses are between one look and the next, for what was being written. Damage stays where it is; of what is written, something else
// is under way each time.
var comparePauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, time.Second}

// compare looks at all copies of a table while it is in use.
func (s *copySet) compare(ctx context.Context, table topology.TableName) (tableLook, error) {
	look := tableLook{table: table}
	for _, name := range slices.Sorted(maps.Keys(s.failed)) {
		look.results = append(look.results, copyResult{table: table, shard: name, reason: s.failed[name].Error()})
	}
	definition, err := shard.Describe(ctx, s.home.conn, table)
	if err != nil {
		return look, err
	}
	home, err := shard.ServerState(ctx, s.home.conn)
	if err != nil {
		return look, err
	}
	comparison, err := definition.Compared(ctx, s.home.conn)
	if err != nil {
		return look, err
	}
	differing := map[string][]int32{} // by the shard's name
	suspects := s.others
	for round := 0; len(suspects) > 0 && round <= len(comparePauses); round++ {
		if round > 0 {
			pause(ctx, comparePauses[round-1])
		}
		digests, failures := digestAll(ctx, comparison, append([]*member{s.home}, suspects...))
		if err := failures[s.home.spec.Name]; err != nil {
			return look, err
		}
		suspects = slices.DeleteFunc(slices.Clone(suspects), func(m *member) bool {
			result := copyResult{table: table, shard: m.spec.Name, home: home}
			if err := failures[m.spec.Name]; err != nil {
				result.reason = err.Error()
			} else {
				now := digests[s.home.spec.Name].Differing(digests[m.spec.Name])
				if round > 0 {
					now = inBoth(now, differing[m.spec.Name])
				}
				if differing[m.spec.Name] = now; len(now) > 0 {
					return false
				}
				result.difference = &shard.Difference{}
			}
			look.results = append(look.results, result)
			return true
		})
	}
	for _, m := range suspects {
		look.suspects = append(look.suspects, m.spec.Name)
	}
	return look, ctx.Err()
}

// inBoth are the numbers that two sorted lists have in common.
func inBoth(a, b []int32) []int32 {
	return slices.DeleteFunc(a, func(n int32) bool {
		_, found := slices.BinarySearch(b, n)
		return !found
	})
}

// digestAll sums the table up on several shards at once, each over its own connection or in its transaction.
func digestAll(ctx context.Context, comparison *shard.Comparison, members []*member) (map[string]*shard.Digest, map[string]error) {
	digests, failures := map[string]*shard.Digest{}, map[string]error{}
	var lock sync.Mutex
	_ = eachMember(members, func(m *member) error {
		var digest *shard.Digest
		var err error
		if m.tx != nil {
			digest, err = comparison.Digest(ctx, m.tx)
		} else {
			digest, err = comparison.Digest(ctx, m.conn)
		}
		lock.Lock()
		defer lock.Unlock()
		digests[m.spec.Name], failures[m.spec.Name] = digest, err
		return nil
	})
	return digests, failures
}

// noteCopies keeps what became known, so that every router's status shows it, and so that the next comparison knows when copies were equal.
func (c *Cluster) noteCopies(ctx context.Context, set *copySet, results []copyResult) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	equal := map[topology.TableName][]string{}
	var failure error
	for _, r := range results {
		if r.isEqual() {
			equal[r.table] = append(equal[r.table], r.shard)
			continue
		}
		if set.failed[r.shard] != nil {
			continue // a status says that it is away
		}
		finding := shard.CopyFinding{Table: r.table.String(), Shard: r.shard, Difference: r.difference, Reason: r.reason}
		if err := finding.Note(ctx, set.home.conn); err != nil {
			failure = err
		}
	}
	for _, table := range slices.SortedFunc(maps.Keys(equal), compareTables) {
		if err := shard.ForgetCopies(ctx, set.home.conn, table, equal[table]); err != nil {
			failure = err
		}
	}
	for _, m := range set.others {
		for _, r := range results {
			if r.shard != m.spec.Name || !r.isEqual() || m.conn.IsClosed() {
				continue
			}
			if err := shard.NoteEqual(ctx, m.conn, r.table, r.home); err != nil {
				failure = err
			}
		}
	}
	if failure != nil {
		c.config.Logger.Warn("what was found out about copies of reference tables could not be noted", "error", failure)
	}
}

func compareTables(a, b topology.TableName) int {
	return slices.Compare([]string{a.Schema, a.Name}, []string{b.Schema, b.Name})
}
