package plan

import (
	"strings"

	"github.com/cleavedb/cleave/internal/facts"
	"github.com/cleavedb/cleave/internal/pgerr"
)

// Reasons to keep a backend with its session.
const (
	pinTemporary Pin = "temporary table"
	pinListen    Pin = "LISTEN"
	pinAdvisory  Pin = "advisory lock"
	pinHold      Pin = "cursor WITH HOLD"
	pinLoad      Pin = "LOAD"
	pinSetConfig Pin = "set_config"
)

// effect is what a function of PostgreSQL does besides computing a value.
type effect uint8

const (
	// reads: volatile, but it changes nothing. The zero effect is what the volatility says.
	reads effect = iota + 1
	// sameEverywhere: not immutable, but every shard's answer is as good, and it changes nothing.
	sameEverywhere
	// locksSession and unlocks are advisory locks that last as long as the session, locksTransaction those of a transaction.
	locksSession
	locksTransaction
	unlocks
	// usesSequence: the sequence is the home shard's; asksSession: the answer is kept in the backend's session.
	usesSequence
	asksSession
	// setsParameter is set_config.
	setsParameter
	// runsSQL: it runs SQL that it is given as text, or reads tables that it is given as names.
	runsSQL
	// isHome: it changes something that belongs to the home shard, such as notifications.
	isHome
	// largeObject: it reads or writes a large object.
	largeObject
)

// effects are the functions of PostgreSQL and its usual extensions that the planner has to know by name.
var effects = effectsByName(map[effect]string{
	reads: `pg_backend_pid pg_relation_size pg_table_size pg_total_relation_size pg_indexes_size pg_database_size
		pg_tablespace_size pg_is_in_recovery pg_current_wal_lsn pg_current_wal_insert_lsn pg_current_wal_flush_lsn
		pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_blocking_pids pg_stat_get_activity pg_lock_status pg_cursor
		pg_prepared_statement pg_prepared_xact pg_show_all_settings pg_timezone_names inet_server_addr`,
	sameEverywhere: `pg_sleep pg_sleep_for pg_sleep_until now transaction_timestamp statement_timestamp clock_timestamp timeofday random random_normal gen_random_uuid
		to_char to_date to_timestamp to_number date_part date_trunc date_bin extract age timezone timestamptz timestamp date time
		make_timestamptz isfinite concat concat_ws format to_json to_jsonb json_build_object json_build_array jsonb_build_object
		jsonb_build_array json_agg jsonb_agg json_object_agg jsonb_object_agg row_to_json array_to_json array_to_string
		string_to_array generate_series text convert_from convert_to quote_literal quote_nullable
		json_populate_record jsonb_populate_record json_to_record jsonb_to_record json_to_recordset jsonb_to_recordset
		to_tsvector to_tsquery plainto_tsquery websearch_to_tsquery phraseto_tsquery ts_headline`,
	locksSession:     `pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared`,
	unlocks:          `pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all`,
	locksTransaction: `pg_advisory_xact_lock pg_advisory_xact_lock_shared pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared`,
	usesSequence:     `nextval setval pg_sequence_last_value`,
	asksSession:      `currval lastval`,
	setsParameter:    `set_config`,
	isHome:           `pg_notify pg_export_snapshot txid_current pg_current_xact_id pg_listening_channels`,
	largeObject: `lo_creat lo_create lo_open lo_close loread lowrite lo_lseek lo_lseek64 lo_tell lo_tell64 lo_truncate
		lo_truncate64 lo_unlink lo_import lo_export lo_from_bytea lo_put lo_get`,
	runsSQL: `query_to_xml query_to_xmlschema query_to_xml_and_xmlschema table_to_xml table_to_xmlschema table_to_xml_and_xmlschema
		cursor_to_xml cursor_to_xmlschema schema_to_xml schema_to_xmlschema schema_to_xml_and_xmlschema database_to_xml
		database_to_xmlschema database_to_xml_and_xmlschema ts_stat ts_rewrite crosstab crosstab2 crosstab3 crosstab4
		crosstab_hash connectby xpath_table pgstattuple pgstattuple_approx pgstatindex`,
})

func effectsByName(lists map[effect]string) map[string]effect {
	byName := map[string]effect{}
	for e, list := range lists {
		for _, name := range strings.Fields(list) {
			byName[name] = e
		}
	}
	return byName
}

// effectOf is what a function does, by its name: one that only shares the name of PostgreSQL's is treated alike.
func effectOf(name string) effect {
	if strings.HasPrefix(name, "dblink") {
		return runsSQL
	}
	return effects[name]
}

// isSystem says whether a call can only mean one of PostgreSQL's own functions.
func (p *planner) isSystem(c facts.Call) bool {
	overloads := p.known.Functions[FunctionName{Schema: c.Schema, Name: c.Name}]
	for _, f := range overloads {
		if !f.System {
			return false
		}
	}
	return len(overloads) > 0
}

// isOwnCode says whether a function is written by users in a language in which it can set parameters, whatever it was declared.
func (f *Function) isOwnCode() bool {
	return !f.System && !f.ExtensionMember && f.Language != "c" && f.Language != "internal"
}

// mayReadTables says whether a function may run statements of its own that nobody sees.
func (f *Function) mayReadTables() bool {
	switch {
	case f.System:
		return false
	case f.Kind == 'a' || f.Kind == 'w':
		return !f.ExtensionMember // an aggregate's language says nothing about the functions that it is made of
	case f.Language == "c" || f.Language == "internal":
		return false
	default:
		return f.Volatility != 'i'
	}
}

// calls adds what the functions of a statement ask for.
func (v *survey) calls(s *facts.Statement) {
	for _, c := range s.Calls {
		if v.p.isOurs(c) {
			v.ownCall(c)
			continue
		}
		if name := (FunctionName{Schema: c.Schema, Name: c.Name}); !c.Word || len(v.p.known.Functions[name]) > 0 || v.p.maybeElsewhere(name) {
			v.function(name)
		}
		v.effect(c)
		if v.p.Dumps {
			v.dumpedDefinition(&c)
		}
		if len(c.Arguments) == 1 {
			v.hidden(FunctionName{Schema: c.Schema, Name: c.Name, Kind: OfType})
		}
	}
	for _, field := range s.Fields {
		if v.isColumn(field) && !v.p.altered {
			continue
		}
		if len(v.p.known.Functions[FunctionName{Name: field}]) > 0 {
			v.function(FunctionName{Name: field})
		}
		v.hidden(FunctionName{Name: field, Kind: OfType})
	}
	for _, t := range s.Types {
		if _, known := typeOIDs[t.Name]; !known || t.Schema != "" && t.Schema != "pg_catalog" {
			v.prefersHome("the type " + t.Name)
		}
		v.named(FunctionName{Schema: t.Schema, Name: t.Name, Kind: OfType})
	}
	for _, o := range s.Operators {
		v.named(FunctionName{Schema: o.Schema, Name: o.Name, Kind: OfOperator})
	}
}

// named adds what the functions behind an operator or a type ask for, whichever it is; nobody knows of one that is where the
// catalogue does not look.
func (v *survey) named(name FunctionName) {
	if len(v.p.known.Functions[name]) == 0 && v.p.maybeElsewhere(name) {
		v.opaque(name)
	}
	v.hidden(name)
}

// hidden adds what the functions behind an operator or a type ask for, as far as they are users' own: extensions are trusted.
func (v *survey) hidden(name FunctionName) {
	for _, f := range v.p.known.Functions[name] {
		if f.System || f.ExtensionMember {
			continue
		}
		if f.mayReadTables() {
			v.opaque(name)
		}
		v.taints = v.taints || f.isOwnCode()
		v.changes = v.changes || f.Volatility == 'v'
		v.prefersHome("the " + name.Kind.word() + " " + name.Name)
	}
}

// maybeElsewhere says whether a name that the catalogue does not know may be one of a schema on another shard, or of the
// session's own.
func (p *planner) maybeElsewhere(name FunctionName) bool {
	return name.Schema == "" && len(p.placedAway()) > 0 || isTemporarySchema(name.Schema)
}

// word is what has a name of that kind.
func (k NameKind) word() string {
	return [...]string{OfFunction: "function", OfOperator: "operator", OfType: "type"}[k]
}

// isColumn says whether one of the statement's relations has such a column.
func (v *survey) isColumn(name string) bool {
	for i := range v.tables {
		if r := v.tables[i].relation; r != nil && r.column(name) != nil {
			return true
		}
	}
	return false
}

// function adds what a function's definition tells, whichever overload it is.
func (v *survey) function(name FunctionName) {
	overloads := v.p.known.Functions[name]
	if len(overloads) == 0 {
		v.changes = true
		v.prefersHome("the function " + name.Name)
		if v.p.maybeElsewhere(name) {
			v.opaque(name)
		}
		return
	}
	same := effectOf(name.Name)
	for i := range overloads {
		f := &overloads[i]
		switch {
		case !f.mayReadTables():
		case v.p.sharded && (f.ShardLocal || v.p.ShardLocal != nil && v.p.ShardLocal(f.Schema, f.Name)):
			v.local, v.mayDefine = name.Name, true
		default:
			v.opaque(name)
		}
		v.taints = v.taints || f.isOwnCode()
		harmless := f.System && (f.Volatility == 'i' || f.Volatility == 's' || same == reads || same == sameEverywhere)
		v.changes = v.changes || !harmless
		if !f.System || f.Volatility != 'i' && same != sameEverywhere {
			v.prefersHome("the function " + name.Name)
		}
	}
}

// opaque notes a function that may do anything, by its own name or by that of what runs it.
func (v *survey) opaque(name FunctionName) {
	word := name.Kind.word()
	v.taints, v.mayDefine, v.changes = true, true, true
	v.prefersHome("the " + word + " " + name.Name)
	v.refuseOpaque(name)
}

// refuseOpaque refuses a function that may do anything while there are sharded tables.
func (v *survey) refuseOpaque(name FunctionName) {
	if !v.p.sharded {
		return
	}
	word := name.Kind.word()
	refusal := pgerr.New(pgerr.FeatureNotSupported, "%s %q is not supported while %s", word, name.Name, v.p.while)
	if name.Kind == OfFunction {
		refusal = refusal.WithDetail("It may read or write sharded tables unseen, on one shard only: it is not known to be IMMUTABLE or written in C.").
			WithHint("Declare it IMMUTABLE if it reads no tables. If it uses only rows that are on one shard with those of the statement: SELECT cleave.shard_local_function(…). Else run its statements from the application.")
	} else {
		refusal = refusal.WithDetail("It runs a function that may read or write sharded tables unseen, on one shard only: it is not known to be IMMUTABLE or written in C.").
			WithHint("%s", immutableHint)
	}
	v.out.refuse(word+"-may-read-tables", refusal)
}

// refuseLocal refuses a function that uses the rows of one shard where no key says which.
func (v *survey) refuseLocal() {
	v.out.refuse("local-function-place", pgerr.New(pgerr.FeatureNotSupported, "function %q uses the rows of one shard, and the statement does not say of which", v.local).
		WithDetail("It was declared to be local to the shard of the statement that calls it.").
		WithHint("Call it in a statement on a sharded table whose key is bound to a value."))
}

// effect adds what a function of PostgreSQL does besides computing.
func (v *survey) effect(c facts.Call) {
	switch effectOf(c.Name) {
	case locksSession:
		v.callNeedsHome("advisory locks are the home shard's")
		v.out.Pin = pinAdvisory
	case locksTransaction, unlocks:
		v.callNeedsHome("advisory locks are the home shard's")
	case usesSequence:
		v.callNeedsHome("sequences are the home shard's")
		if c.Name != "pg_sequence_last_value" {
			v.numberCall(&c)
		}
	case asksSession:
		if v.numberCall(&c) {
			v.prefersHome("sequences are the home shard's")
			break
		}
		v.callNeedsHome("sequences are the home shard's")
		v.out.NeedsSession = true
	case isHome:
		v.callNeedsHome(c.Name + " belongs to the home shard")
	case largeObject:
		v.callNeedsHome(c.Name + " belongs to the home shard")
		if v.p.Map.ShardCount() > 1 {
			v.out.refuse("large-object", pgerr.New(pgerr.FeatureNotSupported, "large objects are not supported on several shards").
				WithDetail("%s works on one server's large objects, which do not belong to a table and so to no shard.", c.Name).WithHint("Use a column of type bytea."))
		}
	case setsParameter:
		v.setConfig(c)
	case runsSQL:
		v.runsText(c.Name)
	default:
	}
}

func (v *survey) runsText(name string) {
	v.taints, v.mayDefine = true, true
	v.callNeedsHome(name + " runs SQL of its own")
	if v.p.sharded {
		v.out.refuse("function-runs-sql", pgerr.New(pgerr.FeatureNotSupported, "function %q is not supported while %s", name, v.p.while).
			WithDetail("It runs SQL that it is given as text, or reads tables that it is given by name, on one shard only.").
			WithHint("Send the query itself, and write its rows in that form in the application."))
	}
}
