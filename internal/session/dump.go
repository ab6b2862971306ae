package session

import (
	"strings"

	"github.com/cleavedb/cleave/internal/plan"
	"github.com/cleavedb/cleave/internal/sqltext"
)

// A dump is to be restored into a database that is no shard of anything, so pg_dump does not see what is the router's own on the
// home shard: the schema cleave and the guards' triggers.

// dumps says whether the client is pg_dump, by the name that it gives itself.
func (s *session) dumps() bool { return s.application == "pg_dump" && !s.planningAside }

const catalogPrefix = "pg_catalog."

// ownSchema is the number of the schema.
const ownSchema = "coalesce(pg_catalog.to_regnamespace('cleave')::pg_catalog.oid, 0)"

// notOwn says, by catalogue, which rows are not the router's own.
var notOwn = map[string]string{
	"pg_class": "relnamespace <> " + ownSchema, "pg_namespace": "oid <> " + ownSchema, "pg_proc": "pronamespace <> " + ownSchema, "pg_type": "typnamespace <> " + ownSchema,
	"pg_trigger": "tgfoid NOT IN (SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace = " + ownSchema + ")",
}

// catalogWithoutOwn stands for a catalogue in a statement of pg_dump's; empty if the view is none.
func catalogWithoutOwn(v *plan.Virtual) string {
	name, isCatalog := strings.CutPrefix(v.Name, catalogPrefix)
	if !isCatalog || notOwn[name] == "" {
		return ""
	}
	text := "(SELECT tableoid, * FROM pg_catalog." + name + " WHERE " + notOwn[name] + ")"
	if !v.Aliased {
		text += " AS " + sqltext.QuoteIdentifier(name)
	}
	return text
}
