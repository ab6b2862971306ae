-- DELETE.

create table del (k bigint not null, n int, t text, primary key (k))

create table del_line (k bigint not null, n int, primary key (k, n))

create table del_ref (id int primary key, t text)

create table del_home (id int, t text)

-- router
select cleave.shard_tables('{schema}.del(k), {schema}.del_line(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.del_ref')

insert into del select i, i % 5, 't' || i from generate_series(1, 60) i

insert into del_line select i, j from generate_series(1, 60) i, generate_series(1, 2) j

insert into del_ref select i, 'r' || i from generate_series(1, 9) i

insert into del_home select i, 'h' || i from generate_series(1, 9) i

delete from del where k = 1

delete from del where k = 1

delete from del where k in (2, 3, 99) returning *

delete from del d where d.n = 4 and d.k < 15 returning d.k, d.n + 1 as more

delete from del where k between 16 and 18 returning k

delete from del using del_line l where l.k = del.k and l.n = 1 and del.k = 20 returning del.k, l.n

delete from del using note n where n.account = del.k returning del.k, n.body

delete from del using account a where a.id + 25 = del.k and a.active returning del.k

delete from del using del_ref r where r.id = del.k

delete from del d using (values (33), (35)) v (x) where v.x = d.k returning d.t

delete from del where k in (select account * 2 from entry where n = 1 and account > 20) returning k

delete from del where exists (select from event e where e.n + 50 = del.k)

delete from del where n = (select max(d) from digit) returning *

delete from del where n > all (select a from sparse where a is not null) and k < 45 returning k

delete from del where not exists (select from del_line l where l.k = del.k)

with x as (select max(k) as m from del) delete from del using x where del.k = x.m returning k

with gone as (delete from del where k = 58 returning k, t) select * from gone

with gone as (delete from del where n = 1 returning k) select count(*), min(k) from gone

delete from del_line where k in (select k from del where n = 0)

delete from only del where k = 50 returning *

delete from del where false

delete from hollow

select * from del order by k

select count(*), sum(k) from del_line

delete from del_ref where id > 7 returning *

delete from del_ref using account a where a.id = del_ref.id and a.active returning del_ref.id

delete from del_ref where id in (select n from event where place = 'aa' and n < 4)

delete from del_home where id in (select id from account where active) returning *

delete from del_home using del where del_home.id + 20 = del.k

select * from del_ref order by id

select * from del_home order by id

-- fails: 42703
delete from del where nothing = 1

-- fails: 42P01
delete from del where other.k = 1

-- fails: 22012
delete from del where 1 / (n - 0) > 0

-- fails: 42803
delete from del where count(*) > 1

-- param: int8 47
delete from del where k >= $1 returning k

delete from del returning n is null

select count(*) from del
