-- Common table expressions.

with x as (select id, owner from account where id < 4) select * from x order by id

with x (a, b) as (select id, region from account) select b, count(a) from x group by b order by b

with x as (select * from sparse), y as (select * from x where a = 1) select y.id, x.id from x, y where x.id > 6 order by 1, 2

with x as materialized (select region, sum(balance) as s from account group by region) select * from x where s > (select avg(s) from x) order by 1

with x as not materialized (select * from account) select id from x where id = 5

with x as (select account, sum(amount) as s from entry group by account) select a.id, x.s from account a join x on x.account = a.id where x.s > 20 order by 1

with x as (select account, sum(amount) as s from entry group by account) select a.id, coalesce(x.s, 0) from account a left join x on x.account = a.id order by 1

with recursive t (n) as (values (1) union all select n + 1 from t where n < 10) select sum(n) from t

with recursive t (n) as (values (1) union all select n + 1 from t where n < 5) select t.n, a.owner from t join account a on a.id = t.n order by 1

with recursive t as (select id, a from sparse where id = 1 union all select s.id, s.a from sparse s join t on s.id = t.id + 1) select * from t order by id

with recursive t (code, depth) as (select code, 0 from region where parent is null union all select r.code, depth + 1 from region r join t on r.parent = t.code) select * from t order by depth, code

with recursive t (code, path) as (select code, code from region where parent is null union all select r.code, path || '/' || r.code from region r join t on r.parent = t.code) select path, (select count(*) from account where region = t.code) from t order by path

with recursive t (id) as (select 1::bigint union select (id * 7) % 31 from t) select count(*), sum(a.balance) from t join account a using (id)

with recursive t (n) as (select 1 union all select n + 1 from t) select n from t limit 5

with recursive t (id, step) as (select id, 1 from account where id = 1 union all select a.id, step + 1 from account a, t where a.id = t.id * 2) select * from t order by step

with recursive t as (select 1 as n union all select n + 1 from t where n < 3) search depth first by n set o select n from t order by o

with recursive t as (select 1 as n union all select n % 3 + 1 from t) cycle n set looped using path select n, looped from t order by n, looped

with x as (select 1 as a) select * from x, sparse where sparse.a = x.a order by id

with x as (select id from account), y as (select account from entry) select count(*) from x where id not in (select account from y)

with x as (select id from account where id < 5) select x.id, (with y as (select n from entry where account = x.id) select count(*) from y) from x order by 1

with x as (select ten, count(*) as c from many group by ten) select max(c), min(c) from x

with x as (select * from account order by balance desc, id limit 3) select id, (select count(*) from x) from x order by id

with x as (select id, rank() over (partition by region order by balance desc, id) as r from account) select id from x where r = 1 order by id

with a as (select id from sparse where a = 1), b as (select id from sparse where a = 2) select * from a union all select * from b order by 1

with account as (select 1 as id) select * from account

with sparse as (select * from sparse where id < 3) select * from sparse order by id

with x as (select * from note), y as (select n.id from x n join account a on a.id = n.account) select count(*) from y

with x as (values (1, 'one'), (2, 'two')) select s.id, x.column2 from sparse s join x on x.column1 = s.a order by 1

with x as (select place, max(at) as last from event group by place) select e.place, e.n from event e join x on x.place = e.place and x.last = e.at order by 1

with x as (select place, max(at) as last from event group by place) select count(*) from event e join x on x.last >= e.at and x.place <> e.place

select * from (with x as (select id from sparse) select max(id) as m from x) y

select id from sparse where id in (with x as (select a from sparse) select a from x) order by id

with x as (select) select count(*) from x

with x as (select id from hollow) select count(*) from x

with x as (select d from digit), y as (select d + 1 as d from x) select s.id from sparse s join y on y.d = s.id where y.d > 6 order by 1

-- fails: 42P01
with x as (select * from y), y as (select id from account) select * from x

-- fails: 42712
with x as (select 1), x as (select id from account) select * from x

-- fails: 42P19
with recursive t as (select id from account union all select max(id) from t) select * from t

-- fails: 42P10
with x (a, b) as (select id from account) select * from x

-- Expressions used twice, nested, shadowed.

with x as (select random() as r from account where id = 1) select a.r = b.r from x a, x b

with x as materialized (select id, random() as r from account) select count(*) from x a join x b on a.id = b.id and a.r = b.r

with x as (select id from account where id < 5), account as (select id + 100 as id from x) select * from account order by id

with x as (with y as (select max(id) as m from account) select m from y) select m + 1 from x

with x as (select * from sparse), y as (select a, count(*) as c from x group by a), z as (select max(c) as m from y) select y.a from y, z where y.c = z.m order by 1

with x as (select region, sum(balance) as s from account group by region), t as (select sum(s) as all_of from x) select region, round(s / all_of, 4) from x, t order by region

with recursive t (id, depth) as (select id, 0 from sparse where id = 1 union select s.id, depth + 1 from sparse s, t where s.id = t.id * 2) select t.*, a.owner from t join account a using (id) order by depth

with recursive t (n) as (select min(id) from account union all select n + 1 from t where n < (select max(a) from sparse)) select n from t order by n

with recursive t (n) as (select 1 union all select n + 1 from t where exists (select from sparse where sparse.id = t.n)) select max(n) from t

with x (id) as (values (1::bigint), (2), (77)) select x.id, a.owner from x left join account a using (id) order by 1

with x as (select id from account order by id limit 2) select * from x union all select * from x order by 1

with x as (select id from sparse) select (select count(*) from x), (select max(id) from x where id < s.id) from sparse s order by s.id

with x as (select e.account, e.n, row_number() over (partition by e.account order by e.amount desc, e.n) as r from entry e) select a.id, x.n from account a left join x on x.account = a.id and x.r = 1 order by a.id
