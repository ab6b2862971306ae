package shard

// stagedRows makes the function that materialised views over several shards read instead of the tables: package session says how. Who refreshes one past the routers
// is refused, rather than left with the rows of the home shard. It has the rights of the view's owner, and nothing but what the session itself has put there.
//
//nolint:misspell // PostgreSQL's word
const stagedRows = `
	CREATE FUNCTION cleave.staged_rows() RETURNS SETOF record
	LANGUAGE plpgsql VOLATILE AS $rows$
	BEGIN
		IF pg_catalog.to_regclass('pg_temp.cleave_staged_rows') IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'a materialized view over several shards can be refreshed by a router only',
				DETAIL = 'This shard does not have all of its rows.', HINT = 'Connect to a router for it.';
		END IF;
		RETURN QUERY EXECUTE pg_catalog.format('SELECT * FROM %s', 'pg_temp.cleave_staged_rows');
	END
	$rows$;
	COMMENT ON FUNCTION cleave.staged_rows() IS 'the rows that a router has brought here for a materialized view that is being refreshed';

	CREATE FUNCTION cleave.plain_viewdef(view pg_catalog.oid) RETURNS pg_catalog.text
	LANGUAGE sql STABLE
	RETURN CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass AND d.objid = r.oid
			WHERE r.ev_class = view AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.refobjid = 'cleave.staged_rows()'::pg_catalog.regprocedure)
		THEN pg_catalog.regexp_replace(pg_catalog.pg_get_viewdef(view), '^(.*)\s+WHERE false\s+UNION ALL\s+SELECT .*$', '\1;')
		ELSE pg_catalog.pg_get_viewdef(view) END;
	COMMENT ON FUNCTION cleave.plain_viewdef(oid) IS 'the query of a view, of a materialized one over several shards that which its maker wrote';
	GRANT EXECUTE ON FUNCTION cleave.staged_rows(), cleave.plain_viewdef(oid) TO PUBLIC;`
