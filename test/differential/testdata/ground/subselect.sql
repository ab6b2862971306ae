-- Subqueries.

select (select 1), id from sparse order by id

select id from account where id = (select max(account) from entry)

select id from account where id in (select account from note) order by id

select id from account where id not in (select account from entry) order by id

select id from sparse where a not in (select a from sparse where id = 1) order by id

select id from sparse where a not in (select a from sparse) order by id

select id from sparse where (a, b) in (select a, b from sparse where c) order by id

select id from sparse where (id, a) = (select id, a from sparse where id = 5)

select id from account where balance > all (select amount from entry) order by id

select id from account where balance < any (select amount from entry where kind = 'fee') order by id

select id from account where id = any (array(select n from event)) order by id

select id from account a where exists (select from entry e where e.account = a.id and e.amount > 24) order by id

select id from account a where not exists (select 1 from note n where n.account = a.id) order by id

select id from account a where (select count(*) from entry e where e.account = a.id) > 3 order by id

select id from account a where a.balance = (select max(b.balance) from account b where b.region = a.region) order by id

select id, (select name from region where code = a.region) from account a where id < 7 order by id

select id, (select body from note n where n.account = a.id) from account a where id < 9 order by id

select id, (select count(*) from event e where e.n = a.id) from account a where id < 9 order by id

select id, exists (select from entry e where e.account = a.id), a.id in (select account from note) from account a order by id

select id, array(select n from entry e where e.account = a.id order by n desc) from account a where id < 5 order by id

select * from (select id, owner from account where active) x where id > 10 order by id

select * from (select region, count(*) as c from account group by region) x where c > 5 order by region

select * from (select * from (select id from account order by balance, id limit 5) y order by id desc limit 3) x order by id

select x.id, y.n from (select id from account where id < 4) x, (select n from event where place = 'b' and n < 3) y order by 1, 2

select avg(s) from (select sum(amount) as s from entry group by account) x

select id from account where region in (select code from region where parent in (select code from region where name like 'Eur%')) order by id

select id from account where id in (select account from entry group by account having count(*) = 4) order by id

select id from account where id in (select id from many where odd intersect select n from event) order by id

select id from sparse order by (select count(*) from digit where d < sparse.id) desc

select id, case when id in (select n from event) then 'yes' else 'no' end from sparse order by id

select d from digit where d in (select a from sparse) order by d

select d from digit where d not in (select id from sparse) order by d

select d, (select b from sparse where id = d) from digit order by d

select d from digit where exists (select from account where id = d and active) order by d

select code, (select count(*) from account where region = code) from region order by code

select code from region r where not exists (select from account a where a.region = r.code) order by code

select n.id from note n where n.account in (select id from account where balance > 200) order by 1

select (select array_agg(id order by id) from sparse where a is null) as ids

select (select id from account where id = 900) is null

select id from account where row(id, region) in (values (1, 'de'), (2, 'xx'), (3, 'us')) order by id

select id from account where id = (select id from account where id = 3) + 1

select (s).id, (s).b from (select s from sparse s) x order by 1

select (select s from sparse s where id = 2)

select id from sparse s where a = (select min(a) from sparse t where t.b = s.b) order by id

select max(id) from account where region = (select code from region where name = 'Germany')

select id, (select string_agg(t.b, '' order by t.id) from sparse t where t.id < s.id) from sparse s order by id

select count(*) from account where (select true)

select count(*) from account where (select count(*) from hollow) = 0

select id from account a where id < 6 and exists (select from event e join note n on n.id = e.n where e.n = a.id) order by id

-- fails: 21000
select (select id from account) from digit

-- fails: 21000
select id from account where id = (select account from entry)

-- fails: 42601
select id from account where id in (select id, owner from account)

-- fails: 42601
select (select id, owner from account where id = 1)

-- fails: 42703
select id from account where exists (select from entry where account = account.nothing)

-- Places where subqueries are seldom.

select id from account order by (select count(*) from entry e where e.account = account.id) desc, (select max(n) from event where n = account.id), id limit 6

select region from account group by region order by (select count(*) from sparse where b < region), region

select distinct on ((select max(d) from digit where d < id)) id from sparse order by (select max(d) from digit where d < id), id

select count(*) filter (where id in (select account from entry)) , sum(id) filter (where exists (select from event where n = id)) from account

select sum(id) over (partition by (id in (select n from event)) order by id) from sparse order by 1

select array_agg((select max(e.n) from entry e where e.account = a.id) order by a.id) from account a where id < 6

select string_agg(b, (select min(kind) from entry) order by (select count(*) from digit where d > id), id) from sparse

select (select (select (select max(a) from sparse))) + (select count(*) from account where id > (select avg(id) from account))

select id in (values (1), ((select max(a) from sparse))) from sparse order by id

select s.id from sparse s join digit on d = (select max(a) from sparse) and s.a = d order by 1

select s.id, x.m from sparse s left join (select max(d) as m from digit) x on x.m > (select count(*) from account) order by 1

select coalesce((select b from sparse t where t.id = s.id + 1), (select min(owner) from account), 'none') from sparse s order by id

select id, row((select max(a) from sparse), id) from sparse order by id limit 2

select * from generate_series(1, (select max(a) from sparse)) g order by 1

select * from unnest(array(select id from account where id < 4 order by id), array(select b from sparse order by id limit 3)) u (a, b) order by 1

select case when (select count(*) from hollow) = 0 then (select max(id) from account) else (select 1 / count(*) from hollow) end

select id from account where (select bool_or(active) from account) and id < 3 order by id

select id from account group by id having (select count(*) from entry e where e.account = account.id) > 3 order by id

select percentile_disc((select 0.5 from account where id = 1)) within group (order by id) from account

select ntile((select max(a) from sparse)) over (order by id) from sparse order by id

select lag(id, (select max(a) from sparse)) over (order by id) from sparse order by id

select sum(id) over (order by id rows (select max(a) from sparse) preceding) from sparse order by id

select extract(day from (select max(at) from event)), to_char((select sum(balance) from account), '9999.99')

select account.id from account, lateral (select max(s.id) as m from sparse s where s.id < account.id) x where x.m = (select max(id) from sparse) and account.id < 12 order by 1

select id from sparse where (select t from sparse t where t.id = sparse.id) = sparse order by id

select (select count(*) from account a where a.id = s.id and a.region in (select code from region where parent = (select 'eu' from sparse where id = 1))) from sparse s order by s.id
