-- Grouping sets.

select region, kind, count(*) from account group by grouping sets ((region), (kind)) order by 1, 2

select region, kind, count(*), grouping(region, kind) from account group by rollup (region, kind) order by 4, 1, 2

select region, active, sum(balance), grouping(region), grouping(active) from account group by cube (region, active) order by 4, 5, 1, 2

select region, sum(balance) from account group by rollup (region) order by region nulls first

select sum(balance) from account group by grouping sets ((), ())

select two, ten, sum(id) from many where ten < 4 group by grouping sets ((two, ten), two, ()) order by 1, 2

select two, ten, max(id), grouping(two, ten) from many group by rollup (two), rollup (ten) having max(id) > 397 order by 4, 1, 2

select two, count(*) from many group by cube (two, two) order by 1, 2

select two, count(*) from many group by distinct rollup (two), rollup (two) order by 1, 2

select a, b, count(*), grouping(a, b) from sparse group by cube (a, b) order by 4, 1, 2

select a, c, array_agg(id order by id) from sparse group by rollup (a, c) order by 1, 2, 3

select a, c, string_agg(b, ',' order by id) from sparse group by grouping sets ((a), (c), ()) order by 1, 2, 3

select a, count(distinct b), grouping(a) from sparse group by rollup (a) order by 3, 1

select a, count(*) filter (where c) from sparse group by rollup (a) order by 1, 2

select a, avg(id), grouping(a) from sparse group by rollup (a) order by 3, 1

select a, percentile_cont(0.5) within group (order by id), grouping(a) from sparse group by rollup (a) order by 3, 1

select a, rank() over (order by count(*) desc, a), count(*) from sparse group by rollup (a) order by 2, 1

select a.region, r.name, count(*), grouping(a.region, r.name) as g from account a left join region r on r.code = a.region group by rollup (a.region, r.name) order by g, 1, 2

select e.kind, a.region, sum(e.amount), grouping(e.kind, a.region) as g from entry e join account a on a.id = e.account group by cube (e.kind, a.region) order by g, 1, 2

select e.place, n.id % 2, count(*), grouping(e.place, n.id % 2) as g from event e join note n on n.id = e.n group by rollup (e.place, n.id % 2) order by g, 1, 2

select extract(year from opened) as y, kind, count(*), grouping(extract(year from opened), kind) as g from account group by rollup (extract(year from opened), kind) order by g, 1, 2

select count(*) from hollow group by rollup (a)

select a, count(*) from hollow group by grouping sets ((a), ())

select a, count(*) from hollow group by a

select sum(a), grouping(a) from hollow group by grouping sets ((a), (), ())

select region, count(*) from account group by rollup (region) having grouping(region) = 1

select region, count(*) from account group by rollup (region) having region is null

select case grouping(region) when 1 then 'all' else region end as r, count(*) from account group by rollup (region) order by grouping(region), r

select region, kind, count(*), grouping(region, kind) from account group by region, rollup (kind) order by 4, 1, 2

select * from (select region, kind, count(*) as c from account group by cube (region, kind)) x where c > 7 order by c, region, kind

select distinct grouping(region) from account group by rollup (region) order by 1

select region, count(*) from account group by rollup (region) order by count(*) desc, region limit 3

select (select count(*) from digit where d < grouping(region) + 1), region from account group by rollup (region) order by 1, 2

with x as (select region, active, count(*) as c from account group by cube (region, active)) select sum(c) from x

select region from account group by rollup (region) union select 'other' order by 1

select (id % 2, id % 3), count(*), grouping(id % 2, id % 3) from account group by rollup (id % 2, id % 3) order by 3, 1

-- fails: 42803
select grouping(owner) from account group by region

-- fails: 42803
select region, owner from account group by rollup (region)

-- fails: 42803
select grouping(region) from account
