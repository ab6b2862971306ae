-- Much at once.

select i, 'row ' || i as text from generate_series(1, 200000) i

-- rows: 20000
select i from generate_series(1, 100000) i

select repeat('x', 1000000)

select i, repeat(i::text, 250000) from generate_series(1, 4) i

-- Many columns.

select 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40

create table wide (a text, b bytea)

insert into wide select repeat('ab', 500000), decode(repeat('00ff', 500000), 'hex')

select a, b from wide

select length(a), length(b) from wide

copy wide to stdout

create table long (i int)

insert into long select generate_series(1, 50000)

select count(*), sum(i) from long

update long set i = i + 1

delete from long where i % 2 = 0

-- unordered
select i from long where i < 1000

-- Zero columns and zero rows.

select from long limit 3

select * from long where false

select i as a, i as b from long where i < 0

-- Nothing comes of it, but much was on its way.

select i, 1 / (100000 - i) from generate_series(1, 200000) i

select 1

begin

select i, 1 / (10000 - i) from generate_series(1, 20000) i

rollback

drop table wide, long
