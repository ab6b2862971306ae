package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/reshard"
	"github.com/cleavedb/cleave/internal/shard"
	"github.com/cleavedb/cleave/internal/store"
	"github.com/cleavedb/cleave/internal/topology"
)

// Create makes a new cluster: its first map, with nothing in it. Where a process still holds a map, etcd has lost it, and a new
// one would only be in the way.
func (c *Cluster) Create(ctx context.Context) (api.MapChanged, error) {
	if err := c.nobodyHasAMap(ctx); err != nil {
		return api.MapChanged{}, err
	}
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

// nobodyHasAMap refuses a new cluster where there is one that lost its map.
func (c *Cluster) nobodyHasAMap(ctx context.Context) error {
	if _, err := c.config.Store.Map(ctx); !errors.Is(err, store.ErrNoMap) {
		return nil // the store will say it better
	}
	held := uint64(0)
	if m := c.config.Follower.Map(); m != nil {
		held = m.Version()
	}
	routers, err := c.config.Store.Routers(ctx)
	if err != nil {
		return err
	}
	for _, r := range routers {
		held = max(held, r.Applied)
	}
	if held == 0 {
		return nil
	}
	return &RefusedError{
		Message: fmt.Sprintf("processes of this cluster hold map version %d: etcd has lost the map, and a new cluster would not be theirs", held),
		Findings: []api.Finding{{
			Severity: api.Problem, Code: "map_lost", Message: "etcd has no shard map any more",
			Hint: "Put it back: 'cleave map rebuild --apply', or 'cleave map import FILE'. For a new cluster, stop these processes first.",
		}},
	}
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

// Import puts a map in force that comes from a backup or was edited. Its version is raised above all that anybody has seen.
// It moves no data: a map that gives something to another shard than has it is refused, unless forced.
func (c *Cluster) Import(ctx context.Context, request api.ImportMap) (api.MapChanged, error) {
	imported, err := topology.Decode(request.Document)
	if err != nil {
		return api.MapChanged{}, invalidUnlessTyped(err)
	}
	current, err := c.currentOf(ctx, imported.Cluster())
	if err != nil {
		return api.MapChanged{}, err
	}
	if current != nil && request.IfVersion != 0 && request.IfVersion != current.Version() {
		return api.MapChanged{}, &store.ConflictError{Base: request.IfVersion, Current: current.Version()}
	}
	looks := c.readAll(ctx, merged(specsOf(imported), specsOf(current)))
	findings, err := recordFindings(imported, current, looks)
	if err != nil {
		return api.MapChanged{}, err
	}
	changes, more := c.ownerFindings(imported, current, looks)
	findings = append(append(findings, more...), moveFindings(looks)...)
	answer := api.MapChanged{Cluster: imported.Cluster(), Changes: changes, Findings: findings}
	if err := refuse(findings, "the map does not fit what the shards have"); err != nil && !request.Force {
		return api.MapChanged{}, err
	}
	if request.DryRun {
		return answer, nil
	}
	next, err := c.replace(ctx, imported, current, looks)
	if err != nil {
		return api.MapChanged{}, err
	}
	answer.MapVersion = next.Version()
	return answer, nil
}

// moveFindings are about moves that shards know of: another map than that in force knows nothing of their copies, which would be counted twice, nor of a switch that is under way.
func moveFindings(looks []inspected) (findings []api.Finding) {
	found := map[string]bool{}
	for _, look := range looks {
		if look.err != nil {
			continue
		}
		for _, move := range look.record.Moves {
			if found[move.ID] {
				continue
			}
			found[move.ID] = true
			findings = append(findings, api.Finding{
				Severity: api.Problem, Code: "move_under_way", Shard: look.record.Shard,
				Message: fmt.Sprintf("move %s to shard %s is under way, of which the document may know nothing", move.ID, move.Target),
				Hint:    fmt.Sprintf("Wait until it has ended, or cancel it: 'cleave move cancel %s'. If nobody knows of it any more, 'cleave map rebuild --apply' ends it.", move.ID),
			})
		}
	}
	return findings
}

// currentOf returns the map in force, nil if there is none. It must be of the same cluster, or have nothing in it.
func (c *Cluster) currentOf(ctx context.Context, cluster string) (*topology.Map, error) {
	current, err := c.config.Store.Map(ctx)
	if errors.Is(err, store.ErrNoMap) {
		return nil, nil //nolint:nilnil // no map is what the caller asks about
	}
	if err != nil {
		return nil, err
	}
	if current.Cluster() != cluster && !current.Empty() {
		return nil, &InvalidError{
			Message: fmt.Sprintf("the map is of cluster %s, but this is cluster %s", cluster, current.Cluster()),
			Hint:    "Import it where nothing is in force yet: under another cluster name in the configuration.",
		}
	}
	return current, nil
}

// merged returns the shards of both lists, each database once.
func merged(a, b []topology.ShardSpec) []topology.ShardSpec {
	seen := map[string]bool{}
	var all []topology.ShardSpec
	for _, spec := range append(a, b...) {
		database := spec.Primary.Address + "/" + spec.Database
		if !seen[database] {
			seen[database] = true
			all = append(all, spec)
		}
	}
	return all
}

// recordFindings says whether the servers are the shards that the map takes them for. A server that cannot be asked is a problem
// where there is no map in force that could tell instead.
func recordFindings(m, current *topology.Map, looks []inspected) ([]api.Finding, error) {
	var findings []api.Finding
	away := api.Warning
	if current == nil || current.Empty() {
		away = api.Problem
	}
	problem := func(spec topology.ShardSpec, code, hint, format string, args ...any) {
		findings = append(findings, api.Finding{Severity: api.Problem, Code: code, Shard: spec.Name, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, look := range looks {
		listed := m.Shard(look.spec.Name) != nil
		switch {
		case look.err != nil:
			findings = append(findings, unreachable(look.spec, away, "it is not known what it has recorded", look.err))
		case look.record.Cluster != "" && look.record.Cluster != m.Cluster():
			return nil, &RefusedError{Message: fmt.Sprintf("shard %s belongs to cluster %s, the map is of cluster %s", look.spec.Name, look.record.Cluster, m.Cluster())}
		case listed && look.record.Cluster == "":
			problem(look.spec, "not_claimed", "Add it with 'cleave shard add' instead, or correct its address.",
				"the database at %s does not belong to the cluster, but the map has it as shard %s", look.spec.Primary.Address, look.spec.Name)
		case listed && look.record.Shard != look.spec.Name:
			problem(look.spec, "other_shard", "Correct the addresses.",
				"the database at %s is shard %s, but the map has it as shard %s", look.spec.Primary.Address, look.record.Shard, look.spec.Name)
		}
	}
	return findings, nil
}

// ownerFindings says what the map would look for elsewhere than it is. What is true is in the current map or, where there is
// none or the shards have recorded a newer one, in their records.
func (c *Cluster) ownerFindings(imported, current *topology.Map, looks []inspected) (changes []string, findings []api.Finding) {
	if current == nil || current.Empty() || newestRecord(looks) > current.Version() {
		if current, findings = rebuiltFor(imported, looks); current == nil {
			return nil, findings
		}
	}
	if changes = Differences(current, imported); len(changes) == 0 {
		return nil, nil
	}
	return changes, []api.Finding{{
		Severity: api.Problem, Code: "owners_differ",
		Message: fmt.Sprintf("the map looks for data elsewhere than it is, in %d places: %s", len(changes), changes[0]),
		Hint:    "An import moves no data. 'cleave map rebuild' makes the map that fits the shards; --force takes this one all the same.",
	}}
}

// newestRecord is the newest version of the map that a shard has recorded.
func newestRecord(looks []inspected) (newest uint64) {
	for _, look := range looks {
		if look.err == nil {
			newest = max(newest, look.record.MapVersion)
		}
	}
	return newest
}

// rebuiltFor puts the map together from the records. If that cannot be done, and a shard has recorded a newer map than the
// imported one, it cannot be told whether that one fits.
func rebuiltFor(imported *topology.Map, looks []inspected) (*topology.Map, []api.Finding) {
	var records []*shard.Recorded
	for _, look := range looks {
		if look.err == nil && look.record.Cluster != "" && look.record.MapVersion > 0 {
			records = append(records, look.record)
		}
	}
	if len(records) == 0 {
		return nil, nil
	}
	if rebuilt, _, err := shard.RebuildWith(records, shard.RebuildOptions{AllowOlder: true}); err == nil {
		return rebuilt, nil
	}
	newest := newestRecord(looks)
	if newest <= imported.Version() {
		return nil, nil
	}
	return nil, []api.Finding{{
		Severity: api.Problem, Code: "owners_unknown",
		Message: fmt.Sprintf("shards have recorded map version %d, the document is of version %d, and the records of its shards alone do not tell what changed since", newest, imported.Version()),
		Hint:    "'cleave map rebuild' with all shards makes the newest map; --force takes this one all the same.",
	}}
}

// replace puts m in force in place of current.
func (c *Cluster) replace(ctx context.Context, m, current *topology.Map, looks []inspected) (*topology.Map, error) {
	next, err := c.above(ctx, m, current, looks)
	if err != nil {
		return nil, err
	}
	return next, c.putInForce(ctx, current, next)
}

func (c *Cluster) putInForce(ctx context.Context, current, next *topology.Map) error {
	if err := c.config.Store.Swap(ctx, current, next); err != nil { // a nil current must still be none
		return err
	}
	c.applied(ctx, next.Version())
	return nil
}

// above is m with a version and numbers above all that anybody has seen.
func (c *Cluster) above(ctx context.Context, m, current *topology.Map, looks []inspected) (*topology.Map, error) {
	version, number := m.Version(), m.LastShardNumber()
	minimums := map[string]uint64{}
	note := func(seen *topology.Map) {
		if seen == nil || seen.Cluster() != m.Cluster() {
			return
		}
		version, number = max(version, seen.Version()), max(number, seen.LastShardNumber())
		for s := range seen.Shards() {
			minimums[s.Name()] = max(minimums[s.Name()], s.MinimumVersion())
		}
	}
	note(current)
	note(c.config.Follower.Map())
	if current != nil {
		version = max(version, current.Version())
	}
	for _, look := range looks {
		if look.err == nil {
			version, number = max(version, look.record.MapVersion), max(number, look.record.LastShardNumber, look.record.Number)
			minimums[look.record.Shard] = max(minimums[look.record.Shard], look.record.MinimumVersion)
		}
	}
	routers, err := c.config.Store.Routers(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range routers {
		version = max(version, r.Applied)
	}
	changes := []topology.Change{topology.RaiseVersion(version + 1), topology.RaiseLastShardNumber(number)}
	for s := range m.Shards() {
		least := minimums[s.Name()]
		changes = append(changes, topology.UpdateShard(s.Name(), func(spec *topology.ShardSpec) { spec.MinimumVersion = max(spec.MinimumVersion, least) }))
	}
	next, err := m.Next(changes...)
	if err != nil {
		return nil, invalidUnlessTyped(err)
	}
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
	before, err := c.storedVersion(ctx)
	if err != nil {
		return api.RebuiltMap{}, err
	}
	looks := c.readAll(ctx, specs)
	rebuilt, findings, err := rebuildFrom(looks, request.AllowOlder)
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
	if current != nil && current.Version() != before { // what the shards said may be older than that, or of both
		return api.RebuiltMap{}, fmt.Errorf("%w; rebuild the map once more", &store.ConflictError{Base: before, Current: current.Version()})
	}
	next, err := c.above(ctx, rebuilt, current, looks)
	if err != nil {
		return api.RebuiltMap{}, err
	}
	if current != nil && newestRecord(looks) < current.Version() && !request.AllowOlder {
		return api.RebuiltMap{}, pgerr.New(pgerr.ObjectInUse, "the map in force is newer than what the shards have recorded").
			WithDetail("It is of version %d, and the newest record of version %d: what has changed since would be undone.", current.Version(), newestRecord(looks)).WithHint("Try again in a moment. --allow-older takes what the shards say all the same.")
	}
	if hasLost(current, looks) {
		if err := c.recordFirst(ctx, next, looks); err != nil {
			return api.RebuiltMap{}, err
		}
	} else if isSwitching(current) {
		return api.RebuiltMap{}, pgerr.New(pgerr.ObjectInUse, "a move changes the owner of rows or tables at this moment").WithDetail("The map in force knows all that the shards have recorded, and says so.").WithHint("Try again when that has ended.")
	}
	if err := c.putInForce(ctx, current, next); err != nil {
		return api.RebuiltMap{}, fmt.Errorf("%w; rebuild the map once more", err)
	}
	answer.MapVersion, answer.Map = next.Version(), next.Document()
	answer.Findings = append(answer.Findings, c.adoptMoves(ctx, next, looks)...)
	return answer, nil
}

// storedVersion is that of the map that is stored; 0: there is none.
func (c *Cluster) storedVersion(ctx context.Context) (uint64, error) {
	m, err := c.config.Store.Map(ctx)
	if errors.Is(err, store.ErrNoMap) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Version(), nil
}

// hasLost says whether shards have recorded a newer map than the store has.
func hasLost(current *topology.Map, looks []inspected) bool {
	return current == nil || slices.ContainsFunc(looks, func(look inspected) bool { return look.err == nil && look.record.MapVersion > current.Version() })
}

// isSwitching says whether a map holds anything, because its owner is about to change.
func isSwitching(m *topology.Map) bool {
	return m.HoldsTables() || slices.ContainsFunc(m.Keyspaces(), (*topology.Keyspace).Holds)
}

// recordFirst has the shards that were looked at record a map before routers hear of it. Those that were in a switch may have recorded the owner that it was to give rows to, and would show the wrong ones to statements that go by the map; until then routers hold those rows.
func (c *Cluster) recordFirst(ctx context.Context, next *topology.Map, looks []inspected) error {
	var answered []topology.ShardSpec
	for _, spec := range specsOf(next) {
		if slices.ContainsFunc(looks, func(look inspected) bool { return look.err == nil && look.record.Shard == spec.Name }) {
			answered = append(answered, spec)
		}
	}
	plan := shard.Prepare(next)
	var errs []error
	for _, result := range each(answered, func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connectedFor(ctx, recordTimeout, spec, func(ctx context.Context, s session) error {
			_, err := plan.Record(ctx, s, spec.Name)
			return err
		})}
	}) {
		if result.err != nil {
			errs = append(errs, fmt.Errorf("shard %q has not recorded the map: %w", result.spec.Name, result.err))
		}
	}
	return errors.Join(errs...)
}

// adoptMoves has moves end that shards know of and the store does not any more.
func (c *Cluster) adoptMoves(ctx context.Context, m *topology.Map, looks []inspected) []api.Finding {
	var known []shard.KnownMove
	for _, look := range looks {
		if look.err == nil {
			known = append(known, look.record.Moves...)
		}
	}
	if len(known) == 0 {
		return nil
	}
	err := c.forgetLeaders(ctx, m)
	var adopted []*reshard.Move
	if err == nil {
		adopted, err = reshard.Adopt(ctx, c.config.Store, m, known)
	}
	var findings []api.Finding
	for _, move := range adopted {
		findings = append(findings, api.Finding{Severity: api.Warning, Code: "move_ends", Message: fmt.Sprintf("move %s from shard %s to shard %s was under way: it is ended", move.ID, move.Source, move.Target),
			Hint: fmt.Sprintf("See 'cleave move show %s', and start it again when it has ended.", move.ID)})
	}
	if err != nil {
		findings = append(findings, api.Finding{Severity: api.Warning, Code: "move_left", Message: fmt.Sprintf("what moves have left on shards could not be taken over: %v", err), Hint: "Rebuild the map once more."})
	}
	c.mover.Poke()
	return findings
}

// forgetLeaders has shards forget who led moves in another life of the store. Whoever begins to lead meanwhile and is forgotten too notes it again.
func (c *Cluster) forgetLeaders(ctx context.Context, m *topology.Map) error {
	leader, err := c.config.Store.Leader(ctx)
	if err != nil && !errors.Is(err, store.ErrNoLeader) {
		return err
	}
	var errs []error
	for _, result := range each(specsOf(m), func(spec topology.ShardSpec) inspected {
		return inspected{err: c.connectedFor(ctx, recordTimeout, spec, func(ctx context.Context, s session) error { return shard.ForgetLeaders(ctx, s, leader.Token) })}
	}) {
		errs = append(errs, result.err)
	}
	return errors.Join(errs...)
}

func rebuildFrom(looks []inspected, allowOlder bool) (*topology.Map, []api.Finding, error) {
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
	rebuilt, findings, err := shard.RebuildWith(records, shard.RebuildOptions{AllowOlder: allowOlder})
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
	plan := shard.Prepare(m)
	var answering []topology.ShardSpec
	for _, look := range c.readAll(ctx, specsOf(m)) {
		if look.err != nil {
			findings = append(findings, unreachable(look.spec, api.Problem, "its record was not compared", look.err))
			continue
		}
		answering = append(answering, look.spec)
		findings = append(findings, plan.Verify(look.spec.Name, look.record)...)
	}
	findings = append(findings, c.checkGuards(ctx, plan, answering)...)
	findings = append(findings, c.checkPrepared(ctx, m, answering)...)
	return append(findings, c.compareShards(ctx, m)...), nil
}

// checkGuards looks whether the tables are there, and refuse rows that belong elsewhere.
func (c *Cluster) checkGuards(ctx context.Context, plan *shard.Plan, specs []topology.ShardSpec) []api.Finding {
	var findings []api.Finding
	for _, look := range each(specs, func(spec topology.ShardSpec) inspected {
		var result inspected
		result.err = c.connected(ctx, spec, func(ctx context.Context, s session) (err error) {
			result.findings, err = plan.CheckGuards(ctx, s, spec.Name)
			return err
		})
		return result
	}) {
		findings = append(findings, look.findings...)
		if look.err != nil {
			findings = append(findings, unreachable(look.spec, api.Problem, "the guards of its tables were not looked at", look.err))
		}
	}
	return findings
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
