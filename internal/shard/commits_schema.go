package shard

// commitsNoted makes what a shard keeps of transactions over several shards: DESIGN.md of package txn says what for. Clients' own roles
// commit, so they call the functions, and write through the view, which see and write nothing but rows about transactions. Functions have no SET clause, which has its
// price, so everything is named with its schema, types too: a client's own would run the client's code with the owner's rights.
const commitsNoted = `
	CREATE TABLE cleave.commits (
		xid          xid8 PRIMARY KEY DEFAULT pg_catalog.pg_current_xact_id(),
		gid          text NOT NULL,
		decides      boolean NOT NULL,
		decision     text NOT NULL DEFAULT 'commit' CHECK (decision IN ('commit', 'abort')),
		participants integer[] NOT NULL,
		xids         bigint[],
		at           timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
		flushed      text DEFAULT CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) ANY (ARRAY['off', 'local', 'remote_write'])
			THEN pg_catalog.set_config('synchronous_commit', 'on', true) END,
		lost         integer[]
	);
	CREATE UNIQUE INDEX commits_decisions ON cleave.commits (gid) WHERE decides;
	CREATE INDEX commits_lost ON cleave.commits (gid) WHERE lost IS NOT NULL;
	COMMENT ON TABLE cleave.commits IS 'transactions over several shards that wrote here: on the shard that decides, a row is the decision; elsewhere it says that the part is committed';
	COMMENT ON COLUMN cleave.commits.xids IS 'of a decision: the numbers that the parts have on the participants, in their order; 0 for its own';
	COMMENT ON COLUMN cleave.commits.flushed IS 'nothing, but writing it sees to it that the transaction is flushed when it is committed';
	COMMENT ON COLUMN cleave.commits.lost IS 'numbers of the participants whose part is neither prepared nor committed, or which have lost the decision';
	CREATE VIEW cleave.own_commits AS SELECT c.gid, c.decides, c.participants, c.xids, c.xid FROM cleave.commits c
		WHERE c.decision OPERATOR(pg_catalog.=) 'commit' AND (NOT c.decides OR pg_catalog.split_part(c.gid, '/', 4) OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()::pg_catalog.text
			AND pg_catalog.cardinality(c.xids) OPERATOR(pg_catalog.=) pg_catalog.cardinality(c.participants))
		WITH CASCADED CHECK OPTION;
	COMMENT ON VIEW cleave.own_commits IS 'through which a session notes its part of a transaction over several shards; only those that it decides itself are decisions';
	CREATE TABLE cleave.sweeps (
		id   text PRIMARY KEY,
		gids text[] NOT NULL,
		at   timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
	);
	COMMENT ON TABLE cleave.sweeps IS 'transactions that were decided here and are committed everywhere, whose rows are being deleted';
	REVOKE ALL ON cleave.commits, cleave.sweeps, cleave.own_commits FROM PUBLIC;
	GRANT INSERT (gid, decides, participants, xids), SELECT (xid) ON cleave.own_commits TO PUBLIC;

	CREATE FUNCTION cleave.note_abort(transaction text) RETURNS void
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $note$
	BEGIN
		IF pg_catalog.split_part(transaction, '/', 3) OPERATOR(pg_catalog.<>) (SELECT i.number FROM cleave.identity i)::pg_catalog.text
			OR pg_catalog.split_part(transaction, '/', 4) OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()::pg_catalog.text THEN
			RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = pg_catalog.format('transaction %L is decided by another session', transaction);
		END IF;
		INSERT INTO cleave.commits (gid, decides, participants, decision) VALUES (transaction, true, '{}', 'abort') ON CONFLICT (gid) WHERE decides DO NOTHING;
	END
	$note$;
	COMMENT ON FUNCTION cleave.note_abort(text) IS 'notes, after its part was rolled back here, that a transaction over several shards is aborted';

	CREATE FUNCTION cleave.outcome_of(transaction text, OUT alive boolean, OUT decision text, OUT timeline integer)
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $outcome$
	BEGIN
		-- First the backend, then the row: once the one is gone, the other comes no more. That takes a snapshot for each.
		IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
			RAISE EXCEPTION USING ERRCODE = '25001', MESSAGE = 'the outcome of a transaction has to be asked for in a READ COMMITTED transaction',
				DETAIL = 'This one sees what was there when it began, so a decision that has come since would be missed.';
		END IF;
		alive := EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
			WHERE a.pid::pg_catalog.text OPERATOR(pg_catalog.=) pg_catalog.split_part(transaction, '/', 4)
			AND (a.backend_start IS NULL OR ((EXTRACT(epoch FROM a.backend_start) OPERATOR(pg_catalog.*) 1000000)::bigint)::pg_catalog.text OPERATOR(pg_catalog.=) pg_catalog.split_part(transaction, '/', 5)));
		SELECT c.decision INTO decision FROM cleave.commits c WHERE c.decides AND c.gid OPERATOR(pg_catalog.=) transaction;
		timeline := cleave.timeline();
	END
	$outcome$;
	COMMENT ON FUNCTION cleave.outcome_of(text) IS 'of a transaction that is decided here: whether the session that decides it is there, what was decided, and the timeline of now';

	CREATE FUNCTION cleave.timeline() RETURNS integer
	LANGUAGE sql VOLATILE AS $timeline$
		SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
			ELSE ('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::integer END
	$timeline$;
	COMMENT ON FUNCTION cleave.timeline() IS 'the timeline that the server writes; 0 of a replica';

	CREATE FUNCTION cleave.open_snapshot(horizon pg_snapshot, named text[], OUT taken text, OUT gid text, OUT decides boolean, OUT participants integer[], OUT xids bigint[]) RETURNS SETOF record
	LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $open$
	BEGIN
		taken := cleave.server_state() OPERATOR(pg_catalog.||) pg_catalog.pg_current_snapshot()::pg_catalog.text;
		RETURN NEXT;
		taken := NULL;
		FOR gid, decides, participants, xids IN
			SELECT c.gid, c.decides, c.participants, c.xids FROM cleave.commits c
			WHERE c.decision OPERATOR(pg_catalog.=) 'commit' AND horizon IS NOT NULL AND c.xid OPERATOR(pg_catalog.>=) pg_catalog.pg_snapshot_xmax(horizon)
			UNION ALL
			SELECT c.gid, c.decides, c.participants, c.xids FROM cleave.commits c
			WHERE c.decision OPERATOR(pg_catalog.=) 'commit' AND horizon IS NOT NULL AND c.xid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.pg_snapshot_xip(horizon)))
			UNION ALL
			SELECT c.gid, c.decides, c.participants, c.xids FROM cleave.commits c
			WHERE c.decision OPERATOR(pg_catalog.=) 'commit' AND c.decides AND c.gid OPERATOR(pg_catalog.=) ANY (named)
		LOOP
			RETURN NEXT;
		END LOOP;
	END
	$open$;
	COMMENT ON FUNCTION cleave.open_snapshot(pg_snapshot, text[]) IS 'the snapshot of the transaction, and what it sees of transactions over several shards that another one did not, or that are named';

	CREATE FUNCTION cleave.server_state() RETURNS text
	LANGUAGE sql VOLATILE SECURITY DEFINER AS $state$
		SELECT pg_catalog.format('%s/%s/', (SELECT s.system_identifier FROM pg_catalog.pg_control_system() s), cleave.timeline())
	$state$;
	COMMENT ON FUNCTION cleave.server_state() IS 'which server this is, and on which timeline';

	REVOKE ALL ON FUNCTION cleave.note_abort(text), cleave.outcome_of(text), cleave.timeline(), cleave.open_snapshot(pg_snapshot, text[]), cleave.server_state() FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION cleave.note_abort(text), cleave.outcome_of(text), cleave.timeline(), cleave.open_snapshot(pg_snapshot, text[]), cleave.server_state() TO PUBLIC;`

// commitFunctions are the functions, and the view, that commitsNoted makes.
var commitFunctions = []Object{
	{Kind: "view", Name: "cleave.own_commits"},
	{Kind: "function", Name: "cleave.timeline()"},
	{Kind: "function", Name: "cleave.server_state()"},
	{Kind: "function", Name: "cleave.note_abort(pg_catalog.text)"},
	{Kind: "function", Name: "cleave.outcome_of(pg_catalog.text)"},
	{Kind: "function", Name: "cleave.open_snapshot(pg_catalog.pg_snapshot,pg_catalog.text[])"},
}
