package shard

// helloAndGuards is the step of the schema that routers and guards need. Clients' roles log in themselves, so everybody may
// call hello, and nothing else here.
//
// The session's own search_path and role are arguments with defaults, because those are evaluated where the function is
// called: inside it both are the function's.
const helloAndGuards = `
	CREATE TABLE cleave.guard_pins (
		keyspace text NOT NULL,
		id       bytea NOT NULL,
		hash     bigint NOT NULL,
		key      bytea[] NOT NULL,
		here     boolean NOT NULL,
		PRIMARY KEY (keyspace, id)
	);
	CREATE INDEX guard_pins_by_hash ON cleave.guard_pins (keyspace, hash);
	COMMENT ON TABLE cleave.guard_pins IS 'for the guards: the pinned keys that are here although their range is elsewhere, or elsewhere although their range is here';
	REVOKE ALL ON cleave.guard_pins FROM PUBLIC;
	ALTER TABLE cleave.keyspaces ADD COLUMN guard_pins_digest bytea NOT NULL DEFAULT '';

	CREATE FUNCTION cleave.hello(router text, version bigint, session_path text DEFAULT current_setting('search_path'), session_role name DEFAULT current_user,
		OUT search_path text, OUT role text, OUT server_version integer, OUT max_connections integer, OUT reserved_connections integer,
		OUT map_version bigint, OUT in_recovery boolean)
	LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $hello$
	DECLARE
		own record;
	BEGIN
		IF current_setting('cleave.router', true) IS DISTINCT FROM router OR router = '' THEN
			RAISE EXCEPTION USING ERRCODE = 'CL002', MESSAGE = format('the session was not opened by router "%s"', router),
				DETAIL = 'A router says who it is when it connects, with the startup parameter cleave.router, so that nothing takes it away later.',
				HINT = 'Connect to the router, which does this by itself.';
		END IF;
		SELECT i.shard, i.map_version, i.minimum_version INTO own FROM cleave.identity i;
		IF NOT FOUND THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the database does not belong to a cluster',
				HINT = 'Correct the address of the shard, or add the database with: cleave shard add';
		END IF;
		IF version < own.minimum_version THEN
			RAISE EXCEPTION USING ERRCODE = 'CL003', MESSAGE = format('shard "%s" asks for map version %s or newer, router "%s" has %s', own.shard, own.minimum_version, router, version),
				DETAIL = 'Something has changed its owner or its kind since, so the router would look for it in the wrong place.',
				HINT = 'The router has to read the newer map before it speaks to this shard.';
		END IF;
		search_path := session_path;
		role := session_role;
		server_version := current_setting('server_version_num');
		max_connections := current_setting('max_connections');
		reserved_connections := current_setting('superuser_reserved_connections')::integer + coalesce(current_setting('reserved_connections', true), '0')::integer;
		map_version := own.map_version;
		in_recovery := pg_is_in_recovery();
	END
	$hello$;
	COMMENT ON FUNCTION cleave.hello(text, bigint, text, name) IS 'the first statement of a router: refuses one whose map is too old, and tells the others what they need to know';

	CREATE FUNCTION cleave.refuse_stranger() RETURNS trigger
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $refuse$
	BEGIN
		RAISE EXCEPTION USING ERRCODE = 'CL002', MESSAGE = format('table %I.%I is part of a cluster and cannot be written to past its router', TG_TABLE_SCHEMA, TG_TABLE_NAME),
			DETAIL = 'This session is connected to one shard, which has a part of the rows or a copy of them.',
			HINT = 'Connect to the router. To write to this shard alone, as a superuser or for the control plane, first run: SET cleave.router = ''by hand''',
			SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
	END
	$refuse$;
	CREATE FUNCTION cleave.refuse_reference_write() RETURNS trigger
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $refuse$
	BEGIN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = format('reference table %I.%I cannot be written to yet', TG_TABLE_SCHEMA, TG_TABLE_NAME),
			DETAIL = 'Every shard has a copy of it, and this write would reach one of them.',
			HINT = 'Write the same to every shard, each in a session that has run: SET cleave.router = ''by hand''',
			SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
	END
	$refuse$;
	REVOKE ALL ON FUNCTION cleave.refuse_stranger(), cleave.refuse_reference_write() FROM PUBLIC;
	GRANT EXECUTE ON FUNCTION cleave.hello(text, bigint, text, name) TO PUBLIC;
	GRANT USAGE ON SCHEMA cleave TO PUBLIC;`

// strangersAskedInFunction lets the function that refuses strangers ask who writes, so that its trigger needs no condition: PostgreSQL
// reads a condition anew for every statement, which takes three times as long as this function, whose plan lasts for a session.
// It has no SET clause, which has its price too, so everything is named with its schema.
const strangersAskedInFunction = `
	CREATE OR REPLACE FUNCTION cleave.refuse_stranger() RETURNS trigger
	LANGUAGE plpgsql AS $refuse$
	BEGIN
		IF pg_catalog.current_setting('cleave.router', true) OPERATOR(pg_catalog.<>) '' THEN
			RETURN NULL;
		END IF;
		RAISE EXCEPTION USING ERRCODE = 'CL002', MESSAGE = pg_catalog.format('table %I.%I is part of a cluster and cannot be written to past its router', TG_TABLE_SCHEMA, TG_TABLE_NAME),
			DETAIL = 'This session is connected to one shard, which has a part of the rows or a copy of them.',
			HINT = 'Connect to the router. To write to this shard alone, as a superuser or for the control plane, first run: SET cleave.router = ''by hand''',
			SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
	END
	$refuse$;`

// referencesWrittenByRouters lets routers write to reference tables, which they do on every shard in one transaction. What a trigger or
// the action of a foreign key writes happens on one shard alone, as far as anybody here can tell.
const referencesWrittenByRouters = `
	CREATE OR REPLACE FUNCTION cleave.refuse_reference_write() RETURNS trigger
	LANGUAGE plpgsql AS $refuse$
	DECLARE
		router pg_catalog.text := pg_catalog.current_setting('cleave.router', true);
	BEGIN
		IF router OPERATOR(pg_catalog.=) 'by hand' OR router OPERATOR(pg_catalog.<>) '' AND pg_catalog.pg_trigger_depth() OPERATOR(pg_catalog.=) 1 THEN
			RETURN NULL;
		END IF;
		IF router OPERATOR(pg_catalog.<>) '' THEN
			RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = pg_catalog.format('reference table %I.%I cannot be written to by a trigger or by the action of a foreign key', TG_TABLE_SCHEMA, TG_TABLE_NAME),
				DETAIL = 'Every shard has a copy of it, and this write would reach one of them.',
				HINT = 'Write to the reference table itself, which reaches every copy.', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
		END IF;
		RAISE EXCEPTION USING ERRCODE = 'CL002', MESSAGE = pg_catalog.format('table %I.%I is part of a cluster and cannot be written to past its router', TG_TABLE_SCHEMA, TG_TABLE_NAME),
			DETAIL = 'This session is connected to one shard, which has one of several copies.',
			HINT = 'Connect to the router. To write to this copy alone, as a superuser or for the control plane, first run: SET cleave.router = ''by hand''',
			SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
	END
	$refuse$;`

// guardFunctions are the functions that the step makes, as PostgreSQL names them.
var guardFunctions = []Object{
	{Kind: "function", Name: "cleave.hello(pg_catalog.text,bigint,pg_catalog.text,pg_catalog.name)"},
	{Kind: "function", Name: "cleave.refuse_stranger()"},
	{Kind: "function", Name: "cleave.refuse_reference_write()"},
}
