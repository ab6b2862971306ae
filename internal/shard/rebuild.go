package shard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// ErrNotWhole says that the records do not make a whole map; the findings say why.
var ErrNotWhole = errors.New("the shards' records do not make a whole map")

// RebuildOptions say how far [RebuildWith] goes.
type RebuildOptions struct {
	// AllowOlder: believe an older record also where nothing but itself says that it still holds. What it decides is then a
	// warning and not a problem. Default: no.
	AllowOlder bool
}

// Rebuild puts the map together again from the records of all shards. Its version is above all that were recorded. What
// all shards record alike is taken from the newest record. Where two shards say that they own the same, the newer record
// is believed, and the other shard is marked as having a copy, because it may well still have the rows. Nothing is held any more: whoever was at work is not. If something
// belongs to nobody, a shard is missing, a record is damaged, or an older record decides what does not follow from the newer
// ones, there is no map but [ErrNotWhole].
func Rebuild(records []*Recorded) (*topology.Map, []api.Finding, error) {
	return RebuildWith(records, RebuildOptions{})
}

// RebuildWith is [Rebuild] with options.
func RebuildWith(records []*Recorded, options RebuildOptions) (*topology.Map, []api.Finding, error) {
	b := &rebuilding{options: options, unproved: map[*Recorded][]string{}}
	if err := b.choose(records); err != nil {
		return nil, b.found, err
	}
	document, err := b.document(records)
	if err != nil {
		return nil, b.found, fmt.Errorf("rebuild the map: %w", err)
	}
	b.tellAge()
	if slices.ContainsFunc(b.found, func(f api.Finding) bool { return f.Severity == api.Problem }) {
		return nil, b.found, ErrNotWhole
	}
	content, err := json.Marshal(document)
	if err != nil {
		return nil, b.found, fmt.Errorf("rebuild the map: %w", err)
	}
	m, err := topology.Decode(content)
	if err != nil {
		return nil, b.found, fmt.Errorf("rebuild the map: %w", err)
	}
	return m, b.found, nil
}

// rebuilding is one run of [Rebuild].
type rebuilding struct {
	found   findings
	options RebuildOptions
	// chosen are the records that count, the newest first.
	chosen []*Recorded
	// older is how many of them are not of the newest version.
	older int
	// unproved is what was decided by an older record alone.
	unproved map[*Recorded][]string
}

func (b *rebuilding) newest() *Recorded { return b.chosen[0] }

// problem adds one about a shard, which may be empty.
func (b *rebuilding) problem(shard, code, message, hint string) {
	since := len(b.found)
	b.found.problem(code, message, hint)
	b.found.about(shard, since)
}

func (b *rebuilding) warning(shard, code, message, hint string) {
	since := len(b.found)
	b.found.warning(code, message, hint)
	b.found.about(shard, since)
}

// choose finds the records that count, and says what is wrong with the others.
func (b *rebuilding) choose(records []*Recorded) error {
	for _, r := range records {
		switch {
		case r == nil || r.Cluster == "":
			b.warning("", "not_claimed", "a database that was asked belongs to no cluster, so it was left out", "Correct its address if it should be a shard.")
		case r.MapVersion == 0:
			b.warning(r.Shard, "not_recorded", fmt.Sprintf("shard %s has recorded nothing, so it was left out", r.Shard), "If it is to be a shard, add it again.")
		default:
			b.chosen = append(b.chosen, r)
			b.checkDamage(r)
		}
	}
	if slices.ContainsFunc(b.found, func(f api.Finding) bool { return f.Severity == api.Problem }) {
		return fmt.Errorf("rebuild the map: %w: a record is damaged", ErrNotWhole) // what it says proves nothing about others
	}
	if len(b.chosen) == 0 {
		return fmt.Errorf("rebuild the map: %w: no shard has recorded anything", ErrNotWhole)
	}
	slices.SortStableFunc(b.chosen, func(x, y *Recorded) int {
		return cmp.Or(-cmp.Compare(x.MapVersion, y.MapVersion), cmp.Compare(x.Number, y.Number), cmp.Compare(x.Shard, y.Shard))
	})
	b.checkClusters()
	b.checkMembers()
	b.checkAge()
	return nil
}

func (b *rebuilding) checkClusters() {
	for _, r := range b.chosen[1:] {
		if r.Cluster != b.newest().Cluster {
			b.problem(r.Shard, "other_cluster", fmt.Sprintf("shard %s is of cluster %s, shard %s of cluster %s", r.Shard, r.Cluster, b.newest().Shard, b.newest().Cluster),
				"Name shards of one cluster only.")
		}
	}
}

// checkMembers compares the records with the list of all shards in the newest one.
func (b *rebuilding) checkMembers() {
	seen := map[string]bool{}
	members := b.newest().Members
	b.chosen = slices.DeleteFunc(b.chosen, func(r *Recorded) bool {
		switch {
		case !slices.Contains(members, r.Shard):
			b.warning(r.Shard, "removed", fmt.Sprintf("shard %s is not in map version %d, which others have recorded, so it was left out", r.Shard, b.newest().MapVersion),
				"If it was removed from the cluster: "+dropHint)
			return true
		case seen[r.Shard]:
			b.problem(r.Shard, "same_shard", "two databases say that they are shard "+r.Shard, "Name the one that is in use: a primary, and not its replica or an old copy.")
		}
		seen[r.Shard] = true
		return false
	})
	for _, name := range members {
		if !seen[name] {
			b.problem(name, "missing_shard", fmt.Sprintf("shard %s is in map version %d and was not asked, or has recorded nothing", name, b.newest().MapVersion),
				"Name its address too.")
		}
	}
}

// checkAge counts the records that are behind, and tells of others that differ in what all should have alike.
func (b *rebuilding) checkAge() {
	newest := b.newest()
	for _, r := range b.chosen[1:] {
		if r.MapVersion < newest.MapVersion {
			b.older++
			continue
		}
		for _, difference := range commonDifferences(newest, r) {
			b.problem(r.Shard, "record_differs", fmt.Sprintf("shards %s and %s have recorded map version %d differently: %s", newest.Shard, r.Shard, r.MapVersion, difference),
				"Two maps of one version were published: restore etcd from a backup, or correct the record of the shard that is wrong.")
		}
	}
}

// prove notes what an older record decides, unless it follows from the newest ones.
//
// What a shard had at an older version it may have lost since, to a shard that is behind as well, so that nobody's record
// shows it. But every stretch of a keyspace has an owner in the newest version. If only one shard is behind, and none of the
// others owns the stretch, then that one does. For a pin this holds only if it is known to be there still, from somebody who
// has a copy of it in the newest version: a pin that is removed leaves no gap, its key goes by its range again.
func (b *rebuilding) prove(owner *claim, isThere bool, what func() string) {
	r := owner.record
	if r.MapVersion == b.newest().MapVersion || isThere && b.older == 1 || owner.proven {
		return
	}
	b.unproved[r] = append(b.unproved[r], what())
}

// tellAge tells of records that are behind.
func (b *rebuilding) tellAge() {
	newest := b.newest().MapVersion
	for _, r := range b.chosen {
		if r.MapVersion == newest {
			continue
		}
		behind := fmt.Sprintf("shard %s has recorded map version %d, others %d", r.Shard, r.MapVersion, newest)
		unproved := b.unproved[r]
		switch {
		case len(unproved) == 0:
			b.warning(r.Shard, "older_record", behind+": what was changed since in its own entry, and pins that it was given, are not known",
				"Compare the rebuilt map with a backup before it is put in force.")
		case b.options.AllowOlder:
			b.warning(r.Shard, "older_record", behind+", and it was believed, because that was allowed, in what may be another's by now: "+some(unproved),
				"Look whether the rows are on that shard before the rebuilt map is put in force.")
		default:
			b.problem(r.Shard, "older_record", behind+", and nothing but this older record says who owns what may be another's by now: "+some(unproved),
				"Restore etcd from a backup. If there is none, look whether the rows are on that shard, and allow older records.")
		}
	}
}

func (b *rebuilding) document(all []*Recorded) (topology.Document, error) {
	empty, err := topology.New(b.newest().Cluster)
	if err != nil {
		return topology.Document{}, err
	}
	document := empty.Document()
	for _, r := range all { // also of those that were left out: numbers and versions are never used again
		if r == nil {
			continue
		}
		document.Version = max(document.Version, r.MapVersion+1, r.MinimumVersion+1)
		document.LastShardNumber = max(document.LastShardNumber, r.LastShardNumber, r.Number)
	}
	for _, r := range b.chosen {
		entry := r.Entry
		entry.MinimumVersion = max(entry.MinimumVersion, r.MinimumVersion)
		document.Shards = append(document.Shards, entry)
	}
	slices.SortFunc(document.Shards, func(x, y topology.ShardSpec) int { return cmp.Compare(x.Number, y.Number) })
	for _, table := range b.newest().Tables {
		document.Tables = append(document.Tables, b.table(table))
	}
	for _, k := range b.newest().Keyspaces {
		spec, err := b.keyspace(k.Head)
		if err != nil {
			return topology.Document{}, fmt.Errorf("keyspace %q: %w", k.Head.Name, err)
		}
		b.placeSchemas(&spec, document.Tables)
		document.Keyspaces = append(document.Keyspaces, spec)
	}
	return document, nil
}

// placeSchemas has a keyspace that places schemas place those that were moving where their tables are: of these it is decided who has them.
func (b *rebuilding) placeSchemas(k *topology.KeyspaceSpec, tables []topology.TableSpec) {
	if k.Strategy != topology.BySchema {
		return
	}
	moving := map[string]bool{}
	for _, r := range b.chosen {
		for _, m := range r.Moves {
			for _, schema := range m.Schemas {
				moving[schema] = moving[schema] || m.Keyspace == k.Name
			}
		}
	}
	for _, t := range tables {
		name, err := topology.ParseTableName(t.Name)
		if err != nil || !moving[name.Schema] || t.Kind != topology.Single {
			continue
		}
		pin := topology.PinSpec{Key: topology.Point{name.Schema}, Shard: t.Shard}
		if at := slices.IndexFunc(k.Pins, func(p topology.PinSpec) bool { return slices.Equal(p.Key, pin.Key) }); at >= 0 {
			k.Pins[at] = pin
		} else {
			k.Pins = append(k.Pins, pin)
		}
	}
}

// keyspace puts one keyspace together from what the shards have of it.
func (b *rebuilding) keyspace(head topology.KeyspaceHead) (topology.KeyspaceSpec, error) {
	spec := topology.KeyspaceSpec{KeyspaceHead: head}
	order, err := newOrder(head)
	if err != nil {
		return spec, err
	}
	var ranges []rangeClaim
	pins := map[string][]pinClaim{}
	for _, r := range b.chosen {
		owned := b.matching(r, head)
		if owned == nil {
			continue
		}
		for _, one := range owned.Ranges {
			claim, err := order.claim(r, one)
			if err != nil {
				return spec, fmt.Errorf("shard %s: %w", r.Shard, err)
			}
			ranges = append(ranges, claim)
		}
		for _, one := range owned.Pins {
			encoded, err := order.encode(one.Key)
			if err != nil {
				return spec, fmt.Errorf("shard %s: %w", r.Shard, err)
			}
			pins[encoded] = append(pins[encoded], pinClaim{claim{record: r, state: one.State, held: one.Held}, one.Key})
		}
	}
	spec.Ranges = b.cover(head.Name, ranges)
	spec.Pins = b.pins(head.Name, pins)
	return spec, nil
}

// matching returns what the record has of the keyspace, nil if it has nothing or means another keyspace of that name.
func (b *rebuilding) matching(r *Recorded, head topology.KeyspaceHead) *Keyspace {
	at := slices.IndexFunc(r.Keyspaces, func(k Keyspace) bool { return k.Head.Name == head.Name })
	if at < 0 {
		return nil
	}
	k := &r.Keyspaces[at]
	if k.Head.Strategy != head.Strategy || k.Head.Seed != head.Seed || !slices.Equal(k.Head.Key, head.Key) {
		b.warning(r.Shard, "other_keyspace", fmt.Sprintf("what shard %s has recorded of keyspace %q is of another one of that name, so it was left out", r.Shard, head.Name),
			"Compare the rebuilt map with a backup before it is put in force.")
		return nil
	}
	return k
}

// claim is what a shard says of a range or pin.
type claim struct {
	record *Recorded
	state  State
	held   bool
	// proven: a switch was under way, and what the shards have noted of it says that this one owns it.
	proven bool
}

// settle decides who owns what all of these claim, and who has copies. Nobody is nil.
func (b *rebuilding) settle(keyspace string, claims []claim, what func() string) (owner *claim, copies []topology.CopySpec) {
	for i, c := range claims {
		switch {
		case c.state != Owned:
		case owner == nil:
			owner = &claims[i]
		case c.record.Shard == owner.record.Shard:
		case c.record.MapVersion == owner.record.MapVersion:
			b.problem(c.record.Shard, "two_owners", fmt.Sprintf("%s: shards %s and %s both own it in map version %d", what(), owner.record.Shard, c.record.Shard, c.record.MapVersion),
				"Two maps of one version were published: restore etcd from a backup, or correct the record of the shard that is wrong.")
		default:
			b.warning(c.record.Shard, "two_owners",
				fmt.Sprintf("%s: shard %s owns it in map version %d, shard %s in the newer %d, which is believed; the former is marked as having a copy that is to be removed", what(), c.record.Shard, c.record.MapVersion, owner.record.Shard, owner.record.MapVersion),
				"Look whether the rows are on the right shard.")
		}
	}
	owner = b.afterSwitch(keyspace, owner, claims)
	if owner == nil {
		return nil, nil
	}
	if owner.held || owner.proven {
		b.warning(owner.record.Shard, "switch_under_way", fmt.Sprintf("%s was about to change its owner: it is shard %s's", what(), owner.record.Shard), "The move is ended, and its copy removed.")
	}
	return owner, copiesBeside(owner, claims)
}

// afterSwitch decides who owns what was about to be given to a shard: that one, if it has noted that it has everything, for without the note nobody was told to go there; else the one that owned it.
func (b *rebuilding) afterSwitch(keyspace string, owner *claim, claims []claim) *claim {
	at := slices.IndexFunc(claims, func(c claim) bool { return c.state == Opening })
	if at < 0 {
		return owner
	}
	heir := &claims[at]
	concerns := func(m KnownMove) bool { return m.Keyspace == keyspace }
	switch {
	case owner == nil && slices.ContainsFunc(heir.record.Moves, func(m KnownMove) bool { return concerns(m) && len(m.ArrivedFrom) > 0 }): // who owned it has recorded that it is gone
		owner = heir
	case owner == nil:
		return nil
	case owner.record.Shard != heir.record.Shard && hasArrived(owner.record, heir.record, concerns):
		owner = heir
	}
	owner.proven = true
	return owner
}

// hasArrived says whether a shard has everything of another one that owned it when it recorded last, and has not taken it back since, nor been given it back.
func hasArrived(owner, heir *Recorded, concerns func(KnownMove) bool) bool {
	return slices.ContainsFunc(heir.Moves, func(m KnownMove) bool {
		return concerns(m) && slices.Contains(m.ArrivedFrom, owner.Shard) && !slices.ContainsFunc(owner.Moves, func(of KnownMove) bool {
			return of.ID == m.ID && (of.TakenBack || m.Target == heir.Shard && slices.Contains(of.ArrivedFrom, heir.Shard)) // who rolls back does it once, and last
		})
	})
}

// table is a table as the map has it, on the shard that has it if it was about to be given to another.
func (b *rebuilding) table(spec topology.TableSpec) topology.TableSpec {
	spec.Held = false // nobody is at work
	at := slices.IndexFunc(b.chosen, func(r *Recorded) bool { return r.Shard == spec.Shard })
	if spec.Kind != topology.Single || at < 0 {
		return spec
	}
	concerns := func(m KnownMove) bool { return slices.Contains(m.Whole, spec.Name) }
	for _, r := range b.chosen {
		if r.Shard != spec.Shard && hasArrived(b.chosen[at], r, concerns) {
			b.warning(r.Shard, "switch_under_way", fmt.Sprintf("table %s was about to change its owner: it is on shard %s", spec.Name, r.Shard), "The move is ended, and its copy removed.")
			spec.Shard = r.Shard
			return spec
		}
	}
	return spec
}

// copiesBeside returns the copies on shards other than the owner's, in the order of the shards' numbers.
func copiesBeside(owner *claim, claims []claim) []topology.CopySpec {
	type numbered struct {
		number int
		spec   topology.CopySpec
	}
	var copies []numbered
	for _, c := range claims {
		known := slices.ContainsFunc(copies, func(n numbered) bool { return n.number == c.record.Number })
		if c.record.Shard == owner.record.Shard || known {
			continue
		}
		state := topology.CopyState(c.state)
		switch c.state {
		case Owned:
			state = topology.Leaving
		case Opening: // it did not get it
			state = topology.Incoming
		case Incoming, Leaving:
		}
		copies = append(copies, numbered{c.record.Number, topology.CopySpec{Shard: c.record.Shard, State: state}})
	}
	slices.SortFunc(copies, func(x, y numbered) int { return cmp.Compare(x.number, y.number) })
	var specs []topology.CopySpec
	for _, n := range copies {
		specs = append(specs, n.spec)
	}
	return specs
}

type pinClaim struct {
	claim
	key topology.Point
}

func (b *rebuilding) pins(keyspace string, pins map[string][]pinClaim) []topology.PinSpec {
	var specs []topology.PinSpec
	for _, encoded := range sortedKeys(pins) {
		group := pins[encoded]
		claims := make([]claim, len(group))
		for i, p := range group {
			claims[i] = p.claim
		}
		what := func() string { return fmt.Sprintf("keyspace %q, pinned key %s", keyspace, group[0].key) }
		owner, copies := b.settle(keyspace, claims, what)
		if owner == nil {
			b.orphan(group[0], what())
			continue
		}
		// The newest record comes first.
		b.prove(owner, claims[0].record.MapVersion == b.newest().MapVersion, what)
		specs = append(specs, topology.PinSpec{Key: group[0].key, Shard: owner.record.Shard, Copies: copies})
	}
	return specs
}

// orphan tells of a pin of which there is a copy but no owner. In an old record it may be one that was removed since.
func (b *rebuilding) orphan(p pinClaim, what string) {
	message := fmt.Sprintf("%s: shard %s has a copy, but nobody owns it", what, p.record.Shard)
	if p.record.MapVersion < b.newest().MapVersion {
		b.warning(p.record.Shard, "no_owner", message+"; the copy is in an older record and was left out", "Look whether that shard has rows which it should not have.")
		return
	}
	b.problem(p.record.Shard, "no_owner", message, "A shard is probably missing: name all of them.")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
