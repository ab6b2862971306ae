-- UPDATE.

create table upd (k bigint not null, n int, t text default 'new', x numeric(6, 2), a int[], j jsonb, primary key (k))

create table upd_line (k bigint not null, n int, q int, primary key (k, n))

create table upd_ref (id int primary key, t text, n int)

-- router
select cleave.shard_tables('{schema}.upd(k), {schema}.upd_line(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.upd_ref')

insert into upd select i, i % 4, 't' || i, i * 1.1, array[i, i + 1], jsonb_build_object('i', i) from generate_series(1, 12) i

insert into upd_line select i, j, i * j from generate_series(1, 12) i, generate_series(1, 3) j

insert into upd_ref select i, 'r' || i, i from generate_series(0, 5) i

update upd set n = n + 1 where k = 3

update upd set n = n + 1

update upd set t = default, x = null where n = 2

update upd set (n, t) = (n * 10, upper(t)) where k in (1, 4, 7) returning *

update upd u set t = u.t || '!' where u.k % 2 = 0 returning u.k, u.t

update upd set (n, t) = (select 5, 'sub') where k = 5 returning *

update upd set (n, t) = (select q, 'line' from upd_line l where l.k = upd.k and l.n = 1) where k > 10 returning *

update upd set n = (select max(q) from upd_line l where l.k = upd.k)

update upd set n = (select count(*) from account) where k < 3 returning n

update upd set n = (select count(*) from event e where e.n = upd.k) where k < 5 returning k, n

update upd u set n = l.q from upd_line l where l.k = u.k and l.n = 2

update upd u set t = r.t from upd_ref r where r.id = u.k returning u.k, r.id, u.t

update upd u set t = n.body from note n where n.account = u.k returning u.k, u.t, n.id

update upd u set t = v.t from (values (1, 'one'), (9, 'nine')) v (k, t) where v.k = u.k

update upd u set t = a.owner from account a where a.id = u.k + 10 returning u.k, u.t

update upd u set x = s.total from (select k, sum(q) as total from upd_line group by k) s where s.k = u.k

update upd u set x = s.total from (select sum(balance) % 1000 as total from account) s where u.k = 6 returning x

update upd set a[1] = 100, a[3] = 300 where k = 2 returning a

update upd set a = a || 7, j = j || '{"more": true}' where k = 3 returning a, j

update upd set j['i'] = '"x"' where k = 4 returning j

update upd set n = 1 where k in (select account from note) returning k

update upd set n = 2 where exists (select from event e where e.n = upd.k and e.place = 'b') returning k

update upd set n = 3 where k = any (array[8, 9]) and t is not null returning k

update upd set n = k, k = k where k = 1

update upd set k = k + 100 where k = 2 returning *

update upd set k = k + 100 where k > 100 or k = 3 returning k

with x as (select k from upd_line group by k having sum(q) > 60) update upd set t = 'many' from x where x.k = upd.k returning upd.k

update only upd set t = null where k = 12

update upd set t = t where false

update hollow set a = 1

select * from upd order by k

-- fails: 22003
update upd set x = 12345.6 where k > 3

-- fails: 23502
update upd set k = null where k = 12

-- fails: 23505
update upd_line set n = 1 where k = 7 and n > 1

-- fails: 42703
update upd set nothing = 1

-- fails: 42601
update upd set n = 1, n = 2

-- fails: 42703
update upd u set upd.n = 1

-- fails: 21000
update upd set n = (select q from upd_line)

-- fails: 22012
update upd set n = 1 / (n - n) where n > 0

update upd_ref set t = 'all' where n > 2

update upd_ref r set t = a.owner from account a where a.id = r.id returning r.*

update upd_ref set n = (select count(*) from account) where id = 0 returning *

update upd_ref set t = now()::text where id = 1 returning id

update upd_ref set id = id + 10 where id = 2 returning *

update digit set d = d where d in (select id from account)

select * from upd_ref where id <> 1 order by id

-- param: text par
-- param: int8 6
update upd set t = $1 where k = $2 or k = $2 + 1 returning k, t

select count(*), sum(k), sum(n), sum(x), count(t) from upd
