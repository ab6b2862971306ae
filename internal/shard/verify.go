package shard

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// Verify says whether the record of the shard of this name agrees with the map. With a problem the map must not be served.
// Whoever asks about many shards calls [Prepare] once and [Plan.Verify] for each.
func Verify(m *topology.Map, name string, r *Recorded) []api.Finding {
	return verify(m, name, r, func() (*Recorded, error) { return expectedOf(m, name) })
}

// verify asks for what is expected only if there is anything to compare it with.
func verify(m *topology.Map, name string, r *Recorded, expected func() (*Recorded, error)) []api.Finding {
	var f findings
	switch {
	case r.Cluster == "":
		f.problem("not_claimed", fmt.Sprintf("the database of shard %s belongs to no cluster: it is not the one that was added, or its schema cleave was dropped", name),
			"Correct the shard's address, or restore the database.")
	case r.Cluster != m.Cluster():
		f.problem("other_cluster", fmt.Sprintf("the database of shard %s belongs to cluster %s as shard %s", name, r.Cluster, r.Shard), "Correct the shard's address.")
	case r.Shard != name:
		f.problem("other_shard", fmt.Sprintf("the database of shard %s is that of shard %s", name, r.Shard), "Correct the addresses of both.")
	case r.MapVersion > m.Version() || r.MinimumVersion > m.Version():
		f.problem("map_older", fmt.Sprintf("the map, version %d, is older than shard %s, which has recorded version %d and asks for %d: do not serve", m.Version(), name, r.MapVersion, r.MinimumVersion),
			"The map may come from an old backup: rebuild it from the shards, or bring back the newer one.")
	case r.MapVersion < m.Version():
		f.warning("not_recorded", fmt.Sprintf("shard %s has recorded map version %d, the map has %d", name, r.MapVersion, m.Version()),
			"The leader writes it by itself; if this stays, see its log.")
	default:
		f.verifyContent(name, r, expected)
	}
	f.about(name, 0)
	return f
}

// verifyContent compares a record with the map of the same version.
func (f *findings) verifyContent(name string, r *Recorded, expected func() (*Recorded, error)) {
	want, err := expected()
	if err != nil {
		f.problem("unknown_shard", fmt.Sprintf("the map has no shard %s, which has recorded the same version %d", name, r.MapVersion), "If it was removed from the cluster: "+dropHint)
		return
	}
	const hint = "Two maps of one version were published, or somebody has changed the tables of schema cleave: rebuild the map from the shards, which gives it a newer version."
	for _, difference := range differences(want, r) {
		f.problem("record_differs", fmt.Sprintf("shard %s has recorded map version %d differently: %s", name, r.MapVersion, difference), hint)
	}
}

// differences says in words what differs between two records of one version, a word for each kind of thing.
func differences(want, have *Recorded) []string {
	var all []string
	if want.Number != have.Number || !equalJSON(want.Entry, have.Entry) {
		all = append(all, "the shard's own entry")
	}
	all = append(all, commonDifferences(want, have)...)
	names := map[string]Keyspace{}
	for _, k := range have.Keyspaces {
		names[k.Head.Name] = k
	}
	for _, k := range want.Keyspaces {
		recorded, there := names[k.Head.Name]
		if !there {
			continue // told already, among what all shards have in common
		}
		if missing, stray := difference(k.Ranges, recorded.Ranges); missing+stray > 0 {
			all = append(all, fmt.Sprintf("in keyspace %q %d ranges are missing and %d are not the map's", k.Head.Name, missing, stray))
		}
		if missing, stray := difference(k.Pins, recorded.Pins); missing+stray > 0 {
			all = append(all, fmt.Sprintf("in keyspace %q %d pins are missing and %d are not the map's", k.Head.Name, missing, stray))
		}
	}
	return all
}

// commonDifferences is about what all shards record alike.
func commonDifferences(a, b *Recorded) []string {
	var all []string
	if a.LastShardNumber != b.LastShardNumber || !slices.Equal(a.Members, b.Members) {
		all = append(all, "which shards there are")
	}
	if !slices.EqualFunc(a.Keyspaces, b.Keyspaces, func(a, b Keyspace) bool { return equalJSON(a.Head, b.Head) }) {
		all = append(all, "the keyspaces' definitions")
	}
	if !slices.EqualFunc(a.Tables, b.Tables, equalJSON[topology.TableSpec]) {
		all = append(all, "the tables' definitions")
	}
	return all
}

func difference[R row](want, have []R) (missing, stray int) {
	wanted := make(map[rowID]bool, len(want))
	for _, one := range want {
		wanted[one.id()] = true
	}
	for _, one := range have {
		if id := one.id(); wanted[id] {
			delete(wanted, id)
		} else {
			stray++
		}
	}
	return len(wanted), stray
}

func equalJSON[T any](a, b T) bool {
	left, leftErr := json.Marshal(a)
	right, rightErr := json.Marshal(b)
	return leftErr == nil && rightErr == nil && string(left) == string(right)
}
