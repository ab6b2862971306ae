package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Create makes a new cluster: its first map, with nothing in it.
func (c *Cluster) Create(ctx context.Context) (api.MapChanged, error) {
	m, err := topology.New(newIdentifier())
	if err != nil {
		return api.MapChanged{}, err
	}
	err = c.config.Store.Create(ctx, m)
	if errors.Is(err, store.ErrExists) {
		return api.MapChanged{}, &topology.ExistsError{Kind: "the shard map of cluster", Name: c.clusterName(ctx)}
	}
	if err != nil {
		return api.MapChanged{}, err
	}
	c.applied(ctx, m.Version())
	return api.MapChanged{MapVersion: m.Version(), Cluster: m.Cluster()}, nil
}

// clusterName is the identifier of the cluster that is there.
func (c *Cluster) clusterName(ctx context.Context) string {
	m, err := c.Map(ctx)
	if err != nil {
		return "unknown"
	}
	return m.Cluster()
}

// newIdentifier draws a UUID of version 4.
func newIdentifier() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Import puts a map in force that comes from a backup or was edited. Its version is raised above that of the map in force
// and above all that the shards have recorded.
func (c *Cluster) Import(ctx context.Context, document []byte) (api.MapChanged, error) {
	imported, err := topology.Decode(document)
	if err != nil {
		return api.MapChanged{}, invalidUnlessTyped(err)
	}
	current, err := c.currentOf(ctx, imported.Cluster())
	if err != nil {
		return api.MapChanged{}, err
	}
	looks := c.readAll(ctx, merged(specsOf(imported), specsOf(current)))
	findings, newest, err := recordedVersions(imported, looks)
	if err != nil {
		return api.MapChanged{}, err
	}
	next, err := c.replace(ctx, imported, current, newest)
	if err != nil {
		return api.MapChanged{}, err
	}
	return api.MapChanged{MapVersion: next.Version(), Cluster: next.Cluster(), Findings: findings}, nil
}

// currentOf returns the map in force, nil if there is none. It must be of the same cluster.
func (c *Cluster) currentOf(ctx context.Context, cluster string) (*topology.Map, error) {
	current, err := c.config.Store.Map(ctx)
	if errors.Is(err, store.ErrNoMap) {
		return nil, nil //nolint:nilnil // no map is what the caller asks about
	}
	if err != nil {
		return nil, err
	}
	if current.Cluster() != cluster {
		return nil, &InvalidError{
			Message: fmt.Sprintf("the map is of cluster %s, but this is cluster %s", cluster, current.Cluster()),
			Hint:    "Import it where nothing is in force yet: under another cluster name in the configuration.",
		}
	}
	return current, nil
}

// merged returns the shards of both lists, each once by its address.
func merged(a, b []topology.ShardSpec) []topology.ShardSpec {
	seen := map[string]bool{}
	var all []topology.ShardSpec
	for _, spec := range append(a, b...) {
		if !seen[spec.Primary.Address] {
			seen[spec.Primary.Address] = true
			all = append(all, spec)
		}
	}
	return all
}

// recordedVersions finds the newest version that a shard has recorded. A shard that cannot be asked may have a newer one.
func recordedVersions(m *topology.Map, looks []inspected) (findings []api.Finding, newest uint64, err error) {
	for _, look := range looks {
		switch {
		case look.err != nil:
			findings = append(findings, unreachable(look.spec, api.Warning, "it is not known which map version it has recorded", look.err))
		case look.record.Cluster != "" && look.record.Cluster != m.Cluster():
			return nil, 0, &RefusedError{Message: fmt.Sprintf("shard %s belongs to cluster %s, the map is of cluster %s", look.spec.Name, look.record.Cluster, m.Cluster())}
		default:
			newest = max(newest, look.record.MapVersion)
		}
	}
	return findings, newest, nil
}

// replace puts m in force with a version above the current map's and the newest recorded one.
func (c *Cluster) replace(ctx context.Context, m, current *topology.Map, newest uint64) (*topology.Map, error) {
	if current != nil {
		newest = max(newest, current.Version())
	}
	next, err := m.Next(topology.RaiseVersion(newest + 1))
	if err != nil {
		return nil, invalidUnlessTyped(err)
	}
	if err := c.config.Store.Replace(ctx, next); err != nil {
		return nil, err
	}
	c.applied(ctx, next.Version())
	return next, nil
}

// Rebuild makes the map anew from what the shards have recorded, and puts it in force if asked to.
func (c *Cluster) Rebuild(ctx context.Context, request api.RebuildMap) (api.RebuiltMap, error) {
	specs := request.Shards
	if len(specs) == 0 {
		m, err := c.Map(ctx)
		if err != nil {
			return api.RebuiltMap{}, fmt.Errorf("no shards were named, and the map in force cannot tell: %w", err)
		}
		specs = specsOf(m)
	}
	rebuilt, findings, err := c.rebuildFrom(c.readAll(ctx, specs))
	if err != nil {
		return api.RebuiltMap{}, err
	}
	answer := api.RebuiltMap{Map: rebuilt.Document(), Findings: findings}
	if !request.Apply {
		return answer, nil
	}
	current, err := c.currentOf(ctx, rebuilt.Cluster())
	if err != nil {
		return api.RebuiltMap{}, err
	}
	next, err := c.replace(ctx, rebuilt, current, rebuilt.Version())
	if err != nil {
		return api.RebuiltMap{}, err
	}
	answer.MapVersion, answer.Map = next.Version(), next.Document()
	return answer, nil
}

func (c *Cluster) rebuildFrom(looks []inspected) (*topology.Map, []api.Finding, error) {
	var records []*shard.Recorded
	var findings []api.Finding
	for _, look := range looks {
		if look.err != nil {
			findings = append(findings, unreachable(look.spec, api.Problem, "what it owns is missing", look.err))
			continue
		}
		records = append(records, look.record)
	}
	if len(findings) > 0 {
		return nil, nil, &RefusedError{Message: "the map cannot be rebuilt while shards do not answer", Findings: findings}
	}
	rebuilt, findings, err := shard.Rebuild(records)
	if err != nil {
		return nil, nil, &RefusedError{Message: fmt.Sprintf("the map cannot be rebuilt: %v", err), Findings: findings}
	}
	if err := refuse(findings, "the map cannot be rebuilt from these shards"); err != nil {
		return nil, nil, err
	}
	return rebuilt, findings, nil
}

// CheckMap compares the map with what the shards have recorded, and the shards with each other.
func (c *Cluster) CheckMap(ctx context.Context) ([]api.Finding, error) {
	m, err := c.Map(ctx)
	if err != nil {
		return nil, err
	}
	findings := []api.Finding{}
	for _, look := range c.readAll(ctx, specsOf(m)) {
		if look.err != nil {
			findings = append(findings, unreachable(look.spec, api.Problem, "its record was not compared", look.err))
			continue
		}
		findings = append(findings, shard.Verify(m, look.spec.Name, look.record)...)
	}
	return append(findings, c.compareShards(ctx, m)...), nil
}

// compareShards looks for differences between shards that can change answers.
func (c *Cluster) compareShards(ctx context.Context, m *topology.Map) []api.Finding {
	reports := map[string]*shard.Report{}
	for _, look := range c.inspectAll(ctx, specsOf(m)) {
		if look.err == nil {
			reports[look.spec.Name] = look.report
		}
	}
	return shard.Compare(reports)
}
