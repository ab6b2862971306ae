-- Found with -seed 31 -only 1000009/440 -shards 3: another error.

create table s1b (k text not null, id integer, primary key (k, id))

-- keyspace: {"name":"{schema}_1","key":["text"],"seed":"972"}

-- router
select cleave.shard_tables('{schema}.s1b(k)', keyspace => '{schema}_1')

-- unordered
select distinct on (2) ('{1,2}'::integer[])[1], '{"n": 1}'::jsonb from s1b as t1

