-- Temporary tables are on the backend that the session keeps; statements that use them beside sharded tables find them there, in a transaction and out of it.

create table tt (k bigint primary key, a int, b text)

-- router
select cleave.shard_table('{schema}.tt', 'k')

create table tr (id int primary key, name text)

-- router
select cleave.reference_table('{schema}.tr')

create table tp (id int primary key, name text)

insert into tt select i, i % 10, 'b' || i % 3 from generate_series(1, 100) i

insert into tr select i, 'n' || i from generate_series(0, 9) i

insert into tp select i, 'p' || i from generate_series(0, 9) i

create temp table ids (id bigint, n int default 7)

insert into ids select generate_series(1, 20, 3)

select count(*), sum(a), max(b) from tt join ids on id = k

select * from ids where id in (select k from tt where a = 1) order by 1

select k, n, tr.name, tp.name from tt join ids on id = k join tr on tr.id = a join tp on tp.id = a order by k

select k, n from tt left join ids on id = k where k < 8 order by k

select count(*) from tt where exists (select from ids where id = k) and k = 4

select k, a, rank() over (partition by b order by k desc) from tt join ids on id = k order by 1 limit 3

insert into ids select k from tt where a = 3

insert into ids (id) select k from tt where a = 4 and k < 10 returning *

insert into ids (n, id) select a, k from tt where a = 5 and k < 30

update ids set n = t.a from tt t where t.k = ids.id

delete from ids using tt t where t.k = ids.id and t.a = 3

update ids set n = n + (select count(*) from tt where a = ids.n) where id < 10

select * from ids order by 1, 2

insert into tt select id + 1000, n, 'new' from ids on conflict do nothing

update tt set b = 'hit' where k in (select id from ids where n > 5)

delete from tt using ids where tt.k = ids.id + 1000

select count(*), min(b), max(b) from tt

prepare p as select count(*) from tt t join ids i on i.id = t.k where t.a = $1

execute p(1)

prepare q(bigint) as insert into ids select k from tt where a = $1

execute q(6)

select count(*) from ids

begin

select count(*) from tt where k = 77

select count(*), sum(n) from tt join ids on id = k

execute p(4)

insert into ids select k from tt where a = 8

savepoint s

delete from ids where id in (select k from tt where a = 8)

select count(*) from ids

rollback to s

select count(*) from ids

rollback

select count(*) from ids

begin

create temp table x on commit drop as select * from tt where a < 3

select count(*), (select count(*) from x) from tt, x where x.k = tt.k

commit

create temp view v as select * from ids where n < 9

select count(*) from v join tt on k = id

with i as (select * from ids) select count(*) from i join tt on k = i.id where a > 1

with recursive r as (select min(id) as id from ids union all select tt.k from r join tt on tt.k = r.id + 3) select count(*) from r

declare c cursor with hold for select k from tt join ids on id = k order by k

fetch 3 from c

close c

create table made as select tt.* from tt join ids on id = k where a = 1

select count(*) from made

drop table made

truncate ids

select count(*) from tt join ids on id = k

merge into ids using tt on tt.k = ids.id when not matched and tt.a = 1 then insert values (tt.k, 1)

select count(*) from ids

merge into tt using ids on tt.k = ids.id when matched then update set b = 'merged'

select count(*) from tt where b = 'merged'

insert into ids select distinct on (a) k, a from tt where a < 3 order by a, k

-- fails: 42804
insert into ids select distinct 3, '4' from tt

-- fails: 42703
select nothing from tt join ids on id = k

-- expect: refused: temporary table ids
insert into ids select k, '5' from tt where a = 3

create temp table tt2 (like tt)

insert into tt2 select * from tt where a = 2

select * from tt2 except select * from tt

select count(*) from tt2 full join tt using (k, a, b)

drop table ids cascade

drop table tt2

-- fails: 42P01
select count(*) from tt join ids on id = k

-- fails: 42P01
update tt set a = 1 from nowhere

-- fails: 42P01
with x as (select * from tt) select * from x, {schema}.nothing

-- Tables of one name one after the other, with other columns.

create temp table yy (a text, b text, k bigint, m bigint)

insert into yy values ('A', 'B', 1, 5), ('A', 'B', 2, 6)

prepare f2 as select sum(m), min(yy.a), max(yy.b) from yy join tt using (k)

prepare f3 as update tt set b = yy.b from yy where yy.k = tt.k

execute f2

execute f3

drop table yy

create temp table yy (b text, a text, m bigint, k bigint)

insert into yy values ('B2', 'A7', 5, 1), ('B3', 'A8', 6, 2)

execute f2

execute f3

select sum(m), min(yy.a), max(yy.b) from yy join tt using (k)

select * from tt where k in (1, 2, 5, 6) order by k

delete from tt where k in (select k from yy)

select count(*) from tt

drop table yy

create temp table yy (m bigint, k bigint)

insert into yy values (1, 5)

select sum(m) from yy join tt using (k)
