-- GROUP BY and HAVING.

select region, count(*) from account group by region order by region

select region, count(*) from account group by region having count(*) > 5 order by 1

select kind, sum(amount) from entry group by kind having sum(amount) > 100 or kind = 'fee' order by kind

select ten, sum(id) from many group by ten having min(id) < max(id) and ten > 6 order by ten

select ten from many group by ten having bool_or(hundred = 57)

select max(id), min(id) from many having min(id) = max(id)

select max(id), min(id) from many having min(id) < max(id)

select 1 from many having count(*) > 1

select 1 as one from hollow having 1 < 2

select 1 as one from hollow where 1 = 2 having 1 < 2

select count(*) from hollow

select a, count(*) from hollow group by a

select sum(a), max(b), bool_and(a > 0) from hollow

select sum(a), count(*) from hollow having count(*) > 0

select lower(owner) as o, count(*) from account group by lower(owner) having count(*) > 4 order by o

select lower(owner), count(*) from account group by 1 order by 1 desc

select a, b, count(*) from sparse group by a, b order by a, b

select a, count(b) from sparse group by a having count(b) < 2 order by a nulls first

select count(*) from sparse group by a order by a

select region, kind, max(balance) from account group by (region, kind) order by 1, 2

select id % 4 as m, sum(balance) from account group by m having sum(balance) <> 0 order by sum(balance)

select region as r from account group by r having max(region) > 'd' order by r

select a.region, count(e.n) from account a left join entry e on e.account = a.id group by a.region having count(e.n) <> 13 order by 1

select r.name, sum(a.balance) from region r join account a on a.region = r.code group by r.code order by r.name

select a.id, a.owner, sum(e.amount) from account a join entry e on e.account = a.id group by a.id having sum(e.amount) > 20 order by a.id

select a.id, a.owner, sum(n.id) from account a join note n on n.account = a.id group by a.id order by a.id

select place, count(*) from event group by place having max(weight) > (select avg(weight) from event) order by place

select region, count(*) from account group by region having count(*) >= all (select count(*) from account group by region) order by 1

select region from account group by region having exists (select from region r where r.code = account.region) order by 1

select region from account group by region having region in (select code from region where parent = 'eu') order by 1

select two, count(*) filter (where ten > 4) as some from many group by two having count(*) filter (where ten > 4) > 0 order by two

select distinct sum(id) from many group by ten having sum(id) > 7900 order by 1

select kind, count(*) from entry group by kind order by count(*) desc, kind limit 1

select (select max(amount) from entry e where e.account = a.id), a.id from account a group by a.id having a.id < 4 order by 2

select date_part('month', at), count(*) from event group by date_part('month', at) order by 1

select extract(dow from opened) as d, count(*), min(opened) from account group by d order by d

select count(*) from account group by ()

select region, count(*) from account group by distinct region, region order by 1

-- fails: 42803
select region, id from account group by region

-- fails: 42803
select count(*) from account where count(*) > 1

-- fails: 42803
select region from account having count(*) > 1

-- fails: 42803
select sum(count(id)) from account

-- fails: 42P10
select region from account group by 7
