package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/internal/sqltext"
)

// fillTrigger is the trigger that fills in the key of rows whose writer does not know it. Its name is one that routers let people drop.
const fillTrigger = "fill_shard_key"

// fillBatch is how many rows are filled in one transaction: few enough that nobody waits long for one of them.
const fillBatch = 2000

// fillObject names the function and the sequence of a table's trigger.
func fillObject(t *Table) string { return adoptSchema + "." + quote(cutName(t.Schema+"."+t.Name, "")) }

// joined is the condition that finds the row that a row refers to; row and parent are what stands before the columns.
func (s *Source) joined(row, parent string) string {
	conditions := make([]string, len(s.Columns))
	for i, column := range s.Columns {
		conditions[i] = fmt.Sprintf("%s.%s = %s.%s", parent, quote(s.Referenced[i]), row, quote(column))
	}
	return strings.Join(conditions, " AND ")
}

// triggerStatements make the trigger. Its function reads the parent with its owner's rights, since who may write a row need not be allowed to read what it refers to.
// The sequence has the second in which a row came without its key last, so that it is known whether the application has learnt of it; it is a sequence
// because nobody waits for one. That the function uses rows of the same key alone is said for the routers.
func triggerStatements(t *Table, planned *TablePlan, parentKey string) []string {
	key, object, source := quote(planned.Key), fillObject(t), planned.KeyFrom
	find := fmt.Sprintf("SELECT p.%s INTO NEW.%s FROM %s p WHERE %s", quote(parentKey), key, source.Table, source.joined("NEW", "p"))
	changed := make([]string, len(source.Columns))
	for i, column := range source.Columns {
		changed[i] = fmt.Sprintf("NEW.%[1]s IS DISTINCT FROM OLD.%[1]s", quote(column))
	}
	body := fmt.Sprintf(`BEGIN
	IF TG_OP = 'INSERT' THEN
		IF NEW.%[1]s IS NULL THEN
			%[2]s;
			PERFORM setval(%[3]s, extract(epoch FROM clock_timestamp())::bigint);
		END IF;
	ELSIF NEW.%[1]s IS NULL OR NEW.%[1]s IS NOT DISTINCT FROM OLD.%[1]s AND (%[4]s) THEN
		%[2]s;
	END IF;
	RETURN NEW;
END`, key, find, sqltext.QuoteLiteral(object), strings.Join(changed, " OR "))
	return []string{
		"CREATE SCHEMA IF NOT EXISTS " + adoptSchema,
		"CREATE SEQUENCE IF NOT EXISTS " + object,
		fmt.Sprintf("CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET cleave.shard_local = on AS $fill$%s$fill$", object, body),
		fmt.Sprintf("CREATE TRIGGER %s BEFORE INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION %s()", fillTrigger, t, object),
	}
}

// seeNoNull fails if a row has nothing in the column.
func seeNoNull(t *Table, column string) string {
	return fmt.Sprintf("DO $adopt$\nBEGIN\n%s\nEND\n$adopt$", refuseNull(t, column, "it has to be given one, or to go"))
}

func refuseNull(t *Table, column, why string) string {
	return fmt.Sprintf("\tIF EXISTS (SELECT FROM %s WHERE %s IS NULL) THEN\n\t\tRAISE EXCEPTION USING ERRCODE = '23502', MESSAGE = %s, HINT = %s;\n\tEND IF;", t, quote(column),
		sqltext.QuoteLiteral(fmt.Sprintf("a row of %s has no %s: %s", t, column, why)), sqltext.QuoteLiteral(fmt.Sprintf("SELECT * FROM %s WHERE %s IS NULL", t, quote(column))))
}

// filling is how a column is filled in.
type filling struct {
	column string
	// value is that of the row t, where it comes from another one with the FROM and the condition by which that is found.
	value, from, condition string
	// without says why a row may be left without.
	without string
}

// block fills in the column in batches by the primary key, each in a transaction of its own. Triggers do not fire for it where the role may
// say so: nothing has happened to the rows that anybody has to hear of.
func (f filling) block(t *Table) string {
	w := walkOf(t)
	update := func(bounds string) string {
		return fmt.Sprintf("UPDATE %[1]s t SET %[2]s = %[3]s%[4]s WHERE t.%[2]s IS NULL AND %[5]s%[6]s", t, quote(f.column), f.value, f.from, f.condition, bounds)
	}
	return fmt.Sprintf(`DO $adopt$
DECLARE
	%s
	more boolean;
	batch bigint;
	filled bigint := 0;
	quiet boolean := has_parameter_privilege('session_replication_role', 'SET');
BEGIN
	%s;
	WHILE more LOOP
		%s;
		IF quiet THEN
			PERFORM set_config('session_replication_role', 'replica', true);
		END IF;
		IF more THEN
			%s;
		ELSE
			%s;
		END IF;
		GET DIAGNOSTICS batch = ROW_COUNT;
		COMMIT;
		filled := filled + batch;
		RAISE NOTICE 'filled %%', filled;
		%s;
		PERFORM pg_sleep(0.005);
	END LOOP;
%s
END
$adopt$`, w.declare, w.first, w.next, update(w.between), update(w.from), w.advance, refuseNull(t, f.column, f.without))
}

// walk is how a table is gone through in batches.
type walk struct {
	declare, first, next, between, from, advance string
}

// walkOf goes by the primary key, or by what else is unique and never null; a table that has nothing of the kind is gone through by its pages.
func walkOf(t *Table) walk {
	for _, u := range t.Uniques {
		nullable, _ := t.mayBeNull(u.Columns)
		if u.Valid && u.Plain && u.Kind != "x" && !nullable && len(u.Columns) > 0 {
			return walkBy(t, u.Columns)
		}
	}
	return walk{
		declare: "page bigint := 0;\n\tupto bigint;",
		first:   "more := true",
		next:    fmt.Sprintf("upto := page + 100;\n\t\tmore := upto * current_setting('block_size')::bigint < pg_relation_size(%s)", sqltext.QuoteLiteral(t.String())),
		between: "t.ctid >= format('(%s,0)', page)::tid AND t.ctid < format('(%s,0)', upto)::tid",
		from:    "t.ctid >= format('(%s,0)', page)::tid",
		advance: "page := upto",
	}
}

func walkBy(t *Table, columns []string) walk {
	var declare, low, high, advance []string
	var keys []string
	for i, column := range columns {
		l, h := fmt.Sprintf("low_%d", i+1), fmt.Sprintf("high_%d", i+1)
		declare = append(declare, fmt.Sprintf("%s %s.%s%%TYPE;", l, t, quote(column)), fmt.Sprintf("%s %s.%s%%TYPE;", h, t, quote(column)))
		low, high, advance = append(low, l), append(high, h), append(advance, l+" := "+h)
		keys = append(keys, "t."+quote(column))
	}
	list := func(parts []string) string { return strings.Join(parts, ", ") }
	from := fmt.Sprintf("(%s) >= (%s)", list(keys), list(low))
	return walk{
		declare: strings.Join(declare, "\n\t"),
		first:   fmt.Sprintf("SELECT %s INTO %s FROM %s t ORDER BY %[1]s LIMIT 1;\n\tmore := FOUND", list(keys), list(low), t),
		next:    fmt.Sprintf("SELECT %s INTO %s FROM %s t WHERE %s ORDER BY %[1]s OFFSET %[5]d LIMIT 1;\n\t\tmore := FOUND", list(keys), list(high), t, from, fillBatch),
		between: fmt.Sprintf("%s AND (%s) < (%s)", from, list(keys), list(high)),
		from:    from,
		advance: strings.Join(advance, ";\n\t\t"),
	}
}

// What a function that reads no tables may call, and what shows that it may read one.
var (
	quotedText    = regexp.MustCompile(`'(?:[^']|'')*'|--[^\n]*|/\*(?s:.*?)\*/`)
	readingWord   = regexp.MustCompile(`(?i)\b(select|insert|delete|merge|perform|execute|call|copy|truncate|query|cursor|fetch|table)\b|\bupdate\s+[a-z"]`)
	calledWord    = regexp.MustCompile(`(?i)([a-z_][a-z0-9_.]*)\s*\(`)
	harmlessCalls = []string{
		"if", "elsif", "and", "or", "not", "in", "when", "then", "return", "trigger", "using", "values", "now", "clock_timestamp", "transaction_timestamp", "statement_timestamp", "coalesce", "nullif", "greatest", "least",
		"lower", "upper", "trim", "btrim", "ltrim", "rtrim", "length", "left", "right", "replace", "regexp_replace", "concat", "concat_ws", "substring", "substr", "format", "md5", "to_char", "date_trunc", "extract",
		"to_tsvector", "setweight", "to_json", "to_jsonb", "jsonb_build_object", "row_to_json", "row", "array_append", "array_remove", "array_length", "round", "floor", "ceil", "abs", "timezone", "gen_random_uuid", "pg_catalog.now",
	}
)

// isHarmless says whether the text of a trigger's function shows that it reads no tables: it has none of SQL's verbs, and calls nothing but what is known.
func (f Function) isHarmless() bool {
	text := quotedText.ReplaceAllString(f.Source, "")
	if !f.Trigger || readingWord.MatchString(text) {
		return false
	}
	for _, call := range calledWord.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(harmlessCalls, strings.ToLower(call[1])) {
			return false
		}
	}
	return true
}
