-- The current time is one moment for all that a transaction does, on whatever shards, and so are the defaults that are computed from it.

create table mt (k int primary key, v text, at timestamptz default now(), d date default current_date, u timestamp default (now() at time zone 'utc'), seen timestamptz, n int default 7)

create table mi (k int, n int, at timestamptz default now() + interval '1 hour', primary key (k, n))

create table mr (id int primary key, v text, at timestamptz default now())

create table ms (id int primary key, at timestamptz default transaction_timestamp(), l time default localtime(2))

create domain stamp as timestamptz default current_timestamp

create table md (k int primary key, at stamp, t text default 'now()', c timestamptz default clock_timestamp())

-- router
select cleave.shard_tables('{schema}.mt(k), {schema}.mi(k), {schema}.md(k)')

-- router
select cleave.reference_table('{schema}.mr')

-- Rows of VALUES, with and without a list of columns.

insert into mt (k, v) values (1, 'a'), (2, 'it''s'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f'), (7, 'g'), (8, 'h')

select count(*), count(distinct at), count(distinct d), count(distinct u), max(n) from mt

select count(*) from mt where at > now() or d <> current_date or u <> at at time zone 'utc'

insert into mt values (11), (12), (13), (14), (15), (16), (17), (18)

select count(*), count(distinct at), count(distinct u), max(n) from mt where k > 10

insert into mt values (21, 'x', default), (22, 'y', now()), (23, 'z', default), (24, 'x', current_timestamp), (25, default, transaction_timestamp()), (26, 'x', default)

select count(*), count(distinct at), count(v) from mt where k > 20

insert into mt (k, at) values (31, default), (32, default), (33, now()), (34, default) returning k, at = now(), d = current_date, u = localtimestamp at time zone current_setting('timezone') at time zone 'utc'

select count(distinct at) from mt where k > 30

-- param: int4 41
-- param: int4 42
-- param: int4 43
-- param: int4 44
-- param: text it
-- protocol: extended
insert into mt (k, v) values ($1, $5), ($2, $5), ($3, 'two'), ($4, $5)

select count(*), count(distinct at), count(distinct v) from mt where k > 40

insert into md (k) values (1), (2), (3), (4), (5), (6)

select count(distinct at), min(t), count(distinct c) > 1 from md

-- What a query gives.

insert into mt (k, v) select g, 's' from generate_series(101, 120) g

select count(*), count(distinct at), count(distinct u) from mt where k > 100

insert into mt select g from generate_series(201, 220) g

select count(*), count(distinct at), count(distinct u) from mt where k > 200

insert into mt select k + 1000, v from mt where k < 10 union all select 1100 + g, 'u' from generate_series(1, 9) g

select count(*), count(distinct at), count(distinct d) from mt where k > 1000

insert into mi (k, n) select k, n from mt where k < 30

select count(*), count(distinct at), count(*) filter (where at > now()) > 0 from mi

insert into mi select k, 1 from mt where k < 30

select count(*), count(distinct at) from mi where n = 1

insert into mi select distinct k, 2 from mt where k < 30 order by 1

select count(*), count(distinct at) from mi where n = 2

insert into mi (k, n) select k, 3 from (select * from mt) q where q.k < 30

select count(*), count(distinct at) from mi where n = 3

insert into mi select q.k, g.n from mt q, (values (4), (5)) g(n) where q.k < 30

select count(*), count(distinct at) from mi where n in (4, 5)

insert into mi table mi on conflict (k, n) do update set at = default

select count(*), count(distinct at) from mi

-- protocol: extended
-- param: int4 6
insert into mi (n, k) select $1, k from mt where k < 30

select count(*), count(distinct at) from mi where n = 6

-- Changes.

update mt set seen = now()

select count(distinct seen), min(seen) <= now() from mt

update mt set seen = current_timestamp(0), v = 'it''s ' || now()::date

select count(distinct seen), count(distinct v), min(v) = 'it''s ' || current_date from mt

update mt set at = default, seen = now()

select count(distinct at), min(at) = min(seen), max(at) = max(seen) from mt

-- unordered
update mt set seen = now() where k in (1, 2, 3, 4, 5, 6) returning k, seen = now()

update mt set (seen, v) = (now(), 'both') where k < 20

select count(distinct seen), count(*) from mt where v = 'both'

delete from mt where at > now()

delete from mt where k > 1000 and at < now() returning now() - now(), current_date = d

insert into mt (k, v) values (1, 'c'), (2, 'c'), (3, 'c'), (4, 'c') on conflict (k) do update set v = 'c', at = default, seen = now(), u = excluded.u

select count(distinct at), count(distinct u), count(distinct seen), min(at) = min(seen) from mt where v = 'c'

merge into mi using mt on mi.k = mt.k and mi.n = 1 when matched then update set at = default

select count(distinct at) from mi where n = 1

merge into mi using mt on mi.k = mt.k and mi.n = 8 when not matched then insert (k, n) values (mt.k, 8)

select count(distinct at), count(*) > 0 from mi where n = 8

-- Queries.

select distinct now() = transaction_timestamp(), current_date = now()::date from mt

select count(*) from (select distinct now() from mt) q

select count(*) from (select distinct now(), k % 2 from mt) q

select k, now() = max(now()) over () from mt where k in (1, 2, 3, 4) order by k

select count(distinct x) from (select now() as x from mt where k < 5 union all select now() from mi where k < 5) q

select now() - now() as zero, k from mt where k < 5 order by k

-- unordered
select now() is not null, current_date is not null, k from mt where k in (1, 2, 3)

select now(), k from mt where k < 0

select current_date, localtimestamp(2), now()::date, now() at time zone 'utc', k from mt where false

select date_trunc('year', now()) = date_trunc('year', current_timestamp) as now, count(*) from mt group by date_trunc('year', now()) = date_trunc('year', current_timestamp)

select t.k, n.now = now() from mt t, now() as n(now) where t.k < 4 order by 1

-- In a transaction all is of one moment, on whichever shards it is, one after the other or together.

begin

insert into mt (k, v) values (301, 'tx')

select pg_sleep(0.01) is null

insert into mt (k, v) values (302, 'tx')

insert into mt (k, v, at) values (303, 'tx', now())

insert into mt (k, v, at) values (304, 'tx', current_timestamp)

insert into mi (k, n) values (305, 1)

insert into ms (id) values (1)

insert into mr (id, v) values (1, 'tx'), (2, 'tx')

insert into mt (k, v) select g, 'tx' from generate_series(310, 330) g

update mt set seen = now() where k = 302

update mt set seen = now() where k > 300

select count(distinct at), count(distinct seen), min(at) = now(), min(seen) = now() from mt where v = 'tx'

select at = now(), l = localtime(2) from ms

select bool_and(at = now()) from mr

select at - interval '1 hour' = now() from mi where k = 305

select now() = (select at from mt where k = 301)

select k from mt where k in (301, 302) and at = now() order by k

savepoint a

insert into mt (k, v) values (340, 'tx'), (341, 'tx'), (342, 'tx')

rollback to a

insert into mt (k, v) values (350, 'tx'), (351, 'tx'), (352, 'tx')

commit

select count(distinct at), count(*) from mt where v = 'tx'

select count(distinct at) from (select at from mt where v = 'tx' union all select at from ms union all select at from mr) q

begin

select count(*) from mt where k = 1

insert into mt (k, v) values (401, 't2'), (402, 't2'), (403, 't2'), (404, 't2')

insert into mt (k, v) values (405, 't2')

select count(distinct at), min(at) = now() from mt where v = 't2'

commit and chain

insert into mt (k, v) values (406, 't2'), (407, 't2'), (408, 't2')

commit

select count(distinct at) from mt where v = 't2'

-- Two transactions have two.

update mt set seen = now() where k < 30

insert into mi (k, n) select k, 20 from mt where k < 30

update mt set seen = now() where k < 30

select count(distinct seen), bool_and(seen > (select max(at) - interval '1 hour' from mi where n = 20)) from mt where k < 30

-- protocol: simple
insert into mt (k, v) values (501, 'm'); insert into mt (k, v) values (502, 'm'); insert into mt (k, v) values (503, 'm'), (504, 'm'); update mt set seen = now() where v = 'm'

select count(distinct at), count(distinct seen), min(at) = min(seen) from mt where v = 'm'

-- protocol: pipeline
insert into mt (k, v) values (511, 'p')
insert into mt (k, v) values (512, 'p')
insert into mt (k, v) values (513, 'p')
update mt set seen = now() where v = 'p'
insert into mt (k, v) values (514, 'p'), (515, 'p'), (516, 'p')

select count(distinct at), count(distinct seen), min(at) = min(seen) from mt where v = 'p'

-- protocol: pipeline
insert into mt (k, v) values (521, 'q')
select count(*), bool_and(at = now()) from mt where v = 'q'
insert into mt (k, v) values (522, 'q')
select count(distinct at), bool_and(at = now()) from mt where v = 'q'
insert into mt (k, v) select g, 'q' from generate_series(530, 540) g
select count(distinct at), bool_and(at = now()) from mt where v = 'q'

-- protocol: pipeline
update mt set seen = now() where v = 'q'
insert into mt (k, v) values (541, 'q'), (542, 'q')
select 1 / 0
update mt set seen = now() where v = 'q'

select count(distinct at), count(distinct seen) from mt where v = 'q'

-- Prepared statements.

prepare p1 as update mt set seen = now() where k < 40

execute p1

select count(distinct seen) from mt where k < 40

prepare p2 (int, text) as insert into mt (k, v) values ($1, $2), ($1 + 1, $2)

prepare p3 (int, timestamptz) as update mt set seen = $2 where k <= $1

execute p3 (40, now())

select count(distinct seen) from mt where k <= 40

begin

execute p1

execute p3 (20, now())

select count(distinct seen), min(seen) = now() from mt where k < 40

commit

prepare p4 as select k, now() = current_timestamp as same from mt where k < 5 and at <= now() order by k

execute p4

-- parse: s1
update mt set seen = now(), v = $1 where k < $2

-- bind: s1
-- param: text one
-- param: int4 40

select count(distinct seen), min(v) from mt where k < 40

-- bind: s1
-- param: text two
-- param: int4 20

select count(distinct seen), min(v), max(v) from mt where k < 40

deallocate all

-- Cursors, COPY and tables that are made.

begin

declare c cursor for select k, now() = at as now from mt where k < 4 order by k

fetch all c

copy (select distinct now() = transaction_timestamp() from mt) to stdout

create table made as select k, now() as at from mt where k < 20

select count(distinct at), min(at) = now() from made

drop table made

commit

-- data: 601	c
-- data: 602	c
-- data: 603	c
-- data: 604	c
-- data: 605	c
copy mt (k, v) from stdin

select count(*), count(distinct at), count(distinct u), min(d) = min(at)::date from mt where v = 'c' and k > 600

-- data: v;k
-- data: "c;1";611
-- data: c2;612
-- data: "c
-- data: 3";613
-- data: c4;614
copy mt (v, k) from stdin (format csv, header match, delimiter ';')

select count(*), count(distinct at), count(distinct u), min(n) from mt where k between 611 and 614

-- from: copy (select k + 100, v from mt where k between 611 and 614) to stdout (format binary)
copy mt (k, v) from stdin (format binary)

select count(*), count(distinct at), count(distinct u), min(n) from mt where k between 711 and 714

-- data: 621	c	more
copy mt (k, v) from stdin

-- data: 621
copy mt (k, v) from stdin

-- data: x	c
copy mt (k, v) from stdin

begin

insert into ms (id) values (9)

-- data: 631	c
-- data: 632	c
-- data: 633	c
copy mt (k, v) from stdin

-- data: 31	c
-- data: 32	c
copy mr (id, v) from stdin

select count(distinct at), min(at) = now() from (select at from mt where k between 631 and 633 union all select at from ms where id = 9 union all select at from mr where id > 30) q

commit

-- Mistakes are told with their places.

update mt set nope = 1, seen = now()

update mt set seen = now() where nope = 1

insert into mt (k, nope) select g, now() from generate_series(1, 3) g

-- elsewhere
insert into mt (k, v) values (1, 'x'), (2, 'y', now())

select now(), nope from mt

update mt set k = 'x', seen = now()

update mt set seen = now(), n = 1 / (k - k) where k < 10

-- Settings that change how a time is written and read.

set timezone to 'Asia/Tokyo'

set datestyle to 'SQL, DMY'

insert into mt (k, v) values (801, 'z'), (802, 'z'), (803, 'z'), (804, 'z')

update mt set seen = now() where v = 'z'

select count(distinct at), bool_and(d = at::date), bool_and(u = at at time zone 'utc'), bool_and(seen >= at and seen <= now()) from mt where v = 'z'

-- data: 811	z2
-- data: 812	z2
-- data: 813	z2
copy mt (k, v) from stdin

select count(distinct at), bool_and(d = at::date), bool_and(u = at at time zone 'utc'), bool_and(at <= now()) from mt where v = 'z2'

reset timezone

reset datestyle

-- Views with the current time in them.

create view mv as select k, v, now() as t from mt where at <= now()

select count(distinct t), min(t) = now(), count(*) > 100 from mv

select distinct t = now() from mv

select k, t = now() from mv where k < 4 order by k

select v.k, m.k from mv v join mt m on m.k = v.k where v.k in (1, 2, 3) and v.t = now() order by 1

create view mu as select k, v, at from mt

insert into mu (k, v) values (901, 'u'), (902, 'u'), (903, 'u'), (904, 'u')

select count(*), count(distinct at), count(at) from mu where v = 'u'

-- Names that look like the current time, and are not.

create table mn (k int primary key, now int, "current_date" text)

-- router
select cleave.shard_table('{schema}.mn', 'k')

insert into mn values (1, 1, 'now()'), (2, 2, 'current_timestamp'), (3, 3, 'x')

select k, now, mn.now, "current_date", 'now()' from mn order by k

select now.now, now.k from mn as now order by 2

update mn set now = now + 1, "current_date" = 'now()' || current_date - current_date

select k, now, "current_date" from mn order by k

-- Deleted and kept elsewhere, with the time that it was.

create table ma (k int primary key, v text, gone timestamptz default now())

-- router
select cleave.shard_table('{schema}.ma', 'k')

with d as (delete from mt where v = 'u' returning k, v) insert into ma (k, v) select k, v from d

select count(*), count(distinct gone) from ma

-- A list that names all, and defaults in some of the rows only.

insert into ma (k, v, gone) values (1, 'a', default), (2, 'b', null), (3, 'c', default), (4, default, default)

select count(*), count(gone), count(distinct gone), count(v) from ma where k < 10

insert into ma default values

insert into ma (gone, k) select default_at, k from (select k, now() as default_at from mt where k between 11 and 14) q

select count(distinct gone) from ma where k between 11 and 14

-- In a transaction that has failed, and behind one.

begin

insert into ma (k, v) values (21, 'f'), (22, 'f'), (23, 'f')

insert into ma (k, v) values (1, 'f'), (24, 'f'), (25, 'f')

select now()

rollback

insert into ma (k, v) values (21, 'f'), (22, 'f'), (23, 'f')

select count(distinct gone), bool_and(gone <= now()) from ma where v = 'f'

begin isolation level repeatable read

insert into ma (k, v) values (31, 'r')

insert into ma (k, v) values (32, 'r'), (33, 'r')

update ma set gone = now() where k = 1

update ma set gone = now() where k = 2

select count(distinct gone), bool_and(gone = now()) from ma where k in (1, 2, 31, 32, 33)

commit

-- Defaults that are not one value for all rows, NULL, and others that are written in their own ways.

create table mo (k int primary key, v text, tok text default md5(random()::text || now()::text), n timestamptz default nullif(now(), now()), s varchar(50) default 'x' || now()::date, j jsonb default jsonb_build_object('at', now()), a timestamptz[] default array[now(), now()], c text default case when now() < '2000-01-01' then 'x' end)

create table mp (k int primary key, id int generated always as identity, "Ünd" timestamptz default now(), at timestamptz default now(), check (at <= now()))

-- router
select cleave.shard_tables('{schema}.mo(k), {schema}.mp(k)')

-- data: 1	a
-- data: 2	b
-- data: 3	c
-- data: 4	d
-- data: 5	e
copy mo (k, v) from stdin

select count(*), count(distinct tok), count(n), count(distinct s), count(distinct a[1] = a[2]), count(c) from mo

insert into mo (k) select 10 + g from generate_series(1, 10) g

insert into mo (k) select 30 union all select 31 union all select 32

insert into mo (k) values (41), (42), (43), (44)

select count(*), count(distinct tok), count(n), count(distinct s), count(c), count(distinct j), count(distinct a) from mo where k > 40

insert into mp (k) values (1), (2), (3), (4), (5), (6)

insert into mp (k, id) overriding system value values (11, 1), (12, 2), (13, 3), (14, 4)

begin

select count(*) from mp

insert into mp (k) values (21), (22), (23), (24), (25), (26), (27), (28)

insert into mp (k) select g from generate_series(31, 45) g

select bool_and(at = now()), bool_and("Ünd" = now()) from mp where k > 20

rollback

set client_encoding to 'LATIN1'

-- expect: refused: encoding
insert into mp (k) values (51), (52), (53), (54)

reset client_encoding

update mt set (seen, at, v) = (now(), default, 'row') where k < 20

select count(distinct at), bool_and(at = seen) from mt where v = 'row'

update mt set (at, v) = (default, 'row') where k = 1

insert into mt (k, v) values (1, 'x'), (2, 'x'), (3, 'x') on conflict (k) do update set (v, at) = (excluded.v, default)

select count(distinct at) from mt where v = 'x' and k < 4

-- Rows of a query whose columns the text does not tell.

insert into mt select * from unnest(array[1001, 1002, 1003, 1004], array['f', 'f', 'f', 'f'])

select count(*), count(distinct at), count(at) from mt where v = 'f' and k > 1000

insert into mt select * from json_to_recordset('[{"a": 1011, "b": "r"}, {"a": 1012, "b": "r"}, {"a": 1013, "b": "r"}]') as x(a int, b text)

select count(*), count(distinct at), count(at) from mt where v = 'r' and k > 1000

begin

insert into mt (k, v) values (1021, 'w')

insert into mt (k, v) values (1022, 'w')

insert into mt (k, v) values (1023, 'w')

insert into ms select * from generate_series(71, 73)

select bool_and(at = now()) from ms where id > 70

commit

-- A view that calls columns otherwise.

create view mw as select k, v as what, at as made from mt

insert into mw (k, what) values (1031, 'v'), (1032, 'v'), (1033, 'v') returning made = now()

select count(distinct made), count(*) from mw where what = 'v'

-- Rights to single columns are not asked for columns that nobody names.

create domain later as timestamptz default now() + interval '1 day'

create table mg (k int primary key, v text, at later)

-- router
select cleave.shard_table('{schema}.mg', 'k')

insert into mg (k) values (1), (2), (3), (4)

select count(distinct at), bool_and(at > now()) from mg

prepare p9 (int) as update mt set seen = now() where k < $1

execute p9 (20)

execute p9 (30)

select count(distinct seen) > 0 from mt where k < 30

execute "cleave at a moment" (500)

update mt set seen = now() where k in (1, 2, 3, 4) and v <> '' returning seen = now()

-- COPY with a condition, and what the home shard does for a transaction that began elsewhere.

-- data: 2001	y
-- data: 2002	y
-- data: 2003	y
-- data: 2004	y
copy mt (k, v) from stdin where at = now() and d = current_date

select count(*), count(distinct at) from mt where v = 'y'

begin

insert into mt (k, v) values (2011, 'h')

insert into mt (k, v) values (2012, 'h')

insert into mt (k, v) values (2013, 'h')

create table mx as select 1 as one, now() as at, current_date

select one, at = now(), "current_date" = current_date from mx

select 2 as two, now() into mz

select two, now = now() from mz

select at = now() from mt where v = 'h'

rollback

-- The router's own views give rows to sharded tables as any others do.

-- router
insert into mn (k) select 100 + row_number() over () from cleave.shards

-- router
insert into mt (k, seen) select 5000 + row_number() over (), now() from cleave.shards s where s.name <> ''

-- router
delete from mn where k > 100
