-- Temporary tables belong to a session.

create temporary table t (a int, b text)

insert into t values (1, 'one'), (2, 'two')

select * from t order by a

-- session: other

select * from t

create temp table t (x text)

insert into t values ('other')

select * from t

-- session: main

select * from t order by a

begin

create temp table u on commit drop as select 1 as a

select * from u

commit

select * from u

begin

create temp table u (a int) on commit delete rows

insert into u values (1)

select * from u

commit

select * from u

drop table u

-- They hide others of the same name.

create table shadow (a text)

insert into shadow values ('permanent')

select * from shadow

create temp table shadow (a text)

insert into shadow values ('temporary')

select * from shadow

select * from {schema}.shadow

select * from pg_temp.shadow

update shadow set a = a || '!'

select * from shadow

drop table shadow

select * from shadow

drop table shadow

-- Views and sequences.

create temp view v as select a * 2 as twice from t

select * from v order by 1

create temporary sequence s

select nextval('s'), nextval('s')

-- expect: refused: a value of this session's own backend
select lastval()

create temp table made as select * from t

select count(*) from made

select a into temp table into_made from t

select count(*) from into_made

-- In a transaction that is rolled back.

begin

create temp table gone (a int)

insert into gone values (1)

rollback

select * from gone

-- Discarding.

discard temp

select * from t

create temp table t (a int)

discard all

select * from t

-- When the session ends.

-- session: other

select * from t

-- end

-- session: other

select * from t
