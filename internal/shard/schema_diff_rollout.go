package shard

import (
	"fmt"
	"slices"

	"github.com/cleavedb/cleave/internal/api"
	"github.com/cleavedb/cleave/internal/topology"
)

// DiffSchemasDuring is [DiffSchemas] while roll-outs are open. Shards of one form are compared with each other, and so are those of the other;
// what the two forms differ in is the roll-out's, and told as that.
func DiffSchemasDuring(m *topology.Map, looks []*SchemaLook, rollouts []topology.Rollout) []api.Finding {
	var f findings
	for _, t := range m.Tables() {
		i := slices.IndexFunc(rollouts, func(r topology.Rollout) bool { return r.IsOpen() && r.Changes(t.Name()) })
		if i < 0 {
			f.diffTable(t, looks)
			continue
		}
		with, without := formsOf(rollouts[i], looks)
		f.diffTable(t, with)
		f.diffTable(t, without)
		f.twoForms(t.Name(), rollouts[i], with, without)
	}
	for _, s := range looks {
		f.extraTables(m, s)
	}
	return f
}

// formsOf divides looks into those at shards that have the change and the others.
func formsOf(r topology.Rollout, looks []*SchemaLook) (with, without []*SchemaLook) {
	for _, look := range looks {
		if slices.ContainsFunc(r.Shards, func(s topology.RolloutShard) bool { return s.Name == look.Shard && s.State == topology.ShardApplied }) {
			with = append(with, look)
		} else {
			without = append(without, look)
		}
	}
	return with, without
}

// twoForms says in what the forms of a table differ. Of each form one shard that has the table stands for all.
func (f *findings) twoForms(name topology.TableName, r topology.Rollout, with, without []*SchemaLook) {
	has := func(s *SchemaLook) bool { return s.Tables[name] != nil }
	a, b := slices.IndexFunc(with, has), slices.IndexFunc(without, has)
	if a < 0 || b < 0 {
		return
	}
	for _, words := range diffWords(with[a].Tables[name], without[b].Tables[name], with[a].Shard, without[b].Shard) {
		*f = append(*f, api.Finding{
			Severity: api.Warning, Code: api.RolloutOpenFinding, Message: fmt.Sprintf("table %s: %s: roll-out %q is open", name, words, r.Name),
			Hint: "It ends with 'cleave schema rollout finish' or 'cleave schema rollout undo'.",
		})
	}
}
