-- Several statements in one simple query, and none.

create table t (a int primary key)

-- protocol: simple
select 1; select 2

-- protocol: simple
select 1; select 2;

-- protocol: simple
;

-- protocol: simple
;;; select 1 ;;

-- protocol: simple
-- empty

-- empty

-- protocol: simple
  /* nothing but a comment */  

/* nothing but a comment */

-- protocol: simple
insert into t values (1); insert into t values (2); select * from t order by a

-- An error undoes what came before it, and what follows is not run.

-- protocol: simple
insert into t values (3); select 1/0; insert into t values (4)

select * from t order by a

-- protocol: simple
insert into t values (3); insert into t values (1); insert into t values (4)

select * from t order by a

-- A syntax error runs nothing.

-- protocol: simple
insert into t values (5); nonsense; insert into t values (6)

select * from t order by a

-- Explicit blocks among them.

-- protocol: simple
begin; insert into t values (7); commit; insert into t values (8); select 1/0

select * from t order by a

-- protocol: simple
insert into t values (9); commit; insert into t values (10); select 1/0

select * from t order by a

-- protocol: simple
insert into t values (11); rollback; insert into t values (12)

select * from t order by a

-- protocol: simple
begin; insert into t values (13); select 1/0; commit

select 1

rollback

select * from t order by a

-- protocol: simple
begin; select 1/0; rollback; select 2

rollback

-- protocol: simple
insert into t values (14); begin; insert into t values (15); rollback

select * from t order by a

-- protocol: simple
begin; savepoint a; insert into t values (16); rollback to a; commit; select count(*) from t

-- protocol: simple
savepoint a; select 1

-- Inside a block that is open already.

begin

-- protocol: simple
insert into t values (17); insert into t values (18)

-- protocol: simple
select 1/0; select 2

-- protocol: simple
select 1; select 2

rollback

select * from t order by a

-- Settings among them.

-- protocol: simple
set work_mem = '5MB'; show work_mem

-- protocol: simple
set work_mem = '6MB'; select 1/0

show work_mem

-- protocol: simple
set local work_mem = '7MB'; show work_mem

show work_mem

reset work_mem

-- What cannot run beside others.

-- protocol: simple
select 1; vacuum t

-- protocol: simple
vacuum t; select 1

-- Strings and comments with semicolons in them.

-- protocol: simple
select 'a;b'; select "x;y" from (select 1 as "x;y") s; select $q$ ; $q$; select 1 /* ; */; select 2 -- ;

-- protocol: simple
select e'\';'; select U&'\003B'; select $$;$$ || ';'

-- Two at once in the extended protocol are an error.

-- protocol: extended
select 1; select 2

-- protocol: extended
select 1;

-- Rules and functions with several statements.

create function two() returns setof int begin atomic select 1; select a from t where a < 3; end

-- unordered
select * from two()

drop function two()

drop table t
