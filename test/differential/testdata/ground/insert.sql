-- INSERT of values and of queries.

create table ins (k bigint not null, n int default 7, t text default 'none', v varchar(4), d date, x numeric(6, 2), primary key (k))

create table ins_ref (id int primary key, t text)

create table ins_home (id int, t text)

-- router
select cleave.shard_tables('{schema}.ins(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.ins_ref')

insert into ins values (1)

insert into ins values (2, 3, 'two', 'abcd', '2020-02-02', 1.005), (3, default, default, null, null, 2)

insert into ins (n, k) values (1, 4), (2, 5), (3, 6)

insert into ins (k, t) select id, owner from account where id between 10 and 20

insert into ins (k, n) select id + 100, count(*) from account a join entry e on e.account = a.id group by id

insert into ins (k, t) select d + 200, 'digit ' || d from digit

insert into ins (k, t, d) select n.id + 300, n.body, a.opened from note n join account a on a.id = n.account

insert into ins (k) select max(k) + 1 from ins

insert into ins (k, t) values ((select max(id) from account) + 400, (select min(owner) from account)), (402, upper('x'))

insert into ins (k, n, t) values (450, (array[1, 2, 3])[2], 'a'), (451, 1, array_to_string(array['x', 'y'], ',')), (452, default, 'b')

insert into ins (k, n) values (500, 1 + 1) returning *

-- ordered
insert into ins (k, n) values (501, 1), (502, 2), (503, 3) returning k, n * 2 as twice, t

insert into ins (k, n) select id + 600, a from sparse returning k, n

insert into ins (k, t) with x as (select id, b from sparse where a = 1) select id + 700, b from x returning k, t

with x as (select 800 as k) insert into ins (k) select k from x

with x as (select place, count(*) as c from event group by place) insert into ins (k, n, t) select 900 + row_number() over (order by place), c, place from x

insert into ins (k, x) select 1000 + id, balance from account order by balance desc limit 3

insert into ins (k, t) select id + 1100, region from account union all select d + 1200, 'd' from digit

insert into ins (k) table digit on conflict do nothing

-- fails: 23505
insert into ins (k) values (1)

-- fails: 23505
insert into ins (k) values (2000), (2001), (2)

-- fails: 23502
insert into ins (n) values (1)

-- fails: 22001
insert into ins (k, v) values (2002, 'abcde')

-- fails: 22003
insert into ins (k, x) values (2003, 12345.6)

-- fails: 22007
insert into ins (k, d) values (2004, 'someday')

-- expect: different: the error has no position
-- fails: 42601
insert into ins (k, n) values (1)

-- fails: 42703
insert into ins (k, nothing) values (1, 2)

-- fails: 42701
insert into ins (k, k) values (1, 2)

-- fails: 42804
insert into ins (k, n) values (2005, true)

-- fails: 22008
insert into ins (k, d) select 2006 + id, ('2020-01-' || id + 24)::date from sparse

select count(*), sum(k), sum(n), count(t), min(x), max(d) from ins

select * from ins where k > 300 and k < 600 order by k

insert into ins_ref values (1, 'one'), (2, 'two')

insert into ins_ref select id + 10, owner from account where id < 4

insert into ins_ref select d + 20, now()::text from digit where d < 2 returning id

insert into ins_home select k, t from ins where k < 10

insert into ins_home select id, owner from account where active

insert into ins_home values (1, 'x'), ((select count(*) from account), 'y') returning *

select * from ins_ref where id < 20 order by id

select id, t from ins_home order by id, t

-- param: int8 3000
-- param: text a
insert into ins (k, t) values ($1, $2), ($1 + 1, $2 || '!')

-- param: int8 3100
insert into ins (k, n) select $1 + id, a from sparse where a > 0

select k, n, t from ins where k >= 3000 order by k

-- fails: 23502
insert into ins default values

-- fails: 23505
insert into ins (k, n) overriding system value values (1, 2), (3, 4)

create table ins_copy as select id, owner, balance from account where id < 5

create table ins_none (like account including all)

select count(*) from ins_none
