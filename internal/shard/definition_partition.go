package shard

import (
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
	"github.com/cleavedb/cleave/internal/topology"
)

// Partition is a part of a partitioned table, or of a partition that is divided again. All that it has is its parent's, but for what is here.
type Partition struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
	// ParentSchema and Parent are those of the table that it is a part of.
	ParentSchema string `json:"parent_schema"`
	Parent       string `json:"parent"`
	// Bound is FOR VALUES … or DEFAULT; Key is PARTITION BY's if it is divided again.
	Bound   string   `json:"bound"`
	Key     string   `json:"key"`
	Owner   string   `json:"owner"`
	Options []string `json:"options"`
	// Odd is what it has of its own, which is not carried over; empty if there is nothing.
	Odd string `json:"odd"`
	// DefaultGrants: nobody has been given or taken anything.
	DefaultGrants bool    `json:"default_grants"`
	Grants        []Grant `json:"grants"`
}

// oddIdentity is told of a partition that has nothing else of its own.
const oddIdentity = "a replica identity"

// ReplicaIdentity is the replica identity of a table, as PostgreSQL's catalogue has it, and the index that it names.
type ReplicaIdentity struct{ Kind, Index string }

// WithIdentities takes back, in the definition, the replica identities that the table and its partitions have for a time: these are those that they had before.
func (d *Definition) WithIdentities(before map[topology.TableName]ReplicaIdentity) {
	if was, changed := before[d.Table]; changed {
		d.Identity, d.IdentityIndex = was.Kind, was.Index
	}
	for i, p := range d.Partitions {
		if was, changed := before[p.table()]; changed && was.Kind == "d" && p.Odd == oddIdentity {
			d.Partitions[i].Odd = ""
		}
	}
}

// partitionsQuery lists partitions, parents first. Columns are compared by all that a partition may have otherwise than its parent.
var partitionsQuery = `
	SELECT coalesce(json_agg(json_build_object('schema', n.nspname, 'name', c.relname, 'parent_schema', pn.nspname, 'parent', p.relname,
			'bound', coalesce(pg_get_expr(c.relpartbound, c.oid), ''), 'key', coalesce(pg_get_partkeydef(c.oid), ''), 'owner', pg_get_userbyid(c.relowner),
			'options', coalesce(to_json(c.reloptions), '[]'), 'default_grants', c.relacl IS NULL, 'grants', ` + grantsOf("coalesce(c.relacl, acldefault('r', c.relowner))") + `,
			'odd', CASE
				WHEN c.relkind NOT IN ('r', 'p') THEN 'being a foreign table'
				WHEN c.relpersistence <> root.relpersistence THEN 'being logged or not'
				WHEN c.reltablespace <> 0 THEN 'a tablespace'
				WHEN c.relkind = 'r' AND (SELECT amname FROM pg_am WHERE oid = c.relam) <> 'heap' THEN 'an access method'
				WHEN c.relrowsecurity OR EXISTS (SELECT FROM pg_policy WHERE polrelid = c.oid) THEN 'row security'
				WHEN EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid) THEN 'rules'
				WHEN EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgparentid = 0 AND ` + usersTrigger + `) THEN 'triggers'
				WHEN EXISTS (SELECT FROM pg_trigger t JOIN pg_trigger up ON up.oid = t.tgparentid WHERE t.tgrelid = c.oid AND t.tgenabled <> up.tgenabled) THEN 'triggers that are on or off'
				WHEN EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = i.indexrelid)) THEN 'indexes'
				WHEN EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('c', 'u', 'p', 'x', 'f') AND k.conparentid = 0 AND k.coninhcount = 0) THEN 'constraints'
				WHEN EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = c.oid) THEN 'a publication'
				WHEN ` + partitionColumns("c.oid") + ` IS DISTINCT FROM ` + partitionColumns("root.oid") + ` THEN 'columns'
				WHEN c.relreplident <> 'd' THEN '` + oddIdentity + `'
				ELSE '' END) ORDER BY t.level, n.nspname COLLATE "C", c.relname COLLATE "C"), '[]')
	FROM pg_partition_tree($1::oid::regclass) t JOIN pg_class root ON root.oid = $1 JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
	JOIN pg_class p ON p.oid = t.parentrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
	WHERE t.level > 0`

// partitionColumns is SQL for what may differ in the columns of a table.
func partitionColumns(table string) string {
	return `(SELECT array_agg(row(a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attnotnull, a.attstorage, a.attcompression, a.attacl, pg_get_expr(d.adbin, d.adrelid))::text ORDER BY a.attnum)
		FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = ` + table + ` AND a.attnum > 0 AND NOT a.attisdropped)`
}

// IsPartitioned says whether it has partitions, which PostgreSQL looks after on every shard.
func (d *Definition) IsPartitioned() bool { return d.facts.Kind == "p" }

// checkPartitions is about partitions.
func (d *Definition) checkPartitions(sharded bool) error {
	if d.facts.Partition {
		return d.unsupported("It is a partition.", "Declare the table that it is a part of.")
	}
	if d.IsPartitioned() && !sharded {
		return d.unsupported("It is partitioned.", "Make an ordinary table of it; every shard has all of its rows.")
	}
	for _, p := range d.Partitions {
		if p.Odd != "" {
			return d.unsupported(fmt.Sprintf("Its partition %s has %s of its own, which is not carried over to other shards.", p.table(), p.Odd), "Give it to the whole table, or take it away.")
		}
	}
	return nil
}

func (p Partition) table() topology.TableName {
	return topology.TableName{Schema: p.Schema, Name: p.Name}
}

// statements make a partition.
func (p Partition) statements() []string {
	name := p.table().String()
	sql := fmt.Sprintf("CREATE TABLE %s PARTITION OF %s %s", name, topology.TableName{Schema: p.ParentSchema, Name: p.Parent}, p.Bound)
	if p.Key != "" {
		sql += " PARTITION BY " + p.Key
	}
	if len(p.Options) > 0 {
		sql += " WITH (" + optionList(p.Options) + ")"
	}
	statements := []string{sql, fmt.Sprintf("ALTER TABLE %s OWNER TO %s", name, sqltext.QuoteIdentifier(p.Owner))}
	if p.DefaultGrants {
		return statements
	}
	statements = append(statements, fmt.Sprintf("REVOKE ALL ON TABLE %s FROM PUBLIC, %s", name, sqltext.QuoteIdentifier(p.Owner)))
	return append(statements, grantStatements("TABLE "+name, "", p.Grants)...)
}

// wholeIndex makes an index on all partitions: PostgreSQL prints that of the partitioned table alone.
func (d *Definition) wholeIndex(definition string) string {
	if !d.IsPartitioned() {
		return definition
	}
	return strings.Replace(definition, " ON ONLY ", " ON ", 1)
}

// alone is what stands before a table's name in a statement about it alone. Constraints of a partitioned table are its partitions' too.
func (d *Definition) alone() string {
	if d.IsPartitioned() {
		return ""
	}
	return "ONLY "
}
