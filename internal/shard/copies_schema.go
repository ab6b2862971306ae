package shard

// copiesNoted makes what shards keep of comparisons of reference tables: DESIGN.md of package control says what for.
const copiesNoted = `
	CREATE TABLE cleave.copies (
		table_name text PRIMARY KEY,
		home       text NOT NULL,
		at         timestamptz NOT NULL DEFAULT clock_timestamp()
	);
	COMMENT ON TABLE cleave.copies IS 'reference tables whose copy here was found equal to that of the home shard, and which server on which timeline that was then';
	CREATE TABLE cleave.copy_differences (
		table_name text NOT NULL,
		shard      text NOT NULL,
		missing    bigint,
		extra      bigint,
		changed    bigint,
		reason     text NOT NULL,
		at         timestamptz NOT NULL DEFAULT clock_timestamp(),
		PRIMARY KEY (table_name, shard)
	);
	COMMENT ON TABLE cleave.copy_differences IS 'on the home shard: copies of reference tables that are known to differ, in how many rows, and why they are not repaired; without numbers: it is not known whether they differ';
	REVOKE ALL ON cleave.copies, cleave.copy_differences FROM PUBLIC;`
