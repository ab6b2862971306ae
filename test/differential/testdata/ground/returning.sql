-- RETURNING.

create table ret (k bigint not null, n int default 5, t text, g int generated always as (n * 2) stored, primary key (k))

create table ret_ref (id int primary key, t text)

-- router
select cleave.shard_tables('{schema}.ret(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.ret_ref')

insert into ret (k, t) values (1, 'a') returning *

-- ordered
insert into ret (k, t) values (2, 'b'), (3, 'c'), (4, 'd') returning k, g, t || k as both

insert into ret (k, n) select id + 4, a from sparse returning k, n, g

-- ordered
insert into ret (k, t) values (20, 'x'), (21, 'y') returning (select name from region where code = 'nl'), k

-- expect: refused: sharded table ground.ret together with what only one shard has is not supported yet
insert into ret (k, t) values (22, 'x'), (23, 'y') returning k, (select count(*) from digit where d < ret.n)

-- expect: refused: In the way: a subquery in an expression
insert into ret (k) values (24) returning (select count(*) from account)

-- expect: refused: sharded table ground.ret together with what only one shard has is not supported yet
insert into ret (k) values (25), (26) returning k in (select id from account), exists (select from note)

insert into ret (k) values (27) returning ret

insert into ret (k) values (28) returning (ret).k, row(k, n)

update ret set n = n + 1 where k < 4 returning *

update ret set n = n + 1 returning k, n

update ret set t = 'q' where k in (20, 21) returning t, n, k

update ret r set t = a.owner from account a where a.id = r.k returning r.k, a.*

update ret r set t = a.owner from account a where a.id = r.k + 1 and r.k < 4 returning a.id, r.*, a.region

update ret set n = 9 where k = 3 returning case when n > 5 then 'more' else 'less' end, n + 1 as "Next"

update ret set n = n where false returning *

delete from ret where k = 4 returning *

delete from ret where k > 20 and k < 24 returning k, n::text || t

delete from ret using digit where d = k returning d, k

delete from ret where false returning k

-- expect: refused: this form of INSERT is not supported inside of a statement over several shards
with x as (insert into ret (k) values (30), (31), (32), (33) returning k, n) select sum(k), max(n) from x

with x as (update ret set n = 0 where k > 24 returning k) select count(*) from x

with x as (delete from ret where k = 24 returning *) select k, t from x

with x as (insert into ret_ref values (50, 'z') returning *) select * from x

with x as (insert into ret (k, n) values (40, 1), (41, 2), (42, 1), (43, 2) returning *) select x.k, a.d from x join digit a on a.d = x.n order by 1

insert into ret_ref select d, 'r' || d from digit returning *

update ret_ref set t = upper(t) where id < 3 returning id, t

delete from ret_ref where id > 7 returning id

select * from ret order by k

-- fails: 42703
insert into ret (k) values (60) returning nothing

-- fails: 42803
insert into ret (k) values (61) returning count(*)

-- fails: 42P20
delete from ret returning row_number() over ()

-- fails: 42P01
update ret set n = 1 returning other.k

-- fails: 428C9
update ret set g = 1

select count(*) from ret
