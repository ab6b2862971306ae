-- Names that may mean one thing or another, conditions that see more than one query, and groups of constants: what is easily taken for something else when a statement is taken apart.

create table nt (k bigint primary key, a int, b text, n numeric, f float8)

create table nu (k bigint not null, x int not null, y text, primary key (k, x))

create table nw (k bigint primary key, a int, b text, s text)

create table nr (id int primary key, b text, name text)

create table ne (k bigint primary key, a int, b text)

create table nz (k bigint primary key, f float8)

-- router
select cleave.shard_tables('{schema}.nt(k), {schema}.nu(k), {schema}.nw(k), {schema}.ne(k), {schema}.nz(k)')

-- router
select cleave.reference_table('{schema}.nr')

insert into nt select i, i % 6, 'b' || i % 4, i * 0.30, i / 3.0 from generate_series(1, 40) i

insert into nu select i % 20, i, 'y' || i % 5 from generate_series(1, 60) i

insert into nw select i, i % 5, 'b' || i % 3, 's' || i from generate_series(1, 30) i

insert into nr select i, 'r' || i, 'n' || i from generate_series(0, 7) i

insert into nz values (1, '-0')

select nw.s, x.k from nw left join nt x on x.k = nw.k + 35 where not exists (select from nu where nu.k = x.k) order by 1, 2

select x.a, count(*) from nt x left join nw on nw.k = x.k where not exists (select from nr where nr.id = nw.a) group by x.a order by 1

select nw.s, x.k from nt x right join nw on x.k = nw.k + 35 where exists (select from nu where nu.k < coalesce(x.k, 1)) order by 1, 2

select x.k, nw.k from nt x full join nw on nw.a = x.k where not exists (select from nu where nu.k = x.k and nu.x > 10) order by 1, 2

select k, (select count(*) from nu as a where a is not null) from nt order by k

update nt set b = 'hit' where exists (select from nw as n where n::text = '2.70')

delete from nt where not exists (select from nw as n where n::text in ('2.70', '3.00', '6.00'))

select k, b from nt order by k

insert into nt select i, i % 6, 'b' || i % 4, i * 0.30, i / 3.0 from generate_series(1, 40) i on conflict do nothing

delete from nr where exists (select from nt as name where name::text = 'n3')

select * from nr order by id

select * from nu as q(x, k) order by x, k limit 5

select * from nt as x(k, b, a) order by k limit 3

select distinct * from ne as x(b, k) order by k

select q.* from nu as q(x, k), nw where q.x = nw.k and q.k > 50 order by 1, 2

select s.k, (select max(z.x) from nu s, lateral (select x from nw where nw.a = s.k) z) from nt s order by 1

select s.k, (select count(*) from nr s join nw q on exists (select from nu where nu.k = s.id)) from nt s order by 1

-- expect: refused: In the way: ORDER BY
select k, (select count(*) from nw as nt where {schema}.nt.b = nt.b) from {schema}.nt order by k

-- expect: refused: In the way: ORDER BY
select k, (select count(*) from nu as nt where {schema}.nt.k = nt.x) from {schema}.nt order by k

select {schema}.nt.k, {schema}.nw.s from {schema}.nt join {schema}.nw on {schema}.nt.a = {schema}.nw.a order by 1, 2 limit 5

with nu as (select k, x + 1000 as x from nu where x % 2 = 0) select z.k, z.x from (select nu.k, nu.x from nu, nt, (with nu as (select 1 as o) select * from nu) i where nt.k = nu.k order by 1, 2 limit 5) z

select count(distinct 1), count(*) from ne

select sum(distinct 5), count(*) from ne

select string_agg(distinct 'x', ','), max(a) from ne

select count(distinct 1), count(distinct a), string_agg(distinct b, ',') from nt

select 'x' as l, count(*) from nt group by rollup (l) order by 1, 2

-- PostgreSQL takes l for a constant and does not order by it, so that the rows of (l) and of () come as its plan has them.
-- unordered
select 1 as l, a, count(*) from nt group by grouping sets ((l), (a), ()) order by 1, 2, 3

select 'x' as l, a, string_agg(b, ',' order by b, k) from nt group by 1, 2 order by 1, 2

select 2 as l, count(*), string_agg(b, ',' order by k) from nt group by l

select null as l, true as m, count(*), string_agg(b, ',' order by k) from nt group by l, m

select avg(f), sum(f) from nz

select k, avg(f) filter (where f is not null) from nz group by rollup (k) order by 1

select avg(n), avg(k), avg(k * interval '1 hour') from nt

select count(distinct statement_timestamp()) from nt

select a, count(*) from nt group by a, pg_backend_pid() order by 1

select count(distinct 'nt'::regclass::oid) from nt

-- expect: refused: is not bound to values
select pg_typeof(k), count(*) from nt group by 1

select pg_typeof(k) from nt where k = 3

select distinct pg_typeof(k)::text from nt where k in (3, 3)

-- expect: refused: In the way: a system column
select k from nt where ctid = '(0,1)' order by 1

-- expect: refused: In the way: a system column
delete from nt where ctid = '(0,1)'

-- What PostgreSQL calls outputs where a moment, or a word of the grammar, gives them their name.

select s.now is not null, s.a from (select now()::date, a from nt join nr on nr.id = nt.a where k = 3 or k = 4) s order by 2

select s.case is null from (select case when a > 3 then null else now()::date end, a from nt union all select null, 1 from nw limit 0) s

select count(s.now) from (select now()::date::text, x.a from nt x join nw on nw.a = x.a) s

select count(s.timestamp) from (select current_timestamp::timestamp as timestamp, x.a from nt x join nw on nw.a = x.a) s

select count(s.current_date) from (select current_date + 0 as d, current_date, x.a from nt x join nw on nw.a = x.a) s

-- Rows of queries as values.

select json_agg(s order by s.k) from (select k, a from nt where a = 2) s

select json_agg(s order by s.k) from (select nt.k, nw.a from nt join nw on nw.a = nt.a where nt.a = 2) s

select jsonb_agg(s) from (select a, count(*) as n from nt group by a order by a) s

select row_to_json(s) from (select a, count(*) as n from nt group by a) s order by s.a

select to_jsonb(s) -> 'n' from (select a, string_agg(b, ',' order by k) as n from nt group by a) s order by s.a

with s as (select a, count(*) as n from nt group by a) select s, s.a from s order by s.a

-- A primary key decides the other columns of its table.

create table nj (k bigint primary key, j json, p point, c text)

-- router
select cleave.shard_table('{schema}.nj', 'k')

insert into nj select i, json_build_object('i', i), point(i, 0), 'c' || i from generate_series(1, 12) i

select nj.k, j, p, count(*) from nj join nw on nw.a < nj.k group by nj.k order by nj.k

select nj.*, count(*) from nj join nw on nw.a < nj.k group by nj.k order by nj.k

select nj.k, j ->> 'i' as t, max(nw.s) from nj join nw on nw.a < nj.k group by nj.k having (j ->> 'i')::int > 4 order by j ->> 'i'

select nj.k, p[0] + 1, row_number() over (order by p[0]) from nj join nw on nw.a < nj.k group by nj.k order by nj.k

select x.k, (select count(*) from nr where b < c) from nj x join nw on nw.a < x.k group by x.k order by x.k

select x.k, (select min(nr.b || c) from nr) from nj x join nw on nw.a < x.k group by x.k order by x.k

select x.k, (select string_agg(y, ',' order by nu.x) from nu where nu.k < x.k and y > c) from nj x join nw on nw.a < x.k group by x.k order by x.k

select x.kk, x.c, count(*) from nj as x(kk) join nw on nw.a < x.kk group by x.kk order by 1

select x.kk, c, count(*) from nj as x(kk) join nw on nw.a < x.kk group by kk order by 1

select k, j, count(*) from nj group by k order by k

select nj.*, count(*) from nj group by k order by k

select k, j, count(*) filter (where c > 'c3') from nj group by k, c order by k desc limit 3

select x.k, (select min(nr.b || c) from nr), (select max(x.c) from nr limit 1) from nj x join nw on nw.a < x.k group by x.k order by x.k

select k, (select j::text), count(*) from nj group by k order by k

select k, (select j ->> 'i' from nr where nr.id = 1), count(*) from nj group by k order by k

select k, nj::text, count(*) from nj group by k order by k

select k, (select count(*) from nw where nw.b < (j ->> 'i')) from nj group by k order by k

-- Outputs that are the same expression are two things to group by; queries that stand in two places are one.

select * from (select a as x, a as y, count(*) as n from nt group by rollup(1, 2) offset 0) s order by n, x, y is null, y

select * from (select a as x, a as y, count(*) as n from nt group by rollup(x, y) offset 0) s order by n, x, y is null, y

select a as x, nt.a as y, count(*), string_agg(b, ',' order by k) from nt group by grouping sets ((x), (y)) order by 1, 2

select * from (select a as x, nt.a as y, count(*) as n, grouping(a) from nt group by cube(nt.a, y) offset 0) s order by n, x, y is null, y

select (select max(nr.id) from nr) m, count(*) from nt group by rollup((select max(nr.id) from nr)) order by 1

select (select max(nw.k) from nw) m, count(*) from nt group by rollup((select max(nw.k) from nw)) order by 1

select a + (select max(nw.k) from nw) m, count(*) from nt group by a + (select max(nw.k) from nw) order by 1

select distinct (select max(nw.k) from nw) from nt order by (select max(nw.k) from nw)

select a in (select nw.a from nw) o, count(*) from nt group by rollup(a in (select nw.a from nw)) order by 1, 2

select a, grouping((select max(nw.k) from nw)), count(*) from nt group by cube(a, (select max(nw.k) from nw)) order by 1, 2, 3

select (select count(*) from nw join nu using (k) where nw.a = nt.a) m, count(*) from nt group by (select count(*) from nw join nu using (k) where nw.a = nt.a) order by 1

-- A moment where a table stands.

select count(*) from nt join nw on nw.a = nt.a, now() where now is not null

select nt.k, now.now is not null from nt join nw on nw.a = nt.a, now() order by 1 limit 1

select json_object_keys(row_to_json(s)) from (select * from (select nt.k from nt join nw on nw.a = nt.a) f, current_date limit 1) s

select json_object_keys(row_to_json(s)) from (select * from (select nt.k from nt join nw on nw.a = nt.a) f, current_timestamp(2) as t limit 1) s

-- expect: refused: is not bound to values
select count(*) from (select nt.k from nt join nw on nw.a = nt.a) f, rows from (now(), generate_series(1, 2)) as r

-- Literals beside groups get the types of the columns that they are inserted into, unless they are grouped by.

create table ng (k bigint, c int, d date, j jsonb, n int, primary key (k, c))

-- router
select cleave.shard_table('{schema}.ng', 'k')

create table nl (k bigint, d date, j jsonb, n int)

insert into ng (k, c, d) select k, max(x), '2024-01-01' from nu group by k

insert into ng (k, c, d, j) select k + 1000, max(x), null, '{}' from nu group by k having max(x) > 2

insert into nl (k, j, n) select k, '{"a": 1}', '5' from nu group by k

insert into nl (k, n) select k, '5' from nu where k = 1 group by k

insert into nl (k, d) select max(k), '2024-02-03' from nu group by rollup (k) order by 1 limit 3 returning *

-- fails: 42804
insert into nl (k, n) select k, '5' from nu group by k, 2

-- fails: 42804
insert into nl (k, n) select k, '5' as l from nu group by k, l

-- fails: 22007
insert into ng (k, c, d) select k + 5000, 1, 'soon' from nu group by k

select k, c, d, j, n from ng order by k, c

select * from nl order by k, d, n, j

-- Values that were pulled are of other types where functions are chosen by domains and rows.

create domain nd as numeric

create table nx (k bigint primary key, d nd)

-- router
select cleave.shard_table('{schema}.nx', 'k')

insert into nx select i, i from generate_series(1, 6) i

create function fo(nd) returns text immutable language sql as $$select 'domain'::text$$

select fo(d), count(*) from nx group by fo(d)

create function fo(numeric) returns text immutable language sql as $$select 'numeric'::text$$

select fo(d) from nx where k = 1

select distinct fo(d) from nx where k in (1, 1)

-- expect: refused: is not bound to values
select fo(d), count(*) from nx group by fo(d)

-- expect: refused: not supported yet
select fo(nx.d), nw.k from nx join nw on nw.a = nx.k order by 2 limit 2

insert into nx (k) values (generate_series(2000, 2003))

insert into nx (k, d) values (generate_series(2010, 2012), generate_series(1, 3)) returning k

insert into nx (k, d) values (2020 + length('abc'), '7')

insert into nx (k) values (2030 + length('abc')) order by column1 limit 1

with w as (select 1) insert into nx (k) values (2040 + length('abc'))

-- fails: 0A000
insert into nx (k) values (generate_series(1, 2)) limit 1

select * from nx order by k

-- What common table expressions have written goes into a table of the home shard.

with d as (delete from ng where k = 1 returning *) insert into nl (k, d, n) select k, d, c from d

with d as (delete from ng where k in (2, 3, 4, 5) returning *) insert into nl select k, null, '[]', c + 1 from d

with i as (insert into ng (k, c) values (7777, 1) returning k) insert into nl (k, n) select k, 1 from i returning *

with d as (delete from ng where k > 1000 returning *), n as (select count(*) as n from d) insert into nl (k, n) select n, 0 from n

select k, c, d, j, n from ng order by k, c

select * from nl order by k, d, n, j

-- Rows that are deleted or updated go where their keys are.

create table na (k bigint, x int, y text, primary key (k, x))

-- router
select cleave.shard_table('{schema}.na', 'k')

with d as (delete from nu where x % 3 = 0 returning *) insert into na select * from d

with d as (delete from nu where x % 3 = 1 returning *) insert into na select k, x, y || '!' from d where k > 10

with d as (update nu set y = 'moved' where x > 30 returning *) insert into na select k, x, y from d on conflict do nothing

with d as (delete from nu where k < 5 returning *) select count(*) from d

with d as (delete from nu where x < 20 returning *) select d.k, d.x, nw.s from d left join nw using (k) where d.k = 8

with d as (delete from na where x in (select id from nr) returning k) insert into nu select k, -1, 'left' from d

select * from na order by k, x

select * from nu order by k, x
