-- Aggregate functions.

select count(*), count(owner), sum(balance), avg(balance), min(balance), max(balance) from account

select sum(id), avg(id), min(id), max(id) from account

select avg(id)::numeric(10, 3), sum(id::int), sum(id::smallint), avg(id::int) from account

select sum(rate), avg(rate), max(rate), min(rate) from account

select sum(rate::real), avg(rate::real) from account

select sum(span), avg(span), min(span), max(span) from event

select min(at), max(at) from entry

select min(opened), max(opened), count(distinct opened) from account

select min(owner), max(owner), min(kind), max(code) from account

select min(owner collate "C"), max(owner collate "C") from account

select bool_and(active), bool_or(active), every(id > 0) from account

select bit_and(id), bit_or(id), bit_xor(id) from account

select stddev(id), variance(id), stddev_pop(id), var_pop(id), stddev_samp(balance), var_samp(balance) from account

select corr(id, balance::int) is not null, regr_count(id, rate), covar_pop(id, rate) from account

select array_agg(id order by id) from account where id < 8

select array_agg(distinct region) from account

select array_agg(distinct region order by region desc) from account

select array_agg(a order by a nulls first) from sparse

select array_agg(tags order by id) from account where id in (1, 2)

select string_agg(owner, ',' order by id) from account

select string_agg(distinct owner, ', ' order by owner) from account

select region, string_agg(owner, '/' order by owner, id) from account group by region order by region

select json_agg(id order by id), jsonb_agg(a order by id) from sparse

select json_object_agg(id, b order by id) from sparse

select jsonb_object_agg(id, a) from sparse

select json_agg(s order by s.id) from sparse s where id < 3

select count(distinct region), count(distinct (region, kind)), sum(distinct id % 5) from account

select count(distinct a) filter (where c), sum(a) filter (where not c) from sparse

select region, count(*) filter (where active), max(id) filter (where kind = 'gold') from account group by region order by region

select percentile_cont(0.5) within group (order by id), percentile_disc(0.25) within group (order by balance) from account

select percentile_cont(array[0.1, 0.9]) within group (order by rate) from account

select mode() within group (order by region desc) from account

select region, percentile_disc(0.5) within group (order by id) from account group by region order by region

select rank(10) within group (order by id), dense_rank(10) within group (order by id), cume_dist(10) within group (order by id) from account

select rank('b', 3) within group (order by b, a) from sparse

select sum(a + id), count(a * 0), sum(coalesce(a, 0)) from sparse

select max(a), max(b), max(c::int) from sparse where id > 100

select count(*) from account, entry

select count(*) from account a join event e on e.n = a.id

select max(x) from (select sum(amount) as x from entry group by account) s

select avg(c), sum(c) from (select count(*) as c from account group by region) s

select (select count(*) from account), (select max(n) from event)

select a.id, (select count(*) from entry e where e.account = a.id) as entries from account a where a.id < 5 order by 1

select id, (select sum(s.a) from sparse s where s.id <= t.id) from sparse t order by id

select (select max(s.id + t.d) from sparse s) from digit t order by 1

select sum((select count(*) from digit where d < s.id)) from sparse s

select count(*), count(1), count(null), count(all a) from sparse

select sum(1), sum(1.5), max('x'), min(null::int) from sparse

select array_agg(id order by balance desc, id) filter (where region = 'nl') from account

select range_agg(int8range(id, id + 2)) from account where id < 9

select max(array[a, id]), min(row(a, id)::text) from sparse

select any_value is null from (select max(a) as any_value from hollow) h

select min(id) + max(id) * 2 as mixed, count(*) || ' rows' from account

select sum(balance) / count(*) = avg(balance) from account

select round(avg(balance), 2), sum(balance)::float8, trunc(stddev(balance)) from account

select xmlagg(xmlelement(name x, id) order by id)::text from sparse where id < 4

select var_samp(id) from account where id = 7

select sum(amount) over () from entry limit 1

select max(id) from account group by region order by max(id) limit 2

select grouping(region), region, count(*) from account group by region order by region

-- fails: 42803
select max(max(id)) from account

-- fails: 42803
select a.id from account a join entry e on max(e.n) = 1

-- fails: 22003
select sum(id::int * 2147483647) from account

-- fails: 22012
select sum(1 / (id - 5)) from account

-- fails: 42883
select sum(id) within group (order by id) from account

-- fails: 42883
select sum(owner) from account

-- Aggregates of aggregates, outer ones, with everything.

select (select sum(a.id)) from account a

select (select count(*) filter (where a.active) from digit where d = 1) from account a order by 1 limit 2

select max((select sum(e.amount) from entry e where e.account = a.id)) from account a

select sum(c) filter (where r > 'd') from (select region as r, count(*) as c from account group by region) x

select region, array_agg(distinct kind order by kind nulls first), count(distinct kind) filter (where id > 10) from account group by region order by region

select count(distinct region), sum(distinct id % 4), avg(distinct id % 4), string_agg(distinct kind, '+') from account

select avg(balance) filter (where id > 100), sum(balance) filter (where id > 100), count(*) filter (where id > 100) from account

select region, avg(balance), avg(rate), avg(id) from account group by region having avg(rate) > 3.5 order by avg(balance)

select min(tags), max(info ->> 'n'), max(opened - date '2020-01-01') from account

select bool_and(c), bool_or(c), count(*) = count(c), every(c is null) from sparse where id in (2, 4, 8)

select kind, sum(amount) / sum(sum(amount)) over () as share from entry group by kind order by 1

select max(amount) - min(amount), (max(at) - min(at)) * 2, count(*) * 1.5 from entry

select r.parent, count(distinct a.id), sum(e.amount) from account a join region r on r.code = a.region left join entry e on e.account = a.id group by r.parent order by 1

select count(*), count(x), count(b.id) from sparse x full join hollow b on x.id = b.id

select id % 2 = 0 as even, region || '' as r, max(length(owner)) from account group by even, r order by 1, 2

select sum(id) as id, max(region) as region from account group by account.region order by region, id

select count(*) as "count", sum(count(*)) over () from account group by region order by 1, 2

select least(min(id), max(id) - 29), coalesce(sum(id) filter (where false), -1) from account

select corr(id, rate), regr_slope(rate, id), stddev_pop(two) from account join many using (id)

select array_agg(x order by x) from (select distinct region from account) t (x)

select count(*) from (select 1 from account group by region, kind having count(*) > 1) x

select sum(n) from (select count(*) as n from account union all select count(*) from entry union all select count(*) from event) x
