package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

const (
	// lookForCopiesEvery is how often the leader sees which reference tables are due, which costs nothing.
	lookForCopiesEvery = time.Second
	// compareAnyway is after how many intervals a table is read although nobody seems to have written to it.
	compareAnyway = 6
	// compareAgain is by how much sooner a table is looked at again that could not be compared.
	compareAgain = 10
	// settlePatience is how long clients may have to wait because the leader waits for those that use a table: nobody has asked for it.
	settlePatience = time.Second
	// compareTimeout bounds a look at one table.
	compareTimeout = time.Hour
)

// compareShare bounds what comparing costs: a table that took a while is left alone for so many times as long. Tests do not mind the cost.
var compareShare = 20

// keepCopies compares the copies of reference tables, and repairs those that differ, until the leadership ends. A leader that does not know yet that it is none
// does no harm: what it changes it changes under a hold and locks.
func (c *Cluster) keepCopies(ctx context.Context, leadership *store.Leadership) {
	ctx, stop := whileLeading(ctx, leadership)
	defer stop()
	ticker := time.NewTicker(min(lookForCopiesEvery, c.config.CompareInterval))
	defer ticker.Stop()
	known := &knownCopies{tables: map[topology.TableName]*knownCopy{}}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if m := c.config.Follower.Map(); m != nil && m.ShardCount() > 1 {
			c.lookAtCopies(ctx, m, known)
		}
	}
}

// knownCopies is what a leader remembers of reference tables.
type knownCopies struct {
	tables map[topology.TableName]*knownCopy
	said   string // what was last said in the log of a look that failed
	// kept are the tables and shards that what is kept was last compared with.
	kept string
}

// knownCopy is what it remembers of one.
type knownCopy struct {
	next time.Time // when it is due
	// servers are which servers the shards were when it was last looked at.
	servers string
	// written is what the shards said then of writes, empty if the copies were not all equal, and read when they were.
	written string
	read    time.Time
	// unsettled is how often in a row it could not be found out whether copies differ.
	unsettled int
}

// due returns the reference tables that are to be looked at: their time has come, a shard was away or is another server, or they are new.
func (k *knownCopies) due(m *topology.Map, servers string) []topology.TableName {
	var due []topology.TableName
	now := time.Now()
	references, _ := referencesOf(m, nil)
	for table := range k.tables {
		if !slices.Contains(references, table) {
			delete(k.tables, table)
		}
	}
	for _, table := range references {
		if one := k.tables[table]; one == nil || !now.Before(one.next) || one.servers != servers {
			due = append(due, table)
		}
	}
	return due
}

// lookAtCopies looks at the tables that are due, and at those that a dead router held. Those that somebody holds have to wait.
func (c *Cluster) lookAtCopies(ctx context.Context, m *topology.Map, known *knownCopies) {
	servers, up := c.monitor.servers(m)
	if !up {
		return // the home shard is away, or nobody has looked yet
	}
	c.leftLock.Lock()
	for _, table := range c.left {
		delete(known.tables, table) // it is due
	}
	c.left = nil
	c.leftLock.Unlock()
	holds := c.config.Follower.Schema().Holds
	due := slices.DeleteFunc(known.due(m, servers), func(table topology.TableName) bool {
		return slices.ContainsFunc(holds, func(h topology.Hold) bool { return len(h.Tables) == 0 || slices.Contains(h.Tables, table) })
	})
	if len(due) == 0 {
		return
	}
	err := c.compareDue(ctx, m, known, due, servers)
	if err != nil && ctx.Err() == nil && known.said != err.Error() {
		known.said = err.Error()
		c.config.Logger.Warn("copies of reference tables could not be compared; trying on", "error", err)
	}
}

// compareDue compares tables and settles what differs.
func (c *Cluster) compareDue(ctx context.Context, m *topology.Map, known *knownCopies, due []topology.TableName, servers string) error {
	for _, table := range due { // whatever happens, they are not due again at once
		if known.tables[table] == nil {
			known.tables[table] = &knownCopy{}
		}
		one := known.tables[table]
		one.next, one.servers = time.Now().Add(c.config.CompareInterval/compareAgain), servers
	}
	set, err := c.openCopies(ctx, m, nil)
	if err != nil {
		return err
	}
	defer set.close()
	c.forgetGone(ctx, set, known)
	var suspected []tableLook
	var failure error
	for _, table := range due {
		look, err := c.compareOne(ctx, set, known.tables[table], table)
		if err != nil {
			failure = err
			continue
		}
		if len(look.suspects) > 0 {
			suspected = append(suspected, look)
		}
	}
	if suspected = c.worthSettling(ctx, set, suspected); len(suspected) == 0 {
		return failure
	}
	_, err = c.settleCopies(ctx, suspected, settleHow{repair: true, patience: min(settlePatience, c.config.RouterPatience)})
	for _, look := range suspected {
		known.tables[look.table].noteSettled(err == nil, c.config.CompareInterval)
	}
	if err != nil {
		return errors.Join(failure, c.noteUnsettled(ctx, set, suspected, err))
	}
	return failure
}

// noteSettled lets a table be looked at again soon if it could not be settled, and less and less soon if that goes on: clients wait each time.
func (k *knownCopy) noteSettled(settled bool, interval time.Duration) {
	if settled {
		k.unsettled = 0
		return
	}
	k.next = time.Now().Add(min(interval, interval/compareAgain<<k.unsettled))
	k.unsettled = min(k.unsettled+1, compareAgain)
}

// compareOne looks at one table, unless nobody has written to it since all of its copies were equal.
func (c *Cluster) compareOne(ctx context.Context, set *copySet, one *knownCopy, table topology.TableName) (tableLook, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	began := time.Now()
	written := set.written(ctx, table)
	if written != "" && written == one.written && began.Sub(one.read) < compareAnyway*c.config.CompareInterval {
		one.next = began.Add(c.config.CompareInterval)
		return tableLook{}, nil
	}
	one.written = ""
	look, err := set.compare(ctx, table)
	if isUndefinedTable(err) {
		one.next = time.Now().Add(c.config.CompareInterval)
		return tableLook{}, nil // on the home shard: 'cleave map check' and 'cleave schema diff' speak of it
	}
	if err != nil {
		return look, err
	}
	c.noteCopies(ctx, set, look.results)
	one.next = time.Now().Add(max(c.config.CompareInterval, time.Duration(compareShare)*time.Since(began)))
	if len(look.suspects) == 0 && !slices.ContainsFunc(look.results, func(r copyResult) bool { return !r.isEqual() }) {
		one.written, one.read = written, began
	}
	return look, nil
}

func isUndefinedTable(err error) bool {
	var refused *pgerr.Error
	return errors.As(err, &refused) && refused.Code == pgerr.UndefinedTable
}

// written is what all shards say of writes to a table; empty if one cannot say. It is asked before the rows are read: what is written later counts later.
func (s *copySet) written(ctx context.Context, table topology.TableName) string {
	if len(s.failed) > 0 {
		return ""
	}
	var all []string
	for _, m := range append([]*member{s.home}, s.others...) {
		state, err := shard.CopyState(ctx, m.conn, table.String())
		if err != nil || state == "" {
			return ""
		}
		all = append(all, m.spec.Name+" "+state)
	}
	return strings.Join(all, "\n")
}

// worthSettling leaves out what would only keep everybody from the tables for nothing: it is known to differ, and would not be repaired.
func (c *Cluster) worthSettling(ctx context.Context, set *copySet, suspected []tableLook) []tableLook {
	if len(suspected) == 0 {
		return nil
	}
	state, err := shard.ServerState(ctx, set.home.conn)
	if err != nil {
		return nil // the next look tells
	}
	tables := make([]topology.TableName, len(suspected))
	for i, look := range suspected {
		tables[i] = look.table
	}
	doubts, differing := c.doubts(ctx, set.m, tables, state), c.monitor.differingCopies(set.m)
	return slices.DeleteFunc(suspected, func(look tableLook) bool {
		return doubts[look.table] != "" && !slices.ContainsFunc(look.suspects, func(name string) bool { return !differing[look.table.String()+" "+name] })
	})
}

// noteUnsettled keeps that it is not known whether copies differ, and returns the reason.
func (c *Cluster) noteUnsettled(ctx context.Context, set *copySet, suspected []tableLook, reason error) error {
	if ctx.Err() != nil {
		return reason
	}
	var results []copyResult
	differing := c.monitor.differingCopies(set.m)
	for _, look := range suspected {
		for _, name := range look.suspects {
			if !differing[look.table.String()+" "+name] { // or more is known already
				results = append(results, copyResult{table: look.table, shard: name, reason: oneLine(reason)})
			}
		}
	}
	c.noteCopies(ctx, set, results)
	return reason
}

// forgetGone forgets what is kept of tables and shards that are none any more, when those have changed.
func (c *Cluster) forgetGone(ctx context.Context, set *copySet, known *knownCopies) {
	references, _ := referencesOf(set.m, nil)
	tables, shards := []string{}, []string{}
	for _, t := range references {
		tables = append(tables, t.String())
	}
	for _, spec := range specsOf(set.m) {
		shards = append(shards, spec.Name)
	}
	kept := strings.Join(tables, " ") + "\n" + strings.Join(shards, " ")
	if known.kept == kept {
		return
	}
	if err := shard.KeepCopies(ctx, set.home.conn, tables, shards); err == nil {
		known.kept = kept
	}
}
