-- Whether a sharded table has rows is one answer for all shards. Found by taking the planner's check away.

create table s (n integer, id integer, k date not null, primary key (k, id))

insert into s (n, id, k) values ('1', '1', '2024-02-29')

create table r (id integer, n integer, primary key (id))

insert into r (id, n) values ('1', '6')

-- keyspace: {"name":"{schema}_1","key":["date"],"seed":"11"}

-- router
select cleave.shard_tables('{schema}.s(k)', keyspace => '{schema}_1')

-- router
select cleave.reference_tables('{schema}.r')

-- param: ? [1, 2]
-- unordered
select case when exists (select from s as t2) then $1 else '{"n": 1}'::jsonb end as c3 from r as t1
