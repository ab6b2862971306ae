-- What only the extended protocol has: named statements and portals.

create table t (a int primary key, b text)

insert into t select i, 'row ' || i from generate_series(1, 10) i

-- parse: by_key
-- param: int4 1
select * from t where a = $1

-- bind: by_key
-- param: int4 3

-- bind: by_key
-- param: int4 4

-- bind: by_key
-- param: int4

-- bind: by_key

-- bind: by_key
-- param: int4 1
-- param: int4 2

-- parse: by_key
select 1

-- close: by_key

-- bind: by_key
-- param: int4 3

-- close: by_key

-- close: never_there

-- parse: by_key
select 'again'

-- bind: by_key

-- Types that the server finds out.

-- parse: inferred
insert into t values ($1, $2) returning a, b

-- bind: inferred
-- param: ? 11
-- param: ? eleven

-- bind: inferred
-- param: ? 11
-- param: ? eleven

-- bind: inferred
-- param: ? x
-- param: ? eleven

-- parse: broken
nonsense

-- bind: broken

-- parse: missing
select * from missing

-- parse: several
select 1; select 2

-- parse: nothing
-- empty

-- bind: nothing

-- parse: no_rows
update t set b = b where a = -1

-- bind: no_rows

-- Rows from a portal, some at a time.

-- rows: 3
select * from t order by a

-- rows: 1
select 1

-- rows: 100
select * from t order by a

-- rows: 2
insert into t values (20, 'a'), (21, 'b'), (22, 'c') returning a

-- rows: 2
select 10 / (5 - a) from t order by a

select count(*) from t

-- In transactions.

begin

-- bind: by_key

-- parse: inside
select a from t order by a limit 1

-- bind: inside

rollback

-- bind: inside

begin

-- bind: inferred
-- param: ? 1
-- param: ? again

-- bind: by_key

-- parse: failed
select 1

rollback

-- bind: by_key

-- bind: failed

-- The table changes.

-- parse: star
select * from t where a = 1

-- bind: star

alter table t add column c int

-- Where a server fails, since its plan must not change, the router prepares it again.

-- bind: star
-- expect: answer

-- Settings change what a statement means.

-- parse: where
select count(*) from pg_class where oid = to_regclass('t')

-- bind: where

set search_path to pg_catalog

-- bind: where

reset search_path

-- bind: where

-- Another session has its own.

-- session: other

-- bind: by_key

-- parse: by_key
select 'other'

-- bind: by_key

-- session: main

-- bind: by_key

-- They go with the rest.

deallocate by_key

-- bind: by_key

-- parse: p
select 1

execute p

prepare q as select 'of SQL'

-- bind: q

deallocate all

-- bind: q

-- bind: p

-- parse: p
select 1

discard all

-- bind: p

drop table t
