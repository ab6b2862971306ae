-- COPY to and from the client.

create table t (a int primary key, b text, c numeric default 5)

-- data: 1	one	1.5
-- data: 2	two words	\N
-- data: 3	tab\there	3
copy t from stdin

select * from t order by a

copy t to stdout

copy t (b, a) to stdout

copy (select a, b from t where a > 1 order by a) to stdout

copy (select a, b from t order by a) to stdout with (format csv, header)

copy (select a, b from t order by a) to stdout (format csv, delimiter ';', quote '''', force_quote (b))

copy (values (1, null), (2, 'x')) to stdout with csv

copy (select a from t order by a) to stdout (format binary)

-- Columns with defaults.

-- data: 4,four
-- data: 5,"five, with ""quotes"""
-- data: 6,
copy t (a, b) from stdin with (format csv)

select * from t order by a

-- data: a|b
-- data: 7|seven
copy t (a, b) from stdin with (format csv, header, delimiter '|')

-- nodata
copy t from stdin

-- What goes wrong.

-- data: x	one	1
copy t from stdin

-- data: 8	eight	8
-- data: 1	again	1
copy t from stdin

select count(*) from t

-- data: 8	eight
copy t from stdin

-- data: 8	eight	8	9
copy t from stdin

-- data: 8	eight	8
-- copyfail: the client gave up
copy t from stdin

select count(*) from t

copy missing to stdout

-- data: 1
copy missing from stdin

copy t (nothing) to stdout

copy t to stdout (format nonsense)

copy (insert into t values (9, 'nine', 9) returning a) to stdout

copy (select 1/0) to stdout

copy (select 10 / (3 - i) from generate_series(1, 5) i) to stdout

-- Inside transactions.

begin

-- data: 10	ten	10
copy t from stdin

select count(*) from t

rollback

select count(*) from t

begin

-- data: bad
copy t from stdin

select 1

rollback

-- Beside other statements.

-- protocol: simple
select 1; copy (select 2) to stdout; select 3

-- protocol: simple
-- data: 11	eleven	11
select 1; copy t from stdin; select count(*) from t

-- protocol: simple
select 1; copy (select 1/0) to stdout; select 3

-- Views cannot be copied to without more ado.

create view v as select * from t

copy v to stdout

copy (select * from v order by a limit 1) to stdout

-- Many rows.

create table many (a int, b text)

insert into many select i, repeat('x', i % 50) from generate_series(1, 5000) i

copy many to stdout

drop view v

drop table t, many
