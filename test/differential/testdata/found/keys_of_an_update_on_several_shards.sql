-- Found while rows moved, in reduced form: what is left of an UPDATE when all that it reads elsewhere was pulled has its keys on several shards.

create table s1b (k bigint not null, id integer, primary key (k, id))

create table s2a (k bigint not null, id integer, ok boolean, big bigint, uid uuid, primary key (k, id))

-- keyspace: {"name":"{schema}_1","key":["bigint"],"seed":"771"}

-- keyspace: {"name":"{schema}_2","key":["bigint"],"seed":"772"}

-- router
select cleave.shard_tables('{schema}.s1b(k)', keyspace => '{schema}_1')

-- router
select cleave.shard_tables('{schema}.s2a(k)', keyspace => '{schema}_2')

insert into s1b select i, i from generate_series(1, 20) as i

insert into s2a select i, i, i % 2 = 0, i, null from generate_series(1, 20) as i

update s2a as target set big = null::integer where target.ok in (select distinct on (1) true as c1 from s1b as t3 left join s1b as t4 on target.uid is not null) and target.k in (1, 2, 3, 4, 5, 6, 7, 8)
