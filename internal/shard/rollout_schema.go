package shard

// rolloutsNoted makes what a shard notes of roll-outs. Clients' own roles apply the changes, so they call the function, which needs the
// roll-out's ID: nobody is told it who could not run the change.
const rolloutsNoted = `
	CREATE TABLE cleave.rollouts (
		id     text PRIMARY KEY,
		name   text NOT NULL,
		change text NOT NULL,
		state  text NOT NULL CHECK (state IN ('applying', 'applied', 'undoing', 'undone')),
		at     timestamptz NOT NULL DEFAULT clock_timestamp()
	);
	COMMENT ON TABLE cleave.rollouts IS 'which changes of the schema that go from shard to shard this shard has, or has had';
	REVOKE ALL ON cleave.rollouts FROM PUBLIC;

	CREATE FUNCTION cleave.note_rollout(rollout text, named text, changes text, fresh text, known text, next text) RETURNS text
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $note$
	DECLARE
		found_state text;
	BEGIN
		INSERT INTO cleave.rollouts (id, name, change, state) VALUES (rollout, named, changes, fresh) ON CONFLICT (id) DO NOTHING;
		IF FOUND THEN
			RETURN 'none';
		END IF;
		SELECT r.state INTO found_state FROM cleave.rollouts r WHERE r.id = rollout FOR UPDATE;
		IF found_state = known THEN
			UPDATE cleave.rollouts r SET state = next, at = clock_timestamp() WHERE r.id = rollout;
		END IF;
		RETURN found_state;
	END $note$;
	COMMENT ON FUNCTION cleave.note_rollout(text, text, text, text, text, text) IS 'notes that a roll-out is where fresh says if nothing was noted, and that it went from known to next; returns where it was';

	CREATE FUNCTION cleave.rollout_of(rollout text, OUT state text, OUT at text) RETURNS record
	LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $of$
		SELECT r.state, to_char(r.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM cleave.rollouts r WHERE r.id = rollout
	$of$;
	COMMENT ON FUNCTION cleave.rollout_of(text) IS 'where a roll-out is on this shard, and since when';
	GRANT EXECUTE ON FUNCTION cleave.note_rollout(text, text, text, text, text, text), cleave.rollout_of(text) TO PUBLIC;`

// rolloutFunctions are those that rolloutsNoted makes.
var rolloutFunctions = []Object{
	{Kind: "function", Name: "cleave.note_rollout(pg_catalog.text,pg_catalog.text,pg_catalog.text,pg_catalog.text,pg_catalog.text,pg_catalog.text)"},
	{Kind: "function", Name: "cleave.rollout_of(pg_catalog.text)"},
}
