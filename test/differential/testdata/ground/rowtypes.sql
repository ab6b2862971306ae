-- Rows as values.

create type pair as (a int, b text)

create table pairs (k bigint primary key, p pair, ps pair[])

-- router
select cleave.shard_tables('{schema}.pairs(k)', keyspace => 'ground_bigint')

insert into pairs values (1, (1, 'x'), array[(1, 'y')::pair]), (2, row(2, null), '{}'), (3, null, null), (4, (null, null), array[(3, 'z')::pair, null]), (5, '(1,x)', null)

select * from pairs order by k

select k, p, (p).a, (p).b from pairs order by k

select (p).* from pairs order by k

select k from pairs where (p).a = 1 order by k

select k from pairs where p = (1, 'x')::pair order by k

select k from pairs where p is null order by k

select k from pairs where p is not null order by k

select k, ps[1], (ps[1]).b from pairs order by k

select p, count(*) from pairs group by p order by p

select (p).a, count(*) from pairs group by (p).a order by 1

select distinct p from pairs order by p nulls first

select max((p).a), min((p).b) from pairs

select array_agg(p order by k) from pairs

select k from pairs order by p desc, k

select p from pairs union select (9, 'nine')::pair order by 1

select k, row(k, p) from pairs order by k

select k, (row(k, 'x')).f1 from pairs where k < 3 order by k

select row(1, 2) < row(1, k) from pairs order by k

select k from pairs where row(k, 1) between row(2, 0) and row(3, 9) order by k

select s from sparse s order by s.id

select s.* from sparse s order by s limit 3

select count(s), count(s.*), count(distinct s) from sparse s

select s is null, (s).b from sparse s order by (s).id

select s.id from sparse s where s = (select t from sparse t where t.id = 5)

select s.id from sparse s where s is distinct from null order by 1

select row(s.*) from sparse s where id = 1

select s, d from sparse s join digit d on d.d = s.a order by s.id

select s, n.id from sparse s left join note n on n.account = s.id order by s.id

select (x).s from (select s from sparse s where id < 3) x order by 1

select max(r.code), r from region r group by r order by 1 limit 2

select array_agg(s order by s.id) from sparse s where s.id < 3

select json_agg(x) from (select k, p from pairs order by k) x

select (a.p).b || (b.p).b from pairs a join pairs b on (a.p).a = (b.p).a order by a.k, b.k

select k, p from pairs where (k, (p).a) in ((1, 1), (2, 2), (5, 9)) order by k

select row(a, b, c) from sparse order by id

select id, row(a, b) = row(1, 'x'), row(a, b) <> row(1, 'x'), row(a, b) is distinct from row(1, 'x') from sparse order by id

update pairs set p.a = 10 where k = 1 returning p

update pairs set p = row(7, 'seven'), ps[2] = (8, 'eight')::pair where k in (2, 3) returning *

-- expect: refused: INSERT into parts of columns of a sharded table is not supported yet
insert into pairs (k, p.a, p.b) values (6, 6, 'six'), (7, 7, 'seven') returning k, p

insert into pairs select k + 10, p, array[p] from pairs where p is not null returning k, ps

delete from pairs where p = (6, 'six')::pair returning *

select p, k from pairs order by k

-- fails: 42703
select (p).nothing from pairs

-- fails: 0A000
select k from pairs where p = 'x'

-- fails: 42601
select k from pairs where row(k, 1) = row(1)

-- fails: 42883
select p + 1 from pairs

-- fails: 42846
select k from pairs where p = row(1)::pair
