select * from t
select * from only t
select * from (t cross join u)
select * from ((select * from t)) x
select * from u where a = (select b from t)
select (select 1 from t)
select * from u order by (select 1 from t)
select * from u group by (select 1 from t)
select * from u group by grouping sets ((a), ((select 1 from t)))
select 1 from u having (select true from t)
select 1 limit (select 1 from t)
select 1 offset (select 1 from t)
select sum(a) over (partition by (select 1 from t)) from u
select sum(a) over w from u window w as (order by (select 1 from t))
select sum(a) filter (where (select true from t)) from u
select string_agg(a, b order by (select 1 from t)) from u
select percentile_cont(0.5) within group (order by (select 1 from t)) from u
select distinct on ((select 1 from t)) a from u
select case when exists (table t) then 1 end
select array[(select 1 from t)]
select array(select 1 from t)
select row((select 1 from t))
select coalesce(a, (select 1 from t)) from u
select greatest((select 1 from t), 1)
select (select r from t)::text
select f((select 1 from t))
select f(a => (select 1 from t))
select f(variadic (select a from t))
select a between 1 and (select 1 from t) from u
select a in (1, (select 1 from t)) from u
select a in (select 1 from t) from u
select a = any (select 1 from t) from u
select a like (select 'x' from t) from u
select (select a from t)[1]
select a[(select 1 from t)] from u
select ((select r from t)).x
select a collate "C" from u where b is null and (select true from t)
select a at time zone (select 'x' from t) from u
select extract(year from (select d from t))
select a is distinct from (select 1 from t) from u
select xmlelement(name a, (select 1 from t))
select * from xmltable('/a' passing (select x from t) columns a int path 'b')
select * from json_table((select j from t), '$' columns (a int path '$'))
select json_object('a': (select 1 from t))
select * from u tablesample bernoulli ((select 1 from t))
select * from f((select 1 from t))
select * from rows from (f((select 1 from t)), g())
select * from lateral (select * from t) x
select * from u join v on (select true from t)
values (1, (select 1 from t))
select 1 union select 2 from t
select 1 except (select 2 intersect select 3 from t)
with x as (select * from t) select * from x
with x as materialized (table t) select 1
with recursive x as (select 1 union all select * from x join t on true) select * from x
with x as (insert into t values (1) returning *) select * from x
with x as (delete from t returning *) select 1
with x as (update t set a = 1 returning *) select 1
with x as (merge into t using u on true when matched then delete returning *) select 1
insert into t values (1)
insert into u select * from t
insert into u values ((select 1 from t))
insert into u default values returning (select 1 from t)
insert into u values (1) on conflict (a) do update set b = (select 1 from t)
insert into u values (1) on conflict (a) where (select true from t) do nothing
insert into u values (1) on conflict (a) do update set b = 1 where (select true from t)
with x as (table t) insert into u table x
update t set a = 1
update u set a = (select 1 from t)
update u set (a, b) = (select 1, 2 from t)
update u set a = 1 from t
update u set a = 1 where (select true from t)
update u set a = 1 returning (select 1 from t)
update u set a[(select 1 from t)] = 1
delete from t
delete from u using t
delete from u where exists (table t)
delete from u returning (select 1 from t)
merge into t using u on true when matched then delete
merge into u using t on true when matched then delete
merge into u using (select * from t) x on true when matched then delete
merge into u using v on (select true from t) when matched then delete
merge into u using v on true when matched and (select true from t) then delete
merge into u using v on true when not matched then insert values ((select 1 from t))
merge into u using v on true when matched then update set a = (select 1 from t)
explain select * from t
explain analyze delete from t
declare c cursor for select * from t
copy t to stdout
copy (select * from t) to stdout
copy u from stdin where (select true from t)
create table u as select * from t
select * into u from t
create view v as select * from t
create materialized view v as select * from t
create table u (a int references t)
create table u (like t)
create table u () inherits (t)
create table u partition of t default
create table u (a int default (select 1 from t))
create table u (a int check ((select true from t)))
create table u (foreign key (a) references t)
alter table t add a int
alter table u add foreign key (a) references t
alter table u inherit t
alter table u attach partition t default
alter table u alter a type int using (select 1 from t)
alter table t rename to x
alter table t rename a to b
alter table t set schema x
alter table t owner to x
drop table t
drop table u, t
truncate u, t
lock table t
vacuum t
analyze u, t
cluster t
reindex table t
refresh materialized view t
create index on t (a)
create index on u (((select 1 from t)))
create index on u (a) where (select true from t)
create trigger x before insert on t execute function f()
create constraint trigger x after insert on u from t for each row execute function f()
create rule r as on insert to t do nothing
create rule r as on insert to u do also delete from t
create rule r as on insert to u where (select true from t) do nothing
create policy p on t
create policy p on u using (exists (table t))
alter policy p on t using (true)
drop trigger x on t
drop rule x on t
drop policy x on t
create statistics s on a, b from t
create sequence s owned by t.a
alter sequence s owned by t.a
comment on table t is 'x'
comment on column t.a is 'x'
comment on trigger x on t is 'x'
comment on constraint x on t is 'x'
security label on table t is 'x'
grant select on t to x
revoke select (a) on u, t from x
create publication p for table u, t
alter publication p add table t where (a > 1)
alter extension e add table t
alter trigger x on t depends on extension e
create function f() returns int return (select 1 from t)
create function f() returns int begin atomic insert into u values (1); select * from t; end
create function f(a int default (select 1 from t)) returns int language sql as ''
create schema s create view v as select * from t
call p((select 1 from t))
execute p((select 1 from t))
create foreign table u (like t) server s
create domain d as int check ((select true from t))
alter domain d add check ((select true from t))
alter table u add constraint c exclude using gist (a with =) where ((select true from t))
