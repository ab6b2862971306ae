package plan

import (
	"slices"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/topology"
)

// obeyHint refuses what does not run where the client says that it is meant to: a hint is no reason to do more than was asked for.
func (p *planner) obeyHint(out *Statement) {
	switch {
	case out.Refusal != nil:
	case p.HintShard != "" && !p.follows(out):
		where := "It runs on shard " + p.Home + "."
		switch out.Route.Level {
		case Home:
		case OnShard:
			where = "It runs on shard " + out.Route.Shard + "."
		case Everywhere, Several, Composed:
			where = "It runs on several shards."
		case Anywhere, Keyed, AnyOwner:
			where = "It runs where its keys are."
		}
		out.refuse("hint-not-followed", pgerr.New(pgerr.FeatureNotSupported, "%s cannot be sent to a shard by a routing hint", out.Name).
			WithDetail("The hint names shard %q. %s", p.HintShard, where).WithHint("Send it without the hint, or connect to that shard itself."))
	case p.HintKey && out.Route.Level == Everywhere && slices.ContainsFunc(out.Alters, p.isSharded):
		out.refuse("hint-not-followed", pgerr.New(pgerr.FeatureNotSupported, "%s of a sharded table is not supported while cleave.shard_key is set", out.Name).
			WithDetail("The setting says that statements without a key are meant for one shard, and this one runs on all of them.").WithHint("RESET cleave.shard_key"))
	}
}

// follows says whether a statement runs on the shard of the client's hint, or in the session itself.
func (p *planner) follows(out *Statement) bool {
	switch {
	case out.Command == Execute: // where the prepared statement runs is decided by its own text
		return false
	case out.Command != Pass, out.Route.Hinted, p.Map.ShardCount() == 1:
		return true
	case out.Route.Level == OnShard:
		return out.Route.Shard == p.HintShard
	case out.Route.Level == Home:
		return p.Home == p.HintShard
	default:
		return out.Route.Level == Anywhere
	}
}

func (p *planner) isSharded(name RelationName) bool {
	t := p.Map.Table(name.Schema, name.Name)
	return t != nil && t.Kind() == topology.Sharded
}
