package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// session is a connection to a shard.
type session = *pgx.Conn

// closeQuietly ends a connection that is not needed any more; if that fails the server notices by itself.
func closeQuietly(s session) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// AddShard checks a server, prepares it and adds it to the map. It owns nothing yet.
func (c *Cluster) AddShard(ctx context.Context, request api.AddShard) (api.ShardChanged, error) {
	c.adding.Lock()
	defer c.adding.Unlock()
	spec := request.ShardSpec
	m, err := c.config.Store.Map(ctx)
	if err != nil {
		return api.ShardChanged{}, err
	}
	// A mistake that the map alone can tell is told before a server is started or touched.
	if err := c.rehearse(m, spec); err != nil {
		return api.ShardChanged{}, err
	}
	provisioned := spec.Primary.Address == ""
	if provisioned {
		if spec, err = c.config.Provisioner.Provision(ctx, spec); err != nil {
			return api.ShardChanged{}, err
		}
	}
	changed, err := c.admit(ctx, m, spec)
	// A server that may be in the map stays: what the map has must be there.
	if err != nil && provisioned && !errors.Is(err, store.ErrOutcomeUnknown) {
		// Not with ctx: it may be what ended, and the server must go all the same.
		_, retired := c.config.Provisioner.Retire(context.WithoutCancel(ctx), spec.Name)
		err = errors.Join(err, retired)
	}
	return changed, err
}

// rehearse tries the change on the map that is in force.
func (c *Cluster) rehearse(m *topology.Map, spec topology.ShardSpec) error {
	if spec.Primary.Address == "" {
		if c.config.Provisioner == nil {
			return &InvalidError{Message: fmt.Sprintf("shard %q has no address", spec.Name), Hint: "Say where its server is: --address host:port. Only a local cluster starts servers itself."}
		}
		if len(spec.Replicas) > 0 || spec.Database != "" || spec.User != "" || !spec.Password.IsZero() || spec.SSLMode != "" || spec.SSLRootCert != "" {
			return invalidf("shard %q has no address: a server that is started for it has its own replicas, database and log-in", spec.Name)
		}
		spec.Primary.Address = "placeholder:1" // no name of a machine on this cluster's network, so it collides with none
	}
	if _, err := m.Next(topology.AddShard(spec)); err != nil {
		return invalidUnlessTyped(err)
	}
	return nil
}

// invalidUnlessTyped marks what the map refused as a mistake of who asked, except what it has a type for.
func invalidUnlessTyped(err error) error {
	var missing *topology.NotFoundError
	var exists *topology.ExistsError
	var inUse *topology.InUseError
	var newer *topology.NewerSchemaError
	var unchanged *unchangedError
	var invalid *InvalidError
	var forClient *pgerr.Error
	if errors.As(err, &invalid) || errors.As(err, &forClient) { // with what to do about it
		return err
	}
	if err == nil || errors.As(err, &unchanged) || errors.As(err, &missing) || errors.As(err, &exists) || errors.As(err, &inUse) || errors.As(err, &newer) || errors.Is(err, topology.ErrNoActiveShard) {
		return err
	}
	return &InvalidError{Message: err.Error()}
}

// examined is what examine looks at, for people.
var examined = []string{
	"version", "settings", "privileges", "encoding", "collation", "time zones", "hash functions", "tables", "other shards",
}

// admit checks the server, installs what a shard needs, claims it, gives it the cluster's tables, changes the map and records it.
func (c *Cluster) admit(ctx context.Context, m *topology.Map, spec topology.ShardSpec) (api.ShardChanged, error) {
	report, findings, err := c.examine(ctx, m, spec)
	if err != nil {
		return api.ShardChanged{}, err
	}
	// The look took its time. Whoever added the same database meanwhile is seen now, or by the claim.
	if m, err = c.config.Store.Map(ctx); err != nil {
		return api.ShardChanged{}, err
	}
	if err := c.claim(ctx, m, spec); err != nil {
		return api.ShardChanged{}, err
	}
	next, err := c.furnish(ctx, spec)
	if err != nil {
		return api.ShardChanged{}, err
	}
	added := next.Shard(spec.Name).Spec()
	c.noteReport(added, report)
	if err := c.recordOn(ctx, next, added); err != nil {
		findings = append(findings, notRecorded(spec.Name, err))
	}
	return api.ShardChanged{MapVersion: next.Version(), Shard: added, Checked: examined, Findings: findings}, nil
}

// claim installs what a shard needs, and makes the database the cluster's.
func (c *Cluster) claim(ctx context.Context, m *topology.Map, spec topology.ShardSpec) error {
	return c.connected(ctx, spec, func(ctx context.Context, s session) error {
		if _, _, err := shard.Install(ctx, s); err != nil {
			return fmt.Errorf("prepare shard %s: %w", spec.Name, err)
		}
		return shard.Claim(ctx, s, m.Cluster(), spec, m)
	})
}

func notRecorded(name string, err error) api.Finding {
	return api.Finding{
		Severity: api.Warning, Code: "not_recorded", Shard: name,
		Message: fmt.Sprintf("shard %s has not recorded what it owns yet: %v", name, err),
		Hint:    "This is tried again by itself; 'cleave map check' tells when it is done.",
	}
}

// examine looks at the server beside those that are shards already.
func (c *Cluster) examine(ctx context.Context, m *topology.Map, spec topology.ShardSpec) (*shard.Report, []api.Finding, error) {
	look := c.inspectAll(ctx, []topology.ShardSpec{spec})[0]
	if look.err != nil {
		return nil, nil, &RefusedError{Message: fmt.Sprintf("shard %s cannot be added: %v", spec.Name, look.err)}
	}
	report := look.report
	others := map[string]*shard.Report{}
	var findings []api.Finding
	for _, look := range c.recentReports(ctx, specsOf(m)) {
		if look.err != nil {
			findings = append(findings, unreachable(look.spec, api.Warning, "the new shard was not compared with it", look.err))
			continue
		}
		others[look.spec.Name] = look.report
	}
	findings = append(shard.Check(report, others, m), findings...)
	findings = append(findings, c.examineReplicas(ctx, spec, report)...)
	for i := range findings {
		if findings[i].Shard == "" {
			findings[i].Shard = spec.Name
		}
	}
	return report, findings, refuse(findings, "shard %s cannot be added as it is", spec.Name)
}

// examineReplicas looks whether the replicas are the primary's.
func (c *Cluster) examineReplicas(ctx context.Context, spec topology.ShardSpec, primary *shard.Report) []api.Finding {
	var findings []api.Finding
	for _, replica := range spec.Replicas {
		look := spec
		look.Primary = replica
		seen := c.inspectAll(ctx, []topology.ShardSpec{look})[0]
		var wrong string
		switch {
		case seen.err != nil:
			findings = append(findings, unreachable(look, api.Warning, "it is not known whether it is a replica of the shard", seen.err))
			continue
		case !seen.report.InRecovery:
			wrong = "it is a primary itself"
		case seen.report.SystemIdentifier != primary.SystemIdentifier:
			wrong = "it follows another primary"
		default:
			continue
		}
		findings = append(findings, api.Finding{
			Severity: api.Problem, Code: "not_a_replica", Shard: spec.Name,
			Message: fmt.Sprintf("the server at %s is no replica of %s: %s", replica.Address, spec.Primary.Address, wrong),
			Hint:    "Make it one with pg_basebackup -R, or leave it out.",
		})
	}
	return findings
}

// RemoveShard takes a shard that has nothing out of the map, and gives its database back.
func (c *Cluster) RemoveShard(ctx context.Context, name string) (api.ShardChanged, error) {
	var removed topology.ShardSpec
	var wasHome bool
	before, err := c.Map(ctx)
	if err != nil {
		return api.ShardChanged{}, err
	}
	if s := before.Shard(name); s != nil && before.ShardCount() > 1 {
		if err := c.settled(ctx, before, s); err != nil {
			return api.ShardChanged{}, &topology.InUseError{Kind: "shard", Name: name, By: "it has a part in transactions over several shards that are not over: " + err.Error()}
		}
	}
	next, err := c.change(ctx, func(m *topology.Map) ([]topology.Change, error) {
		if err := c.hasNoMove(ctx, name); err != nil {
			return nil, err
		}
		if s := m.Shard(name); s != nil {
			removed, wasHome = s.Spec(), s == m.Home()
			if s == m.Home() && m.ShardCount() > 1 {
				return nil, pgerr.New(pgerr.ObjectInUse, "shard %q cannot be removed: it is the home shard", name).
					WithDetail("It has the tables that nobody has declared, and the catalogue by which routers plan all statements.").
					WithHint("The others are removed first. To be rid of its server, let a standby of it take over at the same address.")
			}
		}
		return []topology.Change{topology.RemoveShard(name)}, nil
	})
	if err != nil {
		return api.ShardChanged{}, err
	}
	changed := api.ShardChanged{MapVersion: next.Version(), Shard: removed}
	// The map has changed: what follows is done even if the caller has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := c.awaitSettled(ctx, before, removed); err != nil {
		changed.Findings = append(changed.Findings, api.Finding{
			Severity: api.Problem, Code: "not_settled", Shard: name,
			Message: fmt.Sprintf("the shard is out of the map, but it has a part in transactions over several shards that are not over, so nothing was dropped there: %v", err),
			Hint:    "Add it to the cluster again, so that they can be ended, and then remove it.",
		})
		return changed, nil
	}
	if !wasHome { // which has the tables that nobody declared, and all rows of the others
		err = c.connected(ctx, removed, func(ctx context.Context, s session) error { return shard.DropTables(ctx, s, next, name) })
		if err != nil {
			changed.Findings = append(changed.Findings, api.Finding{
				Severity: api.Warning, Code: "tables_left", Shard: name,
				Message: fmt.Sprintf("the shard is out of the map, but its copies of the cluster's tables are still there: %v", err),
				Hint:    "Look at them before the database is used elsewhere, then drop them.",
			})
		}
	}
	err = c.connected(ctx, removed, func(ctx context.Context, s session) error { return shard.Release(ctx, s, next.Cluster()) })
	if err != nil {
		changed.Findings = append(changed.Findings, api.Finding{
			Severity: api.Warning, Code: "not_released", Shard: name,
			Message: fmt.Sprintf("the shard is out of the map, but its schema cleave could not be dropped: %v", err),
			Hint:    "If the database is to be used elsewhere, look at what is in that schema, then drop it.",
		})
	}
	if c.config.Provisioner != nil {
		kept, err := c.config.Provisioner.Retire(ctx, name)
		if err != nil {
			changed.Findings = append(changed.Findings, api.Finding{Severity: api.Warning, Code: "server_left", Shard: name, Message: err.Error()})
		}
		if kept != "" {
			changed.Findings = append(changed.Findings, api.Finding{
				Severity: api.Warning, Code: "data_kept", Shard: name, Message: "its server held tables, so its data were kept, in " + kept, Hint: "Remove the folder when nobody needs them.",
			})
		}
	}
	return changed, nil
}

// hasNoMove fails if a move that has not ended needs a shard: it could neither go on nor be cancelled without it.
func (c *Cluster) hasNoMove(ctx context.Context, name string) error {
	moves, err := c.mover.List(ctx)
	if err != nil {
		return err
	}
	for _, move := range moves {
		if move.Needs(name) {
			return &topology.InUseError{Kind: "shard", Name: name, By: fmt.Sprintf("move %s from shard %s to shard %s is %s: wait until it has ended, or finish or cancel it", move.ID, move.Source, move.Target, move.Phase)}
		}
	}
	return nil
}

// UpdateShard changes a shard's weight, state or labels.
func (c *Cluster) UpdateShard(ctx context.Context, name string, request api.UpdateShard) (api.ShardChanged, error) {
	if request.Weight != nil && *request.Weight <= 0 {
		return api.ShardChanged{}, &InvalidError{Message: fmt.Sprintf("weight %v is not above 0", *request.Weight), Hint: "To give a shard nothing more, set its state to draining."}
	}
	next, err := c.change(ctx, func(m *topology.Map) ([]topology.Change, error) {
		if s := m.Shard(name); s != nil {
			spec := s.Spec()
			if apply(request, &spec); reflect.DeepEqual(spec, s.Spec()) {
				return nil, &unchangedError{m}
			}
		}
		return []topology.Change{topology.UpdateShard(name, func(s *topology.ShardSpec) { apply(request, s) })}, nil
	})
	var unchanged *unchangedError
	if errors.As(err, &unchanged) {
		next, err = unchanged.m, nil
	}
	if err != nil {
		return api.ShardChanged{}, err
	}
	return api.ShardChanged{MapVersion: next.Version(), Shard: next.Shard(name).Spec()}, nil
}

// unchangedError says that a change would change nothing, and needs no new version.
type unchangedError struct{ m *topology.Map }

func (e *unchangedError) Error() string { return "nothing to change" }

func apply(request api.UpdateShard, s *topology.ShardSpec) {
	if request.Weight != nil {
		s.Weight = *request.Weight
	}
	if request.State != nil {
		s.State = *request.State
	}
	for label, value := range request.Labels {
		if value == nil {
			if delete(s.Labels, label); len(s.Labels) == 0 {
				s.Labels = nil
			}
			continue
		}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[label] = *value
	}
}

// recordOn tells one shard what it owns.
func (c *Cluster) recordOn(ctx context.Context, m *topology.Map, spec topology.ShardSpec) error {
	return c.connectedFor(ctx, recordTimeout, spec, func(ctx context.Context, s session) error {
		_, err := shard.Record(ctx, s, m, spec.Name)
		return err
	})
}
