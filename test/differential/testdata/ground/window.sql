-- Window functions.

select id, row_number() over (order by id) from sparse order by id

select region, id, rank() over (partition by region order by balance) from account order by region, id

select id, dense_rank() over (order by region), percent_rank() over (order by id), cume_dist() over (order by region) from account order by id

select id, ntile(4) over (order by id) from account order by id

select id, lag(id) over w, lead(id, 2) over w, lag(owner, 1, 'none') over w from account window w as (order by id) order by id

select id, first_value(id) over w, last_value(id) over w, nth_value(id, 2) over w from account window w as (partition by kind order by id) order by id

select id, sum(id) over (order by id), sum(id) over () from sparse order by id

select id, sum(balance) over (partition by region order by id rows between 1 preceding and 1 following) from account order by id

select id, sum(id) over (order by id rows unbounded preceding), count(*) over (order by id rows between current row and unbounded following) from sparse order by id

select id, sum(id) over (order by a range between unbounded preceding and current row) from sparse order by id

select id, count(*) over (order by id range between 2 preceding and 1 following) from account order by id

select id, count(*) over (order by opened range between interval '30 days' preceding and current row) from account order by id

select id, sum(id) over (order by a groups between 1 preceding and current row) from sparse order by id

select id, sum(id) over (order by a nulls first, id rows between 1 preceding and 1 following exclude current row) from sparse order by id

select id, count(*) over (order by a, id groups between unbounded preceding and unbounded following exclude ties) from sparse order by id

select id, avg(balance) over (partition by region) from account order by id

select account, n, sum(amount) over (partition by account order by n) from entry order by 1, 2

select account, n, rank() over (partition by account order by amount desc) as r from entry order by 1, 3, 2

select * from (select account, n, row_number() over (partition by account order by amount desc, n) as r from entry) x where r = 1 order by account

select * from (select id, region, rank() over (partition by region order by id) as r from account) x where r < 3 order by region, r

select region, count(*), rank() over (order by count(*) desc, region) from account group by region order by region

select region, sum(sum(balance)) over (order by region) from account group by region order by region

select id, count(*) filter (where c) over (order by id) from sparse order by id

select id, array_agg(id) over (order by id rows 2 preceding) from sparse order by id

select id, string_agg(b, ',') over (order by id) from sparse order by id

select id, sum(a) over w as s, count(*) over (w rows between 1 preceding and current row) from sparse window w as (order by id) order by id

select id, max(id) over w2 from sparse window w as (partition by c), w2 as (w order by id) order by id

select distinct first_value(id) over (partition by region order by id) from account order by 1

select id, row_number() over (order by id desc) as r from account order by r limit 3

select id from (select id, lag(balance) over (order by id) as b, balance from account) x where balance > b order by id

select a.id, r.name, row_number() over (partition by r.name order by a.id) from account a join region r on r.code = a.region order by 1

select n.id, count(*) over (partition by a.region) from note n join account a on a.id = n.account order by 1

select e.place, e.n, lead(e.at) over (partition by e.place order by e.n) from event e order by 1, 2

select d, sum(s.id) over (order by d) from digit left join sparse s on s.a = d order by d, s.id

select sum(rank) from (select rank() over (order by ten) from many) x

select ten, avg(rank) from (select ten, rank() over (partition by ten order by id) from many) x group by ten order by ten

select id, ntile(3) over (partition by two order by id) from many where id < 12 order by id

select id, sum(id) over (partition by null) from sparse order by id

select id, row_number() over () > 0 from sparse order by id

select count(*) over () from hollow

select id, lead(id) over (order by id) - id as gap from account where id % 7 = 0 order by id

select id, min(b) over (order by b collate "C", id) from sparse order by id

select id, case when row_number() over (order by id) = 1 then 'first' end from sparse order by id

-- fails: 42P20
select id from account where rank() over (order by id) = 1

-- fails: 42P20
select rank() over (order by rank() over (order by id)) from account

-- fails: 42704
select sum(id) over nothing from account

-- fails: 42P20
select sum(id) over (order by id rows between unbounded following and current row) from account

-- fails: 22014
select ntile(0) over (order by id) from account

-- fails: 42809
select random() over () from account

-- fails: 22013
select sum(id) over (order by id rows -1 preceding) from account

-- Frames and windows over joins and groups.

select id, sum(sum(id)) over (order by id) from sparse group by id order by id

select a, count(*), sum(count(*)) over (order by a nulls first rows unbounded preceding) from sparse group by a order by a nulls first

select region, id, balance - avg(balance) over (partition by region) > 0 from account order by id

select distinct region, count(*) over (partition by region), max(id) over () from account order by 1

select id, rank() over (order by (select count(*) from entry e where e.account = account.id) desc, id) from account where id < 8 order by id

select e.account, sum(e.amount) over w, a.owner from entry e join account a on a.id = e.account window w as (partition by a.region order by e.account, e.n) order by e.account, e.n

select x.r, count(*) from (select rank() over (partition by region order by kind nulls first) as r from account) x group by x.r order by 1

select id, lag(b, 1, b) over w from (select id, b from sparse) x (id, b) window w as (order by id) order by id

select id, nth_value(id, 3) over (order by id range between unbounded preceding and unbounded following), first_value(b) over (order by b nulls first, id) from sparse order by id

select place, n, count(*) over (partition by place order by at range between '12 hours' preceding and '12 hours' following) from event order by place, n
