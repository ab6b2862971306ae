package shard

import (
	"fmt"
	"slices"
	"strings"
)

// plainTypes are types whose binary form means the same on every server, by their OIDs and those of their arrays. A user's type has
// another OID on every shard, and arrays and composites of it carry that OID; reg* types are nothing but OIDs.
var plainTypes = map[uint32]bool{
	16: true, 1000: true, // boolean
	21: true, 1005: true, 23: true, 1007: true, 20: true, 1016: true, // integers
	700: true, 1021: true, 701: true, 1022: true, 1700: true, 1231: true, // other numbers
	25: true, 1009: true, 1043: true, 1015: true, 1042: true, 1014: true, 17: true, 1001: true, // texts
	2950: true, 2951: true, // uuid
	1082: true, 1182: true, 1083: true, 1183: true, 1266: true, 1270: true, 1114: true, 1115: true, 1184: true, 1185: true, 1186: true, 1187: true, // times
	114: true, 199: true, 3802: true, 3807: true, // JSON
	869: true, 1041: true, 650: true, 651: true, // addresses
}

// copyOptions chooses the form in which rows go from shard to shard: binary where it is sure to mean the same there.
func (d *Definition) copyOptions() string {
	for _, c := range d.Columns {
		if c.Generated == "" && !plainTypes[c.TypeOID] {
			return "(FORMAT text)"
		}
	}
	return "(FORMAT binary)"
}

// copyColumns lists the columns that rows are copied with: what is generated is generated again.
func (d *Definition) copyColumns() string { return list(quoted(d.carried())) }

// readSQL streams rows out, which the condition selects.
func (d *Definition) readSQL(where string) string {
	return fmt.Sprintf("COPY (SELECT %s FROM %s AS %s WHERE %s) TO STDOUT %s", d.copyColumns(), d.Table, rowAlias, where, d.copyOptions())
}

// ReadAllSQL streams all rows out.
func (d *Definition) ReadAllSQL() string { return d.readSQL("true") }

// WriteSQL takes in what [Part.ReadSQL] or [Definition.ReadAllSQL] streams out.
func (d *Definition) WriteSQL() string {
	return fmt.Sprintf("COPY %s (%s) FROM STDIN %s", d.Table, d.copyColumns(), d.copyOptions())
}

// CopySettings make a transaction ready for rows that are copied from shard to shard: they are taken as they are, without triggers that
// might change them, all of them, in a form that does not depend on what was set for the role or the database, however long it takes.
var CopySettings = "SET LOCAL " + strings.Join(slices.Concat(compareSettings, []string{
	"session_replication_role = replica", "check_function_bodies = off", "default_tablespace = ''", "default_toast_compression = pglz", "default_table_access_method = heap",
}), "; SET LOCAL ")
