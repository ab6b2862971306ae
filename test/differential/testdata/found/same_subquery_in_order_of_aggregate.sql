-- A query that stands twice in a statement is the same expression to PostgreSQL, so both have to be pulled as one. Found by making statements up.

create table s (id integer, flt float8, utxt text collate "und-x-icu", k date not null, primary key (k, id))

insert into s (id, flt, utxt, k) values ('1', '1.5', 'b', '2024-02-29')

-- keyspace: {"name":"{schema}_1","key":["date"],"seed":"11"}

-- router
select cleave.shard_tables('{schema}.s(k)', keyspace => '{schema}_1')

-- unordered
select string_agg(distinct (select t.utxt from s as t), '' order by (select t.utxt from s as t)) as c2 from s as u group by (u.flt is not null)

-- unordered
select string_agg(distinct (select max(t.utxt) from s as t), '' order by (select max(t.utxt) from s as t)) as c2, (select max(t.utxt) from s as t) from s as u
