package control

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Shards returns the shards of the map that this process works with, and how they are.
func (c *Cluster) Shards(ctx context.Context) ([]api.ShardStatus, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return nil, err
	}
	return c.shardStatus(m), nil
}

func (c *Cluster) shardStatus(m *topology.Map) []api.ShardStatus {
	held := m.Holdings()
	list := make([]api.ShardStatus, 0, m.ShardCount())
	for s := range m.Shards() {
		has := held[s.Number()]
		status := api.ShardStatus{ShardSpec: s.Spec(), Ranges: has.Ranges, Pins: has.Pins, Tables: has.Tables, Copies: has.Copies}
		c.monitor.describe(&status, m.Cluster())
		if status.Connections != nil {
			c.config.Share(status.Connections)
		}
		list = append(list, status)
	}
	return list
}

// Snapshot is the status without asking anyone: what this process knows by itself. For metrics and readiness.
func (c *Cluster) Snapshot() api.Status {
	followed := c.config.Follower.Status()
	status := api.Status{
		MapVersion: followed.Version, Version: c.config.Version,
		Store:   api.StoreStatus{Connected: followed.Connected, Since: followed.Since, Endpoints: c.config.Endpoints},
		Routers: []api.Router{}, Shards: []api.ShardStatus{}, Findings: []api.Finding{},
	}
	if followed.LastError != nil {
		status.Store.Error = followed.LastError.Error()
	}
	if m := c.config.Follower.Map(); m != nil {
		status.Cluster, status.MapVersion = m.Cluster(), m.Version()
		status.Shards = c.shardStatus(m)
		status.Keyspaces, status.Tables = len(m.Keyspaces()), m.TableCount()
	}
	status.Findings = append(status.Findings, c.storeFindings(followed)...)
	for _, s := range status.Shards {
		status.Findings = append(status.Findings, shardFindings(s, status.MapVersion)...)
	}
	if m := c.config.Follower.Map(); m != nil {
		for _, f := range c.monitor.copyFindings(m) {
			status.Findings = append(status.Findings, copyFinding(f))
		}
	}
	return status
}

// Status is the snapshot, and who else is there.
func (c *Cluster) Status(ctx context.Context) (api.Status, error) {
	status := c.Snapshot()
	if !status.Store.Connected {
		return status, nil // asking would only take time: etcd is away, and the findings say so
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	leader, err := c.config.Store.Leader(ctx)
	if err == nil {
		status.Leader = leader.Candidate
	} else if !errors.Is(err, store.ErrNoLeader) {
		return withoutStore(status, err), nil
	}
	routers, err := c.config.Store.Routers(ctx)
	if err != nil {
		return withoutStore(status, err), nil
	}
	_, automation, err := c.readAutomation(ctx)
	if err != nil {
		return withoutStore(status, err), nil
	}
	status.Automation = summarise(automation.Settings)
	status.Findings = append(status.Findings, automationFindings(automation)...)
	names := map[string]bool{}
	for _, r := range routers {
		status.Routers = append(status.Routers, api.Router{
			ID: r.ID, Name: r.Name, Listen: r.Address, HTTP: r.HTTPAddress, Started: r.Started, Version: r.Binary, Applied: r.Applied,
		})
		if names[r.Name] {
			status.Findings = append(status.Findings, api.Finding{
				Severity: api.Warning, Code: "name_taken", Message: "two processes are named " + r.Name, Hint: "Give each its own router_name. One that was killed, or whose sockets another has taken over, goes from the list by itself.",
			})
		}
		names[r.Name] = true
	}
	return status, nil
}

// askTimeout is how long a status waits for etcd, which was there a moment ago.
const askTimeout = 2 * time.Second

// withoutStore says that etcd did not answer, though the follower has not noticed yet.
func withoutStore(status api.Status, err error) api.Status {
	status.Store.Connected, status.Store.Error = false, err.Error()
	status.Findings = append(status.Findings, etcdAway(status.MapVersion, err))
	return status
}

func etcdAway(version uint64, err error) api.Finding {
	message := fmt.Sprintf("etcd cannot be reached; serving goes on with map version %d, changes wait", version)
	if err != nil {
		message += ": " + err.Error()
	}
	return api.Finding{Severity: api.Problem, Code: "etcd_away", Message: message, Hint: "Look at the members of etcd: 'etcdctl endpoint status'."}
}

// Ready returns nil when this process has a map that it may serve with.
func (c *Cluster) Ready() error {
	m := c.config.Follower.Map()
	if m == nil {
		if err := c.config.Follower.Status().LastError; err != nil {
			return err
		}
		return store.ErrNoMap
	}
	for _, s := range c.shardStatus(m) {
		if s.RecordedVersion > m.Version() {
			return fmt.Errorf("shard %s has recorded map version %d, newer than the map in force, %d: 'cleave map check' tells more", s.Name, s.RecordedVersion, m.Version())
		}
	}
	return nil
}

func (c *Cluster) storeFindings(followed store.Status) []api.Finding {
	switch {
	case errors.Is(followed.LastError, store.ErrNoMap) && followed.Version == 0:
		return []api.Finding{{
			Severity: api.Problem, Code: "no_map", Message: "there is no shard map yet",
			Hint: "A new cluster: 'cleave map create'. One that had a map: 'cleave map import FILE' or 'cleave map rebuild --shard host:port …'.",
		}}
	case errors.Is(followed.LastError, store.ErrNoMap):
		return []api.Finding{{
			Severity: api.Problem, Code: "map_lost", Message: fmt.Sprintf("etcd has no shard map any more; serving goes on with version %d", followed.Version),
			Hint: "Put it back: 'cleave map rebuild --apply', or 'cleave map import FILE'.",
		}}
	case !followed.Connected:
		return []api.Finding{etcdAway(followed.Version, followed.LastError)}
	case followed.LastError != nil:
		return []api.Finding{{Severity: api.Problem, Code: "map_refused", Message: followed.LastError.Error(), Hint: "'cleave map check' compares the map with the shards."}}
	}
	return nil
}

func shardFindings(s api.ShardStatus, version uint64) []api.Finding {
	var findings []api.Finding
	add := func(severity api.Severity, code, hint, format string, args ...any) {
		findings = append(findings, api.Finding{Severity: severity, Code: code, Shard: s.Name, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	switch {
	case !s.Up:
		add(api.Problem, "shard_down", "Look at the server's log.", "shard %s does not answer at %s: %s", s.Name, s.Primary.Address, s.Error)
	case s.RecordedVersion > version:
		add(api.Problem, "map_too_old", "The map may come from an old backup: 'cleave map rebuild' makes it anew from the shards.",
			"shard %s has recorded map version %d, newer than the map in force, %d", s.Name, s.RecordedVersion, version)
	case s.RecordedVersion < version:
		add(api.Warning, "not_recorded", "The leader tells it by itself; if this stays, 'cleave map check' says why.", "shard %s has recorded map version %d, the map is at %d", s.Name, s.RecordedVersion, version)
	}
	if c := s.Connections; c != nil && c.Routers*c.PerShard > c.ForRouters {
		add(api.Warning, "connections_capped", "Raise max_connections on the shard, or lower pool.per_shard.",
			"shard %s has %d connections for routers (max_connections %d): %d routers × pool.per_shard %d would be %d, so each is kept to %d",
			s.Name, c.ForRouters, c.Max, c.Routers, c.PerShard, c.Routers*c.PerShard, c.Limit)
	}
	if t := s.Transactions; t != nil && s.Up {
		findings = append(findings, transactionFindings(s, *t)...)
	}
	for _, r := range s.ReplicaStatus {
		if !r.Up {
			add(api.Warning, "replica_down", "Look at the server's log.", "replica %s of shard %s does not answer: %s", r.Address, s.Name, r.Error)
		}
	}
	return findings
}

// doubtfulAfter is how long a part may be prepared before a status speaks of it: recovery has had its time then.
const doubtfulAfter = 30 * time.Second

// transactionFindings is what stands in the way of transactions over several shards.
func transactionFindings(s api.ShardStatus, t api.ShardTransactions) []api.Finding {
	var findings []api.Finding
	add := func(severity api.Severity, code, hint, format string, args ...any) {
		findings = append(findings, api.Finding{Severity: severity, Code: code, Shard: s.Name, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	raise := "ALTER SYSTEM SET max_prepared_transactions = '" + strconv.Itoa(s.Connections.Max) + "'; then restart the server."
	switch {
	case t.MaxPrepared == 0:
		add(api.Problem, "max_prepared_transactions", raise, "shard %s has max_prepared_transactions 0: no transaction can write there and on another shard", s.Name)
	case t.MaxPrepared < s.Connections.Max:
		add(api.Warning, "max_prepared_transactions", raise, "shard %s has max_prepared_transactions %d, below its max_connections, %d: transactions over several shards may fail under load", s.Name, t.MaxPrepared, s.Connections.Max)
	}
	if (t.Standbys > 0 || len(s.Replicas) > 0) && !t.Synchronous {
		add(api.Warning, "asynchronous_replicas", "Set synchronous_standby_names, where transactions over several shards matter; see docs/transactions.md.",
			"shard %s has replicas and commits do not wait for them: a failover can lose its part of a transaction over several shards, or the decision", s.Name)
	}
	if t.OldestPreparedSeconds > doubtfulAfter.Seconds() {
		add(api.Problem, "transaction_in_doubt", "'cleave transactions list' says what it waits for.", "a transaction over several shards has been prepared on shard %s for %.0f seconds, with its locks", s.Name, t.OldestPreparedSeconds)
	}
	if t.OtherPreparedSeconds > doubtfulAfter.Seconds() {
		gid := sqltext.QuoteLiteral(t.OtherPrepared)
		add(api.Warning, "others_prepared", "Whoever made it has to end it there: COMMIT PREPARED "+gid+", or ROLLBACK PREPARED "+gid+".",
			"transaction %s has been prepared on shard %s for %.0f seconds, with its locks, and is none of this cluster's over several shards: nobody here ends it", gid, s.Name, t.OtherPreparedSeconds)
	}
	if t.Lost > 0 {
		add(api.Problem, "transaction_lost", "'cleave transactions list' has them. When the rows are mended: 'cleave transactions resolve TRANSACTION --forget --yes'.",
			"another shard has lost its part of transactions over several shards that shard %s has committed (%d)", s.Name, t.Lost)
	}
	return findings
}
