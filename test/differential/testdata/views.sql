-- Views over tables of all kinds, made before and after these were declared.

create table author (id bigint primary key, name text not null, born date)

create table book (author bigint not null, id bigint not null, title text, pages int, price numeric(8, 2), primary key (author, id))

create table review (book bigint, stars int, words text primary key)

create table shelf (id bigint primary key, label text)

create view thick as select author, id, title, pages from book where pages > 202

create view writers as select a.id, a.name, count(b.id) as books, sum(b.pages) as pages, avg(b.price) as price from author a left join book b on b.author = a.id group by a.id, a.name

-- router
select cleave.reference_table('{schema}.author')

-- router
select cleave.shard_table('{schema}.book', 'author')

-- router
select cleave.shard_table('{schema}.review', 'words')

insert into author values (1, 'Ann', '1950-01-01'), (2, 'Ben', '1960-02-02'), (3, 'Cid', null), (4, 'Ann', '1950-01-01'), (5, 'Eve', '1970-05-05')

insert into book select a, b, 'Book ' || b, 100 * a + b, a * 1.25 + b from generate_series(1, 4) a, generate_series(1, 6) b

insert into book values (9, 1, 'Nobody''s', null, null)

insert into review select b, b % 3, 'words ' || b from generate_series(1, 20) b

insert into shelf values (1, 'one'), (2, 'two'), (7, 'seven')

create view reviewed as select b.author, b.id, b.title, r.stars, r.words from book b join review r on r.book = b.id

create view best as select title, stars from reviewed where stars = 2 order by stars desc, author, id limit 4

create view everything (what, number, label) as select 'book'::text, id, title from book union all select 'author', id, name from author union all select 'shelf', id, label from shelf

create view sums as select grouping(author) as g, author, sum(pages) as pages, percentile_cont(0.5) within group (order by pages) as middle, string_agg(title, ',' order by id, author) as titles, jsonb_agg(pages order by id, author) filter (where pages > 103) as many from book group by rollup (author)

create view neighbours as select author, id, lag(title) over w as before, lead(title) over w as after, row_number() over (order by author, id) as place from book window w as (partition by author order by id)

create view distinct_titles as select distinct title from book

create view odd as select author, id, case when pages % 2 = 1 then 'odd' else 'even' end as parity, coalesce(price, -1.5) as price, title like 'Book%' as is_book, author in (1, 2) as early, id between 2 and 4 as middle, (author, id) = (2, 3) as it, array[author, id] as both, title collate "C" as sorted from book

create view latest as select * from (select author, id, title, rank() over (partition by author order by id desc) as r from book) x where r = 1

create view nested as select w.name, t.title from writers w join thick t on t.author = w.id where w.books > 2

create view lateral_view as select a.name, x.title from author a cross join lateral (select title from book b where b.author = a.id order by id desc limit 2) x

create view exists_view as select id, name from author a where exists (select from book b where b.author = a.id and b.pages > 305)

create view full_view as select a.id as a, b.author as b, b.id from author a full join book b on b.author = a.id

create view using_view as select author, id, n.title, pages from book join (select author, id, title from thick) n using (author, id)

select * from thick where author = 3 order by id

select * from thick order by author, id

select t.title, a.name from thick t join author a on a.id = t.author order by a.id, t.id

select count(*), sum(pages) from thick

select * from writers order by id

select * from writers where id = 2

select name, sum(books) from writers group by name order by name

select * from reviewed order by author, id, stars limit 9

select stars, count(*), min(title) from reviewed group by stars order by stars

select * from reviewed where author = 2 and stars > 0 order by id

select * from best

select count(*) from best

create view at_home as select s.label, b.title from shelf s join book b on b.id = s.id

create view at_home_too as select label, count(*) as n from at_home group by label

select * from at_home order by label, title

select * from at_home_too order by label

select a.*, t.author from at_home_too a join thick t on t.id = a.n order by 1, 3

drop view at_home

drop view at_home cascade

select * from at_home_too

select what, count(*), min(label) from everything group by what order by what

select * from everything where number = 2 order by 1, 2, 3

select * from sums order by g, author

select titles from sums where author = 2

select * from neighbours order by place

select * from neighbours where author = 2 order by id

select * from distinct_titles order by title

select count(*) from distinct_titles

select * from odd where author = 2 order by id

select parity, count(*), bool_or(it), min(both) from odd group by parity order by parity

select * from latest order by author

select * from nested order by name, title

select * from lateral_view order by name, title

select * from exists_view order by id

select * from full_view order by a, b, id

select * from using_view order by author, id

select a.title, b.title from thick a join thick b on b.author = a.author and b.id = a.id + 1 order by a.author, a.id

select a.name from writers a, writers b where a.books = b.books and a.id <> b.id order by a.name, b.id

select s.label, t.title from shelf s left join thick t on t.id = s.id order by 1, 2

select (select count(*) from thick), (select max(pages) from writers), exists (select from best where stars > 5)

select id from author where id in (select author from latest where title = 'Book 6') order by id

with w as (select * from writers), t as (select author, count(*) as n from thick group by author) select w.name, t.n from w left join t on t.author = w.id order by w.id

select * from thick except select * from thick where author > 3 order by author, id

select w.* from writers as w (number, label) where w.number = 3

select w from writers w where w.id = 1

select row_to_json(t) from thick t where author = 3 order by id

select to_jsonb(w) from writers w order by id

prepare p as select title from thick where author = $1 and pages > $2 order by id

execute p(2, 203)

execute p(3, 304)

prepare q as select name, books from writers where books >= $1 order by id

execute q(6)

insert into shelf select id + 100, name from writers where books > 0

select * from shelf order by id

insert into review select author * 1000 + id, 7, title || author from latest

select * from review where stars = 7 order by book

update book set price = 0 from writers w where w.id = book.author and w.books > 5

delete from review using best where best.stars = review.stars

select author, id, price from book order by author, id

select count(*) from review

begin

create or replace view thick as select author, id, title, pages from book where pages > 404

select * from thick order by author, id

select count(*) from thick

rollback

select count(*) from thick

alter table book rename column title to name

select title from thick where author = 3 order by id

select * from writers order by id

alter table book rename column name to title

create or replace view thick as select author, id, title, max(pages) as pages from book group by author, id, title

select sum(pages) from thick

alter view thick rename to fat

select sum(pages) from fat

select * from thick

drop view fat

drop view fat cascade

select * from nested

drop view reviewed cascade

select * from best

drop table book

drop view everything

drop view writers, sums, neighbours, distinct_titles, odd, latest, lateral_view, exists_view, full_view

drop table book, review, author

drop table shelf
