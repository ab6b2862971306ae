package session

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/pgerr"
	"github.com/cleavedb/cleave/internal/pool"
	"github.com/cleavedb/cleave/internal/topology"
)

// The guards that keep rows off shards which do not own them are ordinary triggers: they must not fire for rows that a subscription brings
// while a range moves. So nobody may switch ordinary triggers off who comes through the router. The planner refuses the statements that
// would; here is what does not come as a statement.

// triggersParameter says whether ordinary triggers fire.
const triggersParameter = "session_replication_role"

var triggersOff = pgerr.New(pgerr.FeatureNotSupported, "%s = replica is not supported while there are sharded or reference tables", triggersParameter).
	WithDetail("It switches triggers off, those among them that keep rows off shards which do not own them.").WithHint("SET %s = origin.", triggersParameter)

// hasGuards says whether there are tables that guards stand on.
func hasGuards(m *topology.Map) bool {
	return m != nil && slices.ContainsFunc(m.Tables(), func(t *topology.Table) bool { return t.Kind() != topology.Single })
}

// switchesOff says whether settings switch ordinary triggers off.
func switchesOff(s *settings) bool {
	e, set := s.find(triggersParameter)
	return set && isOffFor(e)
}

func isOffFor(e setting) bool {
	return e.name == triggersParameter && slices.ContainsFunc(e.values, func(v string) bool { return strings.EqualFold(strings.TrimSpace(v), "replica") })
}

// triggersStayOn refuses a client that begins with triggers switched off.
func (s *Server) triggersStayOn(wanted []setting) *pgerr.Error {
	if slices.ContainsFunc(wanted, isOffFor) && hasGuards(s.see().m) {
		return triggersOff
	}
	return nil
}

// triggersAreOn refuses a backend whose role or database begins with triggers switched off.
func triggersAreOn(ctx context.Context, b *pool.Backend) error {
	rows, err := b.Exec(ctx, "SELECT pg_catalog.current_setting('"+triggersParameter+"')")
	if err != nil {
		return err
	}
	if len(rows) == 1 && string(rows[0][0]) == "replica" {
		return pgerr.New(pgerr.FeatureNotSupported, "%s = replica is not supported", triggersParameter).
			WithDetail("Shard %q gives it to the role or the database. It switches triggers off, those among them that keep rows off shards which do not own them.", b.ShardName()).
			WithHint("Run there: ALTER ROLE … RESET %[1]s, or ALTER DATABASE … RESET %[1]s.", triggersParameter)
	}
	return nil
}
