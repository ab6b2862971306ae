-- Ids with the same layout as those made in Go: {{layout}}, generator {{generator}}.
-- Safe to run again. Run it as the role that shall own the functions; other roles need
--   GRANT USAGE ON SCHEMA {{schema}} TO ...; GRANT EXECUTE ON FUNCTION {{schema}}.next_id(bigint) TO ...;

CREATE SCHEMA IF NOT EXISTS {{schema}};

-- Ids of two layouts could be equal, and so could those of two databases that lose the numbers that keep them apart: another
-- layout or generator than the one that is here is refused.
DO $check$
DECLARE
  present text;
  maker   integer;
BEGIN
  IF pg_catalog.to_regprocedure('{{schema}}.id_layout()') IS NULL THEN
    RETURN;
  END IF;
  EXECUTE 'SELECT {{schema}}.id_maker()' INTO maker;
  IF maker OPERATOR(pg_catalog.<>) {{generator}} THEN
    RAISE EXCEPTION 'this database makes ids with another generator number'
      USING ERRCODE = '55000',
            DETAIL = pg_catalog.format('It has %s, asked for was {{generator}}.', maker),
            HINT = 'To change it on purpose, drop the function {{schema}}.id_maker() and id_layout() first.';
  END IF;
  EXECUTE 'SELECT {{schema}}.id_layout()' INTO present;
  IF present OPERATOR(pg_catalog.<>) '{{layout}}' THEN
    RAISE EXCEPTION 'this database makes ids with another layout'
      USING ERRCODE = '55000',
            DETAIL = pg_catalog.format('It has "%s", asked for was "%s".', present, '{{layout}}'),
            HINT = 'A layout cannot be changed once there are ids: use another schema for other tables.';
  END IF;
END
$check$;

CREATE OR REPLACE FUNCTION {{schema}}.id_layout() RETURNS text
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN '{{layout}}';
COMMENT ON FUNCTION {{schema}}.id_layout() IS 'the layout of the ids made here';

CREATE OR REPLACE FUNCTION {{schema}}.id_maker() RETURNS integer
  LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN {{generator}};
COMMENT ON FUNCTION {{schema}}.id_maker() IS 'the generator number of the ids made here';

-- Reading the parts of an id. The bodies are parsed now, with every name qualified, so no search_path can change them, and
-- a planner may still inline them.
CREATE OR REPLACE FUNCTION {{schema}}.id_time(id bigint) RETURNS timestamptz
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN pg_catalog.to_timestamp(pg_catalog.float8div(pg_catalog.float8(
    pg_catalog.int8pl(pg_catalog.int8shr(id, {{timeShift}}), {{epochMilli}})), 1000::pg_catalog.float8));
COMMENT ON FUNCTION {{schema}}.id_time(bigint) IS 'the millisecond in which an id was made';

CREATE OR REPLACE FUNCTION {{schema}}.id_slot(id bigint) RETURNS integer
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN pg_catalog.int4(pg_catalog.int8and(pg_catalog.int8shr(id, {{slotShift}}), {{slotMask}}));
COMMENT ON FUNCTION {{schema}}.id_slot(bigint) IS 'the logical slot of the key of the row with this id';

CREATE OR REPLACE FUNCTION {{schema}}.id_generator(id bigint) RETURNS integer
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN pg_catalog.int4(pg_catalog.int8and(pg_catalog.int8shr(id, {{sequenceBits}}), {{generatorMask}}));
COMMENT ON FUNCTION {{schema}}.id_generator(bigint) IS 'the number of the maker of an id; 0 is a database';

CREATE OR REPLACE FUNCTION {{schema}}.id_sequence(id bigint) RETURNS integer
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN pg_catalog.int4(pg_catalog.int8and(id, {{sequenceMask}}));
COMMENT ON FUNCTION {{schema}}.id_sequence(bigint) IS 'what tells apart the ids of one maker, slot and millisecond';

-- Clocks: each is two sequences. A tick (millisecond and sequence number in one) is a number of id_count_… plus what
-- id_shift_… says, and the last tick that an id carries is the sum of their last values. Counts go up by one for each id, without
-- a lock; a shift goes up when its clock has fallen behind the time of day. Slot s uses clock s modulo {{lanes}}. Sequences,
-- because what they count survives a rollback, a crash and a promotion. Nobody but the owner may touch them.
{{sequences}}
-- next_id makes an id for a row whose shard key has this hash. The id is greater than every id made here before for the same
-- slot, whoever made it, whether or not that transaction committed. It raises 55000 when the server's clock is more than
-- {{maxBackwards}} ms behind the ids already made, 2200H when the layout ends within a second. A SET clause would take half as
-- long as all the rest, so every name and operator has its schema; BETWEEN and CASE with a value would look for theirs.
CREATE OR REPLACE FUNCTION {{schema}}.next_id(hash bigint) RETURNS bigint
  LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
AS $body$
DECLARE
  slot   bigint              := {{slotOfHash}};
  counts pg_catalog.regclass := {{countOfSlot}};
  shifts pg_catalog.regclass := {{shiftOfSlot}};
  shift  bigint;
  milli  bigint;
  tick   bigint;
  ahead  bigint;
BEGIN
  -- Each expression that runs costs a transaction a microsecond, so what is rare is all behind one condition.
  LOOP
    shift := coalesce(pg_catalog.pg_sequence_last_value(shifts), 0);
    milli := {{milli}};
    -- Looked at before a count is taken: refused and waiting calls must not push the clock further ahead.
    ahead := ((coalesce(pg_catalog.pg_sequence_last_value(counts), -1) OPERATOR(pg_catalog.+) 1 OPERATOR(pg_catalog.+) shift)
      OPERATOR(pg_catalog.>>) {{sequenceBits}}) OPERATOR(pg_catalog.-) milli;
    IF ahead OPERATOR(pg_catalog.<) -{{maxLag}} OR ahead OPERATOR(pg_catalog.>) {{maxLead}}
      OR milli OPERATOR(pg_catalog.>=) {{lastMilli}} OR hash IS NULL THEN
      IF hash IS NULL THEN
        RAISE EXCEPTION 'cannot make an id for a row without a key hash' USING ERRCODE = '22004';
      ELSIF milli OPERATOR(pg_catalog.>=) {{lastMilli}} THEN
        RAISE EXCEPTION 'the id layout has ended'
          USING ERRCODE = '2200H', DETAIL = 'The layout is {{layout}}.';
      END IF;
      IF ahead OPERATOR(pg_catalog.>) {{maxBackwards}} THEN
        RAISE EXCEPTION 'the server''s clock is % ms behind the ids already made', ahead
          USING ERRCODE = '55000',
                DETAIL = 'At most {{maxBackwards}} ms is waited for.',
                HINT = 'Was the clock set back, or are more ids wanted for one slot than the layout has? Ids can be made again once it has caught up.';
      ELSIF ahead OPERATOR(pg_catalog.>) {{maxLead}} THEN
        -- A burst may run ahead of the clock a little; beyond that the session waits.
        PERFORM pg_catalog.pg_sleep((ahead OPERATOR(pg_catalog.-) {{maxLead}}) OPERATOR(pg_catalog./) 1000.0);
        CONTINUE;
      END IF;
      -- Shifts never go back, so only one session at a time sets one. The lock is needed for some microseconds, not until the
      -- transaction ends. A transaction-level advisory lock is given back when the block it was taken in is rolled back, while
      -- what happened to a sequence stays: so the block ends with an exception, always. Whatever else ends it (a cancelled
      -- query, a closed connection) gives the lock back as well.
      BEGIN
        PERFORM pg_catalog.pg_advisory_xact_lock({{lockClass}}, (slot OPERATOR(pg_catalog.%) {{lanes}})::integer);
        tick := ({{milli}} OPERATOR(pg_catalog.<<) {{sequenceBits}}) OPERATOR(pg_catalog.-) 1
          OPERATOR(pg_catalog.-) coalesce(pg_catalog.pg_sequence_last_value(counts), -1);
        IF tick OPERATOR(pg_catalog.>) coalesce(pg_catalog.pg_sequence_last_value(shifts), 0) THEN
          PERFORM pg_catalog.setval(shifts, tick);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'CLID0';
      EXCEPTION WHEN SQLSTATE 'CLID0' THEN
        CONTINUE;
      END;
    END IF;
    tick := pg_catalog.nextval(counts) OPERATOR(pg_catalog.+) shift;
    -- A count belongs to the shift that was there before it and after it, and to no other.
    EXIT WHEN coalesce(pg_catalog.pg_sequence_last_value(shifts), 0) OPERATOR(pg_catalog.=) shift;
  END LOOP;
  RETURN ((tick OPERATOR(pg_catalog.>>) {{sequenceBits}}) OPERATOR(pg_catalog.<<) {{timeShift}}) OPERATOR(pg_catalog.|)
    (slot OPERATOR(pg_catalog.<<) {{slotShift}}) OPERATOR(pg_catalog.|) {{generatorBits}} OPERATOR(pg_catalog.|)
    (tick OPERATOR(pg_catalog.&) {{sequenceMask}});
END
$body$;
COMMENT ON FUNCTION {{schema}}.next_id(bigint) IS 'makes an id for a row whose shard key has this hash';
REVOKE ALL ON FUNCTION {{schema}}.next_id(bigint) FROM PUBLIC;

-- id_high_water returns the start of the first millisecond that is later than every id made here.
CREATE OR REPLACE FUNCTION {{schema}}.id_high_water() RETURNS timestamptz
  LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
  last  bigint := -1;
  count bigint;
BEGIN
  FOR lane IN 0 .. {{lanes}} - 1 LOOP
    -- The count first: an id made before has no greater one, and no greater shift than is there afterwards.
    count := coalesce(pg_sequence_last_value(('{{schema}}.id_count_' || lane)::regclass), -1);
    last  := greatest(last, count + coalesce(pg_sequence_last_value(('{{schema}}.id_shift_' || lane)::regclass), 0));
  END LOOP;
  RETURN to_timestamp(((last >> {{sequenceBits}}) + 1 + {{epochMilli}}) / 1000::float8);
END
$body$;
COMMENT ON FUNCTION {{schema}}.id_high_water() IS 'the start of the first millisecond later than every id made here';
REVOKE ALL ON FUNCTION {{schema}}.id_high_water() FROM PUBLIC;

-- id_raise_floor makes sure that no id made here from now on carries an earlier time, and returns how far that time is
-- ahead of the clock (negative when it is behind). It never lowers anything. Call it in a transaction of its own: it
-- may hold up the making of ids until that ends.
CREATE OR REPLACE FUNCTION {{schema}}.id_raise_floor(not_before timestamptz) RETURNS interval
  LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE STRICT SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
AS $body$
DECLARE
  milli bigint := ceil(date_part('epoch', not_before) * 1000)::bigint - {{epochMilli}};
  tick  bigint := (milli << {{sequenceBits}}) - 1;
  shift bigint;
BEGIN
  IF milli > {{endMilli}} THEN
    RAISE EXCEPTION 'the floor is after the end of the id layout'
      USING ERRCODE = '22008', DETAIL = 'The layout is {{layout}}.';
  END IF;
  FOR lane IN 0 .. {{lanes}} - 1 LOOP
    PERFORM pg_advisory_xact_lock({{lockClass}}, lane);
    shift := tick - coalesce(pg_sequence_last_value(('{{schema}}.id_count_' || lane)::regclass), -1);
    IF shift > coalesce(pg_sequence_last_value(('{{schema}}.id_shift_' || lane)::regclass), 0) THEN
      PERFORM setval(('{{schema}}.id_shift_' || lane)::regclass, shift);
    END IF;
  END LOOP;
  RETURN not_before - clock_timestamp();
END
$body$;
COMMENT ON FUNCTION {{schema}}.id_raise_floor(timestamptz) IS 'from now on no id made here carries an earlier time';
REVOKE ALL ON FUNCTION {{schema}}.id_raise_floor(timestamptz) FROM PUBLIC;
