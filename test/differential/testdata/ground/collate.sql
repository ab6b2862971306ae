-- Collations.

create table col (k bigint primary key, t text collate "und-x-icu", c text collate "C", p text collate "POSIX", v varchar(10) collate "und-x-icu")

create table col_key (name text collate "C" primary key, n int)

-- router
select cleave.shard_tables('{schema}.col(k)', keyspace => 'ground_bigint')

-- router
select cleave.shard_tables('{schema}.col_key(name)', keyspace => 'ground_text')

insert into col values (1, 'abc', 'abc', 'abc', 'abc'), (2, 'Abc', 'Abc', 'Abc', 'Abc'), (3, 'äbc', 'äbc', 'äbc', 'äbc'), (4, 'ABD', 'ABD', 'ABD', 'ABD'), (5, 'bbc', 'bbc', 'bbc', 'bbc'), (6, null, null, null, null), (7, 'a-b', 'a-b', 'a-b', 'a-b'), (8, 'ab', 'ab', 'ab', 'ab')

insert into col_key values ('b', 1), ('A', 2), ('a', 3), ('Ä', 4), ('é', 5), ('e', 6)

select k from col order by t, k

select k from col order by c

select k from col order by p desc nulls last

select k from col order by t collate "C"

select k from col order by c collate "en-x-icu", k

select k from col order by v, k

select k from col where t < 'b' order by k

select k from col where c < 'a' order by k

select k from col where t collate "C" < 'a' order by k

select k from col where c collate "POSIX" >= 'b' order by k

select min(t), max(t), min(c), max(c), min(p), max(v) from col

select min(t collate "C"), max(c collate "en-x-icu") from col

select distinct c from col order by c

select distinct t from col order by t

select c, count(*) from col group by c order by c

select upper(c) as u, count(*) from col group by u order by u

select lower(t) collate "C" as l, count(*) from col group by l order by l

select lower(t) as l, count(*) from col group by lower(t) order by lower(t) collate "C"

select c from col union select name from col_key order by 1

select t from col union select owner from account order by 1

select string_agg(c, ',' order by c) from col

select string_agg(t, ',' order by t), string_agg(t, ',' order by t collate "C") from col

select array_agg(distinct c order by c desc) from col

select k, rank() over (order by c) from col order by k

select k, lag(c) over (order by c nulls first, k), first_value(t) over (order by t collate "C") from col order by k

select percentile_disc(0.5) within group (order by c) from col

select x.k, y.n from col x join col_key y on y.name = left(x.c, 1) order by 1, 2

select x.k, y.k from col x join col y on x.c < y.c where x.k < 4 order by 1, 2

select name from col_key order by name

select name, n from col_key where name > 'a' order by name desc

select name from col_key order by name collate "en-x-icu", n limit 4

select max(name), min(name) from col_key

select name from col_key where name between 'A' and 'b' order by n

with x as (select c, t from col) select c from x order by c limit 3

with x as (select c || '' as d, t from col) select d, max(d) over (order by d) from x order by d

select d from (select c as d from col union all select c from col) x order by d limit 5

select greatest(c, 'B'), least(c, 'B') from col order by k

select k from col where c like 'a%' order by k

select k from col where t ilike 'AB%' order by k

select collation for (c), collation for (t collate "C") from col where k = 1

select coalesce(c, 'none') as x from col order by x

select case when k < 4 then c else 'z' end as x from col order by x, k

-- fails: 42P22
select max(c || p) from col

-- fails: 42P22
select k from col where c < p

-- fails: 42P21
select k from col where c collate "C" = t collate "POSIX"

-- fails: 42P21
select k from col order by c || p

-- fails: 42704
select k from col order by c collate "none"

-- fails: 42P21
select c from col union select p from col order by 1

-- fails: 42804
select k collate "C" from col
