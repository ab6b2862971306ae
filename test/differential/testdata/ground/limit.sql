-- LIMIT, OFFSET, FETCH.

select id from account order by id limit 3

select id from account order by id offset 27

select id from account order by id desc limit 2 offset 3

select id from account order by id limit 0

select id from account order by id limit null offset null

select id from account order by id limit all offset 28

select id from account order by id limit 1 + 1 offset 2 * 3

select id from account order by id limit (select max(a) from sparse)

select id from account order by id limit (select count(*) from region) offset (select count(*) from digit)

with x as (select count(*) as c from sparse where a = 1) select id from account order by id limit (select c from x)

select distinct region from account order by region limit (select count(*) from account where id < 3) offset (select min(n) from event)

select id from account order by id fetch first row only

select id from account order by id offset 5 rows fetch next 2 rows only

-- unordered
select region, id from account order by region fetch first 4 rows with ties

select ten from many order by ten fetch first 41 rows with ties

-- unordered
select a, id from sparse order by a nulls first fetch first 1 row with ties

select count(*) from (select id from account limit 7) x

select count(*) from (select id from account offset 7) x

select sum(id) from (select id from account order by id limit 5) x

select max(id) from (select id from account order by balance, id limit 5 offset 5) x

select region, count(*) from (select region from account order by id limit 10) x group by region order by region

select * from (select id from account order by id limit 3) x, (select d from digit order by d desc limit 2) y order by 1, 2

select a.id, (select e.n from entry e where e.account = a.id order by amount, n limit 1) from account a order by a.id limit 6

select a.id, (select e.n from event e where e.n > a.id order by e.n, place limit 1) from account a order by a.id limit 8

select id from account where id in (select account from entry order by amount desc, account, n limit 4) order by id

select region, max(id) from account group by region order by region limit 2

select region, count(*) from account group by region order by count(*) desc, region offset 1 limit 2

select distinct ten from many order by ten desc limit 3

select id, row_number() over (order by id) from account order by id limit 2 offset 10

select id from sparse union all select d from digit order by 1 limit 4 offset 4

(select id from sparse order by id limit 2) union all (select d from digit order by d desc limit 2) order by 1

select place, n from event order by at desc limit 3

select place, n from event order by weight, place limit 3

select place, at from event order by place, at limit 3

select n.id, a.owner from note n join account a on a.id = n.account order by a.balance desc limit 3

select a.id, e.n from account a join entry e on e.account = a.id order by e.amount desc, a.id, e.n limit 5

select a.id, r.name from account a join region r on r.code = a.region order by r.name, a.id limit 5

select id from hollow order by id limit 3

select id from many order by word collate "C", id limit 4

select id from many where odd order by hundred desc, id limit 4 offset 1

with x as (select id from account order by id limit 4) select * from x order by id desc limit 2

values (1), (2), (3) order by 1 limit 2

-- param: int8 3
-- param: int8 4
select id from account order by id limit $1 offset $2

-- param: int8
select id from account where id < 4 order by id limit $1

-- param: ? 2
select id, balance from account order by balance desc limit $1

-- fails: 2201W
select id from account limit -1

-- fails: 2201X
select id from account offset -1

-- fails: 42P10
select id from account limit id

-- fails: 42601
select id from account fetch first 2 rows with ties

-- expect: different: refused before the number is found to be none (22P02)
-- fails: 22P02
select id from account limit 'x'

-- fails: 2201W
select id from account order by id limit (select min(a) from sparse)

-- Subqueries that decide how many.

(select id from sparse order by id limit (select max(a) from sparse)) union all (select d from digit order by d limit (select count(*) from hollow)) order by 1

select x.id from (select id from account order by balance, id limit (select count(*) from sparse where c)) x order by 1

select a.id, (select e.n from entry e where e.account = a.id order by n offset (select count(*) from sparse where a = 2) limit 1) from account a where a.id < 4 order by 1

select id from account where id in (select id from account order by id limit (select max(d) from digit where d < 4)) order by id

select region, count(*) from account group by region order by region limit (select count(*) from region where parent = 'eu')

select id, row_number() over (order by id) from account order by id limit (select min(id) from sparse where a = 2)

select id from account order by id limit (select count(*) from event where place = 'b') - 3

select id from account where id < 10 order by id offset coalesce((select a from sparse where id = 4), 3)

select id from account order by id limit case when exists (select from entry where amount > 1000) then 1 else 2 end
