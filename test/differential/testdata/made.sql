-- Tables and materialised views that are made of queries over several shards.

create table book (author bigint not null, id bigint not null, title varchar(20), pages numeric(6, 1), genre text collate "C", primary key (author, id))

create table review (book bigint primary key, stars int, at timestamptz)

create table country (code text primary key, name text)

create table shelf (id bigint primary key, label text)

-- router
select cleave.shard_table('{schema}.book', 'author')

-- router
select cleave.shard_table('{schema}.review', 'book')

-- router
select cleave.reference_table('{schema}.country')

insert into book select a, b, 'Book ' || b, 100 * a + b, case b % 3 when 0 then 'Zoo' when 1 then 'art' end from generate_series(1, 4) a, generate_series(1, 6) b

insert into review select b, b % 3, '2020-01-01 12:00+00'::timestamptz + b * interval '1 day' from generate_series(1, 20) b

insert into country values ('de', 'Germany'), ('fr', 'France')

insert into shelf values (1, 'one'), (2, 'two'), (7, 'seven')

create table one as select * from book where author = 2

-- unordered
select * from one

-- unordered
select * from one join review on review.book = one.id

create table some (writer, pieces) with (fillfactor = 80) as select author, count(*) from book group by author

select * from some order by 1

create table if not exists some as select * from book

-- param: int8 3
-- param: text x
create table given as select id, title || $2 as title, $1 + 1 as next from book where author = $1

select * from given order by id

create temp table book as select b.author, s.label from book b left join shelf s on s.id = b.author where b.id = 1

select * from pg_temp.book order by 1

drop table pg_temp.book

select r.stars, sum(b.pages) as pages into unlogged made from book b join review r on r.book = b.id + 1 group by 1

select * from made order by 1

select stars into made from review

select nosuch into made2 from review

create table made2 as select pages / (id - 3) as p from book

select * from made2

create table made2 as select * from book with no data

select count(*) from made2

begin

update review set stars = 9 where book in (1, 2, 3, 4)

create table made3 as select book, stars from review where stars > 2

insert into made3 values (100, 100)

select * from made3 order by 1

savepoint s

create table made4 as select 1 / (stars - 9) as s from review

rollback to s

create table made4 as select count(*) from book, made3

select * from made4

commit

select * from made4

create materialized view totals as select author, count(*) as n, sum(pages) as pages, max(genre) as genre from book group by author

select * from totals order by author

select a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation::text from pg_attribute a where attrelid = 'totals'::regclass and attnum > 0 order by attnum

insert into book values (9, 1, 'New', 5, 'new'), (10, 1, 'New', 5, null)

refresh materialized view totals

select * from totals order by author

refresh materialized view concurrently totals

create unique index on totals (author)

delete from book where author in (1, 9)

refresh materialized view concurrently totals

select * from totals order by author

select t.n, b.title from totals t join book b on b.author = t.author and b.id = 1 order by t.author

begin

delete from book where author = 2

refresh materialized view totals

select * from totals order by author

rollback

select * from totals order by author

create materialized view empty as select * from review r join book b on b.id = r.book with no data

select * from empty

refresh materialized view empty

select count(*) from empty

refresh materialized view empty with no data

select count(*) from empty

alter materialized view empty rename to filled

alter table review rename column stars to points

refresh materialized view filled

select min(stars), max(stars) from filled

select matviewname, ispopulated from pg_matviews where schemaname = '{schema}' order by 1

create materialized view filled as select 1 from book

create materialized view if not exists filled as select * from book

create materialized view bad as select 1 / (author - 3) from book

select * from bad

alter table book drop column title

drop table book

drop materialized view totals, filled

drop table book, review, country, shelf, one, some, given, made, made2, made3, made4
