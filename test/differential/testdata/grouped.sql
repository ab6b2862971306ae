-- Groups by a primary key, which decides the other columns of its table: of rows that are put together from several shards as well.

create table author (id bigint primary key, name text not null, born date)

create table book (author bigint not null, id bigint not null, title text, pages int, primary key (author, id))

create table review (book bigint primary key, stars int, words text)

create table shelf (id bigint primary key, label text)

-- router
select cleave.reference_table('{schema}.author')

-- router
select cleave.shard_table('{schema}.book', 'author')

-- router
select cleave.shard_table('{schema}.review', 'book')

insert into author values (1, 'Ann', '1950-01-01'), (2, 'Ben', '1960-02-02'), (3, 'Cid', null), (4, 'Ann', '1950-01-01'), (5, 'Eve', '1970-05-05')

insert into book select a, b, 'Book ' || b, 100 * a + b from generate_series(1, 4) a, generate_series(1, 6) b

insert into book values (9, 1, 'Nobody''s', null)

insert into review select b, b % 3, 'words ' || b from generate_series(1, 20) b

insert into shelf values (1, 'one'), (2, 'two'), (7, 'seven')

select a.id, a.name, a.born, sum(b.pages) from author a left join book b on b.author = a.id group by a.id order by a.id

select a.id, name, count(b.id), max(title) from author a left join book b on b.author = a.id and b.pages > 200 group by a.id having a.name <> 'Cid' order by a.name, a.id

select a.name, sum(b.pages) as pages from author a left join book b on b.author = a.id group by 1, a.id order by pages desc nulls last, name limit 3

select s.*, count(r.words), min(r.stars) from shelf s left join review r on r.book = s.id group by s.id order by s.id

select r.book, r.stars, string_agg(b.title, ',' order by b.author) from review r join book b on b.id = r.book group by r.book order by r.book

select r.book, r.words from review r group by r.book order by r.stars, r.words

select r.book, r.words, string_agg(r.stars::text, '') from review r group by r.book order by r.stars, r.words

select a.name, (select count(*) from review r where r.book = a.id and r.words <> a.name), count(b.id) from author a left join book b on b.author = a.id group by a.id order by a.id

select a.id, (select max(s.label) from shelf s where s.label > a.name), (select sum(b.pages)) from author a left join book b on b.author = a.id group by a.id order by a.id

select a.id, rank() over (order by a.born, count(b.id) desc), a.born from author a left join book b on b.author = a.id group by a.id order by a.id

select upper(a.name), count(b.id) from author a left join book b on b.author = a.id group by upper(a.name) order by 1

select a.name || a.id, count(b.id) from author a left join book b on b.author = a.id group by a.id, a.name order by a.name || a.id

select distinct on (a.born) a.born, a.name, count(b.id) from author a left join book b on b.author = a.id group by a.id order by a.born, a.id

select * from (select a.*, count(b.id) as books from author a left join book b on b.author = a.id group by a.id) x left join shelf s on s.id = x.books order by x.id

-- What the key does not decide.

select a.id, b.title from author a left join book b on b.author = a.id group by a.id

select a.name, count(b.id) from author a left join book b on b.author = a.id group by a.born
