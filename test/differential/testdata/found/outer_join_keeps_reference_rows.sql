-- Rows of a reference table that an outer join keeps must come once, not once from every shard. Found by taking the planner's check away.

create table s (k bigint not null, id integer, primary key (k, id))

create table r (id integer, ok boolean, primary key (id))

insert into r (id, ok) values ('20', 't')

-- keyspace: {"name":"{schema}_1","key":["bigint"],"seed":"89"}

-- router
select cleave.shard_tables('{schema}.s(k)', keyspace => '{schema}_1')

-- router
select cleave.reference_tables('{schema}.r')

-- unordered
select * from s as t1 right join r as t2 on t2.ok

-- unordered
select * from r as t1 left join s as t2 on t2.id is not distinct from t1.id
