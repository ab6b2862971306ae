-- Set operations.

select id from account where id < 3 union select id from sparse order by 1

select id from account where id < 3 union all select id from sparse order by 1

select a from sparse union select a from hollow order by 1

select a from sparse union all select d from digit order by 1 nulls first

select region from account union select code from region order by region

select region from account except select code from region

select code from region except select region from account order by 1

select region from account intersect select code from region order by 1

select a from sparse intersect all select d from digit order by 1

select ten from many except all select d from digit, generate_series(1, 39) order by 1

select a from sparse except select null order by 1

select n from event intersect select id from account order by 1

select n from event union select id::int from account where id > 28 order by 1 desc

(select id from account order by balance, id limit 2) union all (select id from account order by balance desc, id desc limit 2) order by 1

(select id from account order by id limit 3) except (select account from entry where n = 1) order by 1

select id from account where id < 4 union all (select d from digit order by d limit 1) order by id

select 1 as x union select 2 union all select 2 order by x

select id from sparse union (select a from sparse except select 1) order by 1

(select id from sparse union select a from sparse) except select 1 order by 1

select id from sparse intersect select d from digit union select 100 order by 1

select b from sparse union select owner from account order by 1

select b collate "C" from sparse union select owner from account order by 1

select kind from account union select kind from entry order by 1

select code from account union select code from region order by 1

select id, owner from account where id < 3 union select id, b from sparse order by 1, 2 nulls first

select id, null as x from sparse union select id, owner from account where id < 3 order by 1, 2

select 1.5 union select id from sparse order by 1

select balance from account where id < 3 union select rate from account where id < 3 order by 1

select opened from account where id < 3 union select at from entry where account = 1 order by 1

select count(*) from (select id from account union all select account from entry) x

select x, count(*) from (select region as x from account union all select code from region) y group by x order by x

select * from (select id, 'a' as src from sparse union all select d, 'd' from digit) x where id = 3 order by src

select id from account a where id in (select a from sparse union select d from digit) order by id

select id, (select max(x) from (select n as x from entry e where e.account = a.id union select 0) y) from account a where id < 4 order by id

select d from digit union select id from sparse order by 1 limit 3 offset 1

select tags from account where id < 3 union select array['x'] order by 1

select info from account where id = 1 union select '{"z": 1}' order by 1

select true from sparse intersect select c from sparse

values (1), (2) union select id from sparse order by 1

table digit union table digit order by d

select id from sparse union all select id from sparse order by id desc limit 4

select distinct id from (select id from sparse union all select a from sparse) x order by 1

select id as a, a as id from sparse union select 1, 1 order by id, a

select from sparse union all select from digit

select region, sum(balance) from account group by region union all select null, sum(balance) from account order by 1 nulls last

select place from event where n = 1 union all select owner from account where id = 2 union all select body from note where id = 1 order by 1

-- fails: 42601
select id from account union select id, owner from account

-- fails: 42804
select id from account union select owner from account

-- fails: 42703
select id from account union select d from digit order by d

-- fails: 0A000
select id from account union select d from digit order by id + 1

-- fails: 22P02
select id from account union select 'x' order by 1

-- More arms.

select id, 'x' from sparse where id < 3 union all select id, owner from account where id < 3 order by 1, 2

select null, id from sparse where id < 3 union all select owner, id from account where id < 3 order by 2, 1

select 1, null union all select id, b from sparse where id < 3 order by 1, 2

select count(*) from (select id from sparse intersect select id from account intersect select account from entry) x

select id from account except (select account from entry union select account from note) order by 1

(select region from account except all select code from region) intersect select 'zz' order by 1

select max(x) from (select max(id) as x from account union all select max(n) from event union all select max(d) from digit) y

select * from (select id from sparse union select d from digit) x (v) join account a on a.id = x.v where a.active order by 1

select a, b from sparse union select a, b from sparse order by a nulls first, b nulls first

select id::numeric from sparse where id < 3 union select rate::real from account where id < 5 order by 1

select 'a'::char(3) union select code from account order by 1

select kind from account union select 'extraordinary' order by 1

select id from account where id < 3 union all select id from account where id < 3 union select id from account where id = 4 order by 1

select exists (select id from hollow union select d from digit where d > 8), (select count(*) from (select a from sparse except select d from digit) x)
