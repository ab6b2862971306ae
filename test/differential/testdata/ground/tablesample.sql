-- TABLESAMPLE: what is sure of the answer.

select count(*) from account tablesample bernoulli (100)

select count(*) from account tablesample system (100)

select count(*) from account tablesample bernoulli (0)

select id from account tablesample system (0) order by id

select id from account tablesample bernoulli (100) where id < 4 order by id

select id from account a tablesample bernoulli (100) repeatable (7) where a.id between 4 and 6 order by id

select count(*) from account a tablesample bernoulli (100) join entry e on e.account = a.id

select count(*) from account tablesample bernoulli (50) where id < 0

select count(*) <= 400 from many tablesample bernoulli (20)

select count(*) between 0 and 400 from many tablesample system (50)

select max(c) <= 400 from (select count(*) as c from many tablesample bernoulli (30) repeatable (1)) x

select a.id, n.id from account a tablesample bernoulli (100) join note n on n.account = a.id order by 1

select region, count(*) from account tablesample system (100) group by region order by region

select count(*) from region tablesample bernoulli (100)

select count(*) from digit tablesample system (100)

select id from account tablesample bernoulli (100) order by balance, id limit 3

select place, count(*) from event tablesample bernoulli (100) where n < 3 group by place order by place

select count(*) from account tablesample bernoulli (100) where id in (select account from entry tablesample system (100))

with x as (select * from account tablesample bernoulli (100)) select count(*) from x

select id from account tablesample bernoulli (100) where id < 3 union select d from digit where d > 8 order by 1

select id from account tablesample bernoulli (200.0 / 2) where id = 9

select count(*) from account tablesample bernoulli (100), event tablesample system (100)

-- param: float8 100
select count(*) from account tablesample bernoulli ($1)

-- fails: 2202H
select id from account tablesample bernoulli (-1)

-- fails: 2202H
select count(*) from account tablesample system (101)

-- fails: 2202H
select id from account tablesample bernoulli (null)

-- fails: 2202G
select id from account tablesample bernoulli (10) repeatable (null)

-- expect: different: refused before the method is found missing (42704)
-- fails: 42704
select id from account tablesample nothing (1)

-- fails: 0A000
with x as (select id from account) select * from x tablesample bernoulli (1)
