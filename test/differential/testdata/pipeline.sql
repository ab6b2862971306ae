-- Several statements of the extended protocol before the answers are read.

create table t (a int primary key)

-- protocol: pipeline
select 1
select 2
select 3

-- protocol: pipeline
insert into t values (1)
insert into t values (2)
select * from t order by a

-- An error skips the rest up to Sync, and undoes what came before it.

-- protocol: pipeline
insert into t values (3)
select 1/0
insert into t values (4)

select * from t order by a

-- protocol: pipeline
insert into t values (3)
nonsense
insert into t values (4)

select * from t order by a

-- protocol: pipeline
insert into t values (3)
-- sync
insert into t values (1)
insert into t values (4)
-- sync
insert into t values (5)

select * from t order by a

-- protocol: pipeline
select missing
-- sync
select 1
-- sync
select 1/0
-- sync
select 2

-- Blocks.

-- protocol: pipeline
begin
insert into t values (6)
commit
insert into t values (7)
select 1/0

select * from t order by a

-- protocol: pipeline
begin
insert into t values (8)
-- sync
select 1/0
-- sync
select 1
-- sync
rollback

select * from t order by a

-- protocol: pipeline
begin
savepoint a
insert into t values (9)
rollback to a
insert into t values (10)
commit

select * from t order by a

-- protocol: pipeline
begin
select 1/0

rollback

-- Settings.

-- protocol: pipeline
set work_mem = '5MB'
show work_mem
reset work_mem

-- protocol: pipeline
set work_mem = '6MB'
select 1/0

show work_mem

-- Parameters.

-- protocol: pipeline
-- param: int4 2
select * from t where a = $1
select $1 + 1
delete from t where a = $1 returning a

-- Nothing at all.

-- protocol: pipeline
;
select 1

-- Much of it.

-- protocol: pipeline
select i from generate_series(1, 20000) i
select i from generate_series(1, 20000) i
select i from generate_series(1, 20000) i

drop table t
