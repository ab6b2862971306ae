-- Errors: their codes and where they point.

create table t (a int primary key, b text not null, c int check (c > 0))

-- Syntax.

selec 1

select

select 1 from

select 1 +

select (1

select 'open

select "open

select $$open

select 1 from t where

select * form t

insert into t value (1)

select 'ünïcode', ä from t

select 'ünïcode' 'x' y z

select /* open

select 1;;

create tabel x (a int)

select 1 as select

-- protocol: simple
select 1; selec 2

-- Names.

select nothing

select nothing from t

select t.nothing from t

select x.a from t

select * from missing

select * from missing.t

select missing(1)

select lower(1, 2)

select a from t, t as u

select 1::missing

select 'x'::missing.type

insert into t (nothing) values (1)

update t set nothing = 1

select count(*) from t group by missing

select a, count(*) from t

select max(max(a)) from t

-- Values.

select 1/0

select 'x'::int

select '2024-13-01'::date

select 99999999999::int

select 9223372036854775807 + 1

select 'x' + 1

select array[1, 'x']

select '{1,x}'::int[]

select '{broken'::json

select sqrt(-1)

select ln(0)

select chr(0)

select convert_from('\xff'::bytea, 'UTF8')

select 1 where 'x'

select coalesce(1, 'x')

select case when true then 1 else 'x' end

-- In the middle of rows.

select 10 / (3 - i) from generate_series(1, 5) i

select i, case when i < 4000 then i else 1/0 end from generate_series(1, 5000) i

-- Constraints.

insert into t values (1, 'one', 1)

insert into t values (1, 'one', 1)

insert into t values (2, null, 1)

insert into t values (2, 'two', 0)

insert into t values ('x', 'two', 1)

insert into t values (1)

insert into t values (1, 'a', 1, 4)

update t set b = null

insert into t values (1, 'again', 5) on conflict (b) do nothing

create table r (a int references t)

insert into r values (99)

insert into r values (1)

delete from t

truncate t

-- Things that exist, or do not.

create table t (a int)

drop table missing

drop view t

alter table t add column a int

alter table t drop column missing

create index on t (missing)

create schema {schema}

create function f() returns int language nonsense as 'x'

create function f() returns int language sql as 'select missing'

-- Rights.

create role {schema}_guest

grant usage on schema {schema} to {schema}_guest

set role {schema}_guest

select * from t

insert into t values (5, 'five', 5)

delete from t

create table mine (a int)

drop table t

create role another

alter system set work_mem = '1MB'

select pg_read_file('/etc/hostname')

reset role

grant select (a) on t to {schema}_guest

set role {schema}_guest

select a from t

select b from t

select * from t

reset role

drop owned by {schema}_guest

drop role {schema}_guest

-- Time.

set statement_timeout = '50ms'

select pg_sleep(10)

select 1

begin

select pg_sleep(10)

select 1

rollback

reset statement_timeout

-- Locks.

begin

update t set c = 2 where a = 1

-- session: other

set lock_timeout = '50ms'

update t set c = 3 where a = 1

select * from t where a = 1 for update nowait

select * from t where a = 1 for update skip locked

-- session: main

rollback

-- Depth and size.

set max_stack_depth = '100kB'

create function deep(int) returns int language plpgsql as 'begin return deep($1 + 1); end'

select deep(1)

reset max_stack_depth

drop function deep(int)

drop table r, t
