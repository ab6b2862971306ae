package shard

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/idgen"
	"github.com/cleavedb/cleave/internal/topology"
)

// The ticket of number n of a sequence is n plus one of these: what its default gives until a trigger has seen the row.
const (
	bigTickets   = math.MinInt64
	smallTickets = math.MinInt32
)

const (
	// lastMaker is the shard with the highest number that makes ids with a generator of its own.
	lastMaker = 64
	// makerNumbers minus a shard's number is its generator: those from 64 up are the shards', the others are for processes.
	makerNumbers = 128
)

// generatorOf returns the generator with which a shard makes ids; 0: it makes none.
func generatorOf(shard *topology.Shard) int {
	if shard.Number() > lastMaker {
		return 0
	}
	return makerNumbers - shard.Number()
}

// idFunctions is the text of package idgen's functions for the generator. The schema is there, and who installs this need not be allowed to
// create one.
func idFunctions(generator int) string {
	sql, err := idgen.DefaultLayout().SQL(idgen.SQLConfig{Generator: generator})
	if err != nil {
		panic("shard: generators are within idgen's layout: " + err.Error())
	}
	return strings.Replace(sql, "CREATE SCHEMA IF NOT EXISTS", "-- CREATE SCHEMA", 1) +
		"\n\tREVOKE ALL ON FUNCTION cleave.id_layout(), cleave.id_maker(), cleave.id_time(bigint), cleave.id_slot(bigint), cleave.id_generator(bigint), cleave.id_sequence(bigint) FROM PUBLIC;"
}

// ensureMaker lets the shard's functions make ids with this generator. A database whose shard had another number before, or none, may
// change it: no two shards ever have the same.
func ensureMaker(ctx context.Context, tx pgx.Tx, generator int) error {
	if generator == 0 {
		return nil
	}
	var present int
	if err := tx.QueryRow(ctx, "SELECT cleave.id_maker()").Scan(&present); err != nil {
		return fmt.Errorf("see with which number the shard makes ids: %w", err)
	}
	if present == generator {
		return nil
	}
	if _, err := tx.Exec(ctx, "DROP FUNCTION cleave.id_maker(); DROP FUNCTION cleave.id_layout();"+idFunctions(generator)); err != nil {
		return fmt.Errorf("let the shard make ids with number %d: %w", generator, err)
	}
	return nil
}

// longestCount is how many numbers setval passes over one by one.
const longestCount = 100_000

// numbersOfShardedTables is the step of the schema that the numbers of serial and identity columns need. The functions of ids are made
// with number 0, which no shard keeps. None of the functions has a SET clause, which would take longer than the rest, so everything is
// named with its schema.
var numbersOfShardedTables = idFunctions(0) + `
	CREATE FUNCTION cleave.number_sequence(relation pg_catalog.oid, number_column pg_catalog.name) RETURNS pg_catalog.regclass
	LANGUAGE sql STABLE PARALLEL SAFE
	RETURN pg_catalog.pg_get_serial_sequence(relation::pg_catalog.regclass::text, number_column::text)::pg_catalog.regclass;
	COMMENT ON FUNCTION cleave.number_sequence(oid, name) IS 'the sequence that a column owns';

	CREATE FUNCTION cleave.sequence_name(sequence pg_catalog.regclass) RETURNS text
	LANGUAGE sql STABLE PARALLEL SAFE
	RETURN (pg_catalog.pg_identify_object('pg_catalog.pg_class'::pg_catalog.regclass, sequence, 0)).identity;
	COMMENT ON FUNCTION cleave.sequence_name(regclass) IS 'its name, with the schema and quoted';

	CREATE FUNCTION cleave.owned_by_numbered(sequence pg_catalog.regclass, trigger_name pg_catalog.name, OUT base bigint, OUT small boolean)
	LANGUAGE plpgsql STABLE AS $$
	BEGIN
		SELECT CASE WHEN s.seqmax OPERATOR(pg_catalog.>=) 0 THEN NULL
				WHEN s.seqmin OPERATOR(pg_catalog.<) ` + strconv.Itoa(smallTickets) + ` THEN '` + strconv.Itoa(bigTickets) + `'::bigint ELSE ` + strconv.Itoa(smallTickets) + ` END,
			a.atttypid OPERATOR(pg_catalog.=) 'pg_catalog.int4'::pg_catalog.regtype INTO base, small
		FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_depend d ON d.objid OPERATOR(pg_catalog.=) s.seqrelid
			AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
			AND d.deptype OPERATOR(pg_catalog.=) ANY ('{a,i}')
		JOIN pg_catalog.pg_attribute a ON a.attrelid OPERATOR(pg_catalog.=) d.refobjid AND a.attnum OPERATOR(pg_catalog.=) d.refobjsubid
		JOIN pg_catalog.pg_trigger t ON t.tgrelid OPERATOR(pg_catalog.=) d.refobjid AND t.tgname OPERATOR(pg_catalog.=) trigger_name
		WHERE s.seqrelid OPERATOR(pg_catalog.=) sequence;
	END
	$$;
	COMMENT ON FUNCTION cleave.owned_by_numbered(regclass, name) IS 'of a sequence of a table with that trigger: what its tickets are shifted by, and whether its column is an integer';

	CREATE FUNCTION cleave.ticket_base(sequence pg_catalog.regclass) RETURNS bigint
	LANGUAGE sql STABLE RETURN (cleave.owned_by_numbered(sequence, '` + numberGuard + `')).base;
	COMMENT ON FUNCTION cleave.ticket_base(regclass) IS 'what is added to the numbers of a sequence that gives tickets for them; null if it gives none';

	CREATE FUNCTION cleave.counts_in_blocks(sequence pg_catalog.regclass) RETURNS boolean
	LANGUAGE sql STABLE RETURN (cleave.owned_by_numbered(sequence, '` + insertGuard + `')).small;
	COMMENT ON FUNCTION cleave.counts_in_blocks(regclass) IS 'of the sequence of a sharded table: whether its numbers come in blocks and not in lanes; of any other null';

	CREATE FUNCTION cleave.key_ticket_base(sequence pg_catalog.regclass, number bigint) RETURNS bigint
	LANGUAGE plpgsql VOLATILE AS $$
	DECLARE
		base bigint := cleave.ticket_base(sequence);
	BEGIN
		IF base OPERATOR(pg_catalog.=) '` + strconv.Itoa(bigTickets) + `'::bigint THEN
			RETURN (SELECT base FROM pg_catalog.pg_sequence s WHERE s.seqrelid OPERATOR(pg_catalog.=) sequence
				AND s.seqmin OPERATOR(pg_catalog.<=) number AND s.seqmax OPERATOR(pg_catalog.>=) number);
		END IF;
		-- The user's own negative integers may be anywhere, so what counts is what this session was given last.
		IF number OPERATOR(pg_catalog.=) pg_catalog.currval(sequence) THEN
			RETURN base;
		END IF;
		RETURN NULL;
	EXCEPTION WHEN object_not_in_prerequisite_state THEN -- the session was given nothing
		RETURN NULL;
	END
	$$;
	COMMENT ON FUNCTION cleave.key_ticket_base(regclass, bigint) IS 'what to take off a key that is a ticket; null if it is none';

	CREATE FUNCTION cleave.is_ticket(relation pg_catalog.oid, number_column pg_catalog.name, number bigint) RETURNS boolean
	LANGUAGE plpgsql STABLE AS $$
	DECLARE
		sequence pg_catalog.regclass := cleave.number_sequence(relation, number_column);
	BEGIN
		RETURN EXISTS (SELECT FROM pg_catalog.pg_sequence s WHERE s.seqrelid OPERATOR(pg_catalog.=) sequence AND s.seqmax OPERATOR(pg_catalog.<) 0
			AND s.seqmin OPERATOR(pg_catalog.<=) number AND s.seqmax OPERATOR(pg_catalog.>=) number);
	END
	$$;
	COMMENT ON FUNCTION cleave.is_ticket(oid, name, bigint) IS 'whether a value that is to be stored in a column is only a ticket';

	CREATE FUNCTION cleave.note_number(noted text, head text, number bigint) RETURNS text
	LANGUAGE sql IMMUTABLE PARALLEL SAFE
	RETURN (SELECT pg_catalog.string_agg(line, E'\n' ORDER BY place) FROM (
		SELECT line, place FROM ROWS FROM (pg_catalog.unnest(pg_catalog.string_to_array(noted, E'\n'))) WITH ORDINALITY AS lines (line, place)
		WHERE NOT pg_catalog.starts_with(line, head)
		UNION ALL SELECT head OPERATOR(pg_catalog.||) number, NULL) AS all_lines);
	COMMENT ON FUNCTION cleave.note_number(text, text, bigint) IS 'numbers that were made, a line for each column, with one more at the end';

	CREATE FUNCTION cleave.tell_numbers() RETURNS trigger
	LANGUAGE plpgsql AS $$
	DECLARE
		noted pg_catalog.text := pg_catalog.current_setting('cleave.numbers_made', true);
		line pg_catalog.text;
	BEGIN
		IF noted OPERATOR(pg_catalog.<>) '' THEN
			FOREACH line IN ARRAY pg_catalog.string_to_array(CASE WHEN pg_catalog.current_setting('cleave.tell_numbers', true) OPERATOR(pg_catalog.=) 'off' THEN '' ELSE noted END, E'\n') LOOP
				RAISE INFO SQLSTATE 'CLN01' USING MESSAGE = pg_catalog.split_part(line, ' ', 3) OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||)
					pg_catalog.pg_get_serial_sequence(pg_catalog.convert_from(pg_catalog.decode(pg_catalog.split_part(line, ' ', 1), 'hex'), 'UTF8'),
						pg_catalog.convert_from(pg_catalog.decode(pg_catalog.split_part(line, ' ', 2), 'hex'), 'UTF8'));
			END LOOP;
			line := pg_catalog.set_config('cleave.numbers_made', '', true);
		END IF;
		RETURN NULL;
	END
	$$;

	CREATE FUNCTION cleave.given_now() RETURNS text
	LANGUAGE sql STABLE
	RETURN (SELECT pg_catalog.substr(given, pg_catalog.strpos(given, E'\n') OPERATOR(pg_catalog.+) 1) FROM (SELECT pg_catalog.current_setting('cleave.numbers_given', true)) AS g (given)
		WHERE pg_catalog.split_part(given, E'\n', 1) OPERATOR(pg_catalog.=) pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())::text);
	COMMENT ON FUNCTION cleave.given_now() IS 'numbers that nextval has given in this statement, a line for each sequence, the last one last; null if none';

	CREATE FUNCTION cleave.note_given(sequence text, number bigint) RETURNS text
	LANGUAGE sql VOLATILE
	RETURN pg_catalog.set_config('cleave.numbers_given', pg_catalog.date_part('epoch', pg_catalog.statement_timestamp())::text OPERATOR(pg_catalog.||) E'\n' OPERATOR(pg_catalog.||)
		(SELECT pg_catalog.string_agg(line, E'\n' ORDER BY place) FROM (
			SELECT line, place FROM ROWS FROM (pg_catalog.unnest(pg_catalog.string_to_array(cleave.given_now(), E'\n'))) WITH ORDINALITY AS lines (line, place)
			WHERE pg_catalog.substr(line, pg_catalog.strpos(line, ' ') OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.<>) sequence
			UNION ALL SELECT number OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) sequence, NULL) AS all_lines), true);
	COMMENT ON FUNCTION cleave.note_given(text, bigint) IS 'notes what nextval has given, for who asks in the same statement';

	CREATE FUNCTION cleave.made_now(sequence text, OUT number bigint, OUT last bigint)
	LANGUAGE plpgsql STABLE AS $$
	DECLARE
		line pg_catalog.text;
	BEGIN
		FOREACH line IN ARRAY pg_catalog.string_to_array(coalesce(pg_catalog.current_setting('cleave.numbers_made', true), ''), E'\n') LOOP
			last := pg_catalog.split_part(line, ' ', 3)::bigint;
			IF pg_catalog.pg_get_serial_sequence(pg_catalog.convert_from(pg_catalog.decode(pg_catalog.split_part(line, ' ', 1), 'hex'), 'UTF8'),
				pg_catalog.convert_from(pg_catalog.decode(pg_catalog.split_part(line, ' ', 2), 'hex'), 'UTF8')) OPERATOR(pg_catalog.=) sequence THEN
				number := last;
			END IF;
		END LOOP;
	END
	$$;
	COMMENT ON FUNCTION cleave.made_now(text) IS 'the number that was made in this statement and goes by a sequence, and the last of all; null if none was';

	CREATE FUNCTION cleave.next_number(sequence pg_catalog.regclass) RETURNS bigint
	LANGUAGE plpgsql VOLATILE STRICT AS $$
	DECLARE
		number bigint := pg_catalog.nextval(sequence);
		base bigint;
		noted pg_catalog.text;
	BEGIN
		IF number OPERATOR(pg_catalog.<) 0 THEN
			base := cleave.ticket_base(sequence);
			IF base IS NOT NULL THEN
				number := number OPERATOR(pg_catalog.-) base;
			END IF;
		END IF;
		noted := cleave.note_given(cleave.sequence_name(sequence), number);
		IF coalesce(pg_catalog.current_setting('cleave.tell_numbers', true) OPERATOR(pg_catalog.<>) 'off', true) THEN
			RAISE INFO USING ERRCODE = 'CLN01', MESSAGE = pg_catalog.format('%s %s', number, cleave.sequence_name(sequence));
		END IF;
		RETURN number;
	END
	$$;
	COMMENT ON FUNCTION cleave.next_number(regclass) IS 'nextval; of a sequence that gives tickets the number itself';

	CREATE FUNCTION cleave.skip_numbers(sequence pg_catalog.regclass, number bigint) RETURNS boolean
	LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $$
	DECLARE
		own record;
		base bigint := coalesce(cleave.ticket_base(sequence), 0);
		blocks boolean := cleave.counts_in_blocks(sequence);
		reached bigint;
		attempts integer := 0;
	BEGIN
		IF blocks IS NULL OR number < 0 THEN
			RETURN false;
		END IF;
		IF NOT has_sequence_privilege(session_user, sequence, 'UPDATE') THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for sequence %s', (SELECT relname FROM pg_class WHERE oid = sequence));
		END IF;
		UPDATE cleave.number_blocks b SET next = number + 1 WHERE b.sequence = cleave.sequence_name(skip_numbers.sequence) AND b.next <= number;
		-- Read as a table: pg_sequence_last_value would keep a lock that stands in the way of another who changes the sequence as well. Without it the file
		-- may be another's who has changed it meanwhile, and empty.
		LOOP
			BEGIN
				EXECUTE format('SELECT s.seqmin, s.seqmax, s.seqcache, CASE WHEN q.is_called THEN q.last_value ELSE s.seqmin - 1 END AS last
					FROM pg_sequence s, %s q WHERE s.seqrelid = $1', sequence) INTO own USING sequence;
				EXIT;
			EXCEPTION WHEN data_corrupted THEN
				attempts := attempts + 1;
				IF attempts > 9 THEN
					RAISE;
				END IF;
			END;
		END LOOP;
		-- A block that ends before the number is used up, and another is given; a lane goes on, because its numbers meet no others.
		IF number + base <= own.last OR number + base < own.seqmin OR NOT blocks AND number + base > own.seqmax THEN
			RETURN true;
		END IF;
		reached := least(number + base, own.seqmax);
		-- setval would take back what others are given meanwhile, so a sequence is counted on, as long as that is short. Beyond, whoever wants
		-- a number waits until this transaction has ended: that is the lock which a change of the sequence takes.
		IF reached - own.last > ` + strconv.Itoa(longestCount) + ` THEN
			EXECUTE format('ALTER SEQUENCE %s CACHE %s', sequence, own.seqcache);
			IF coalesce(pg_sequence_last_value(sequence), own.seqmin - 1) < reached THEN
				PERFORM setval(sequence, reached);
			END IF;
			RETURN true;
		END IF;
		LOOP
			EXIT WHEN coalesce(pg_sequence_last_value(sequence), own.seqmin - 1) >= reached OR nextval(sequence) >= reached;
		END LOOP;
		RETURN true;
	EXCEPTION WHEN sequence_generator_limit_exceeded THEN -- others have taken the last ones
		RETURN true;
	END
	$$;
	COMMENT ON FUNCTION cleave.skip_numbers(regclass, bigint) IS 'lets the sequence of a sharded table go on above a number';

	CREATE FUNCTION cleave.set_number(sequence pg_catalog.regclass, number bigint, called boolean DEFAULT true) RETURNS bigint
	LANGUAGE plpgsql VOLATILE STRICT AS $$
	DECLARE
		done boolean;
	BEGIN
		IF cleave.counts_in_blocks(sequence) IS NULL OR NOT pg_catalog.has_sequence_privilege(sequence, 'UPDATE') THEN
			RETURN pg_catalog.setval(sequence, number, called);
		END IF;
		IF called THEN
			done := cleave.skip_numbers(sequence, number);
		ELSE
			done := cleave.skip_numbers(sequence, number OPERATOR(pg_catalog.-) 1);
		END IF;
		RETURN number;
	END
	$$;
	COMMENT ON FUNCTION cleave.set_number(regclass, bigint, boolean) IS 'setval; on a sharded table only what keeps numbers from coming twice';

	CREATE FUNCTION cleave.this_number(sequence pg_catalog.regclass) RETURNS bigint
	LANGUAGE plpgsql STABLE STRICT AS $$
	DECLARE
		line pg_catalog.text;
		told pg_catalog.text := pg_catalog.concat_ws(E'\n', cleave.given_now(), pg_catalog.current_setting('cleave.numbers', true));
		made bigint := (cleave.made_now(cleave.sequence_name(sequence))).number;
	BEGIN
		IF made IS NOT NULL THEN
			RETURN made;
		END IF;
		FOREACH line IN ARRAY pg_catalog.string_to_array(told, E'\n') LOOP
			IF pg_catalog.substr(line, pg_catalog.strpos(line, ' ') OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.=) cleave.sequence_name(sequence) THEN
				RETURN pg_catalog.split_part(line, ' ', 1)::bigint;
			END IF;
		END LOOP;
		IF cleave.ticket_base(sequence) IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = pg_catalog.format('currval of sequence "%s" is not yet defined in this session',
				(SELECT c.relname FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) sequence));
		END IF;
		RETURN pg_catalog.currval(sequence);
	END
	$$;
	COMMENT ON FUNCTION cleave.this_number(regclass) IS 'currval, as far as the router has heard of numbers that were made';

	CREATE FUNCTION cleave.last_number() RETURNS bigint
	LANGUAGE plpgsql STABLE AS $$
	DECLARE
		lines pg_catalog.text[] := pg_catalog.string_to_array(coalesce(cleave.given_now(), pg_catalog.current_setting('cleave.numbers', true)), E'\n');
		number bigint := (cleave.made_now('')).last;
	BEGIN
		IF number IS NOT NULL THEN
			RETURN number;
		END IF;
		IF pg_catalog.cardinality(lines) OPERATOR(pg_catalog.>) 0 THEN
			RETURN pg_catalog.split_part(lines[pg_catalog.cardinality(lines)], ' ', 1)::bigint;
		END IF;
		number := pg_catalog.lastval();
		IF number OPERATOR(pg_catalog.<) 0 AND EXISTS (SELECT FROM pg_catalog.pg_sequence s WHERE s.seqmax OPERATOR(pg_catalog.<) 0
			AND s.seqmin OPERATOR(pg_catalog.<=) number AND s.seqmax OPERATOR(pg_catalog.>=) number AND cleave.ticket_base(s.seqrelid) IS NOT NULL) THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'lastval is not yet defined in this session';
		END IF;
		RETURN number;
	END
	$$;
	COMMENT ON FUNCTION cleave.last_number() IS 'lastval, as far as the router has heard of numbers that were made';
	REVOKE ALL ON FUNCTION cleave.note_number(text, text, bigint), cleave.key_ticket_base(regclass, bigint), cleave.tell_numbers() FROM PUBLIC;`

// numberObjects are what the step makes, as PostgreSQL names them.
func numberObjects() []Object {
	var objects []Object
	for lane := range 16 {
		objects = append(objects, Object{Kind: "sequence", Name: "cleave.id_count_" + strconv.Itoa(lane)}, Object{Kind: "sequence", Name: "cleave.id_shift_" + strconv.Itoa(lane)})
	}
	for _, function := range []string{
		"id_layout()", "id_maker()", "id_time(bigint)", "id_slot(bigint)", "id_generator(bigint)", "id_sequence(bigint)", "next_id(bigint)", "id_high_water()",
		"id_raise_floor(timestamp with time zone)",
		"number_sequence(pg_catalog.oid,pg_catalog.name)", "sequence_name(pg_catalog.regclass)", "owned_by_numbered(pg_catalog.regclass,pg_catalog.name)",
		"ticket_base(pg_catalog.regclass)", "counts_in_blocks(pg_catalog.regclass)", "key_ticket_base(pg_catalog.regclass,bigint)",
		"is_ticket(pg_catalog.oid,pg_catalog.name,bigint)", "note_number(pg_catalog.text,pg_catalog.text,bigint)", "tell_numbers()", "next_number(pg_catalog.regclass)",
		"skip_numbers(pg_catalog.regclass,bigint)", "set_number(pg_catalog.regclass,bigint,boolean)",
		"given_now()", "note_given(pg_catalog.text,bigint)", "made_now(pg_catalog.text)", "this_number(pg_catalog.regclass)", "last_number()",
	} {
		objects = append(objects, Object{Kind: "function", Name: "cleave." + function})
	}
	return objects
}
