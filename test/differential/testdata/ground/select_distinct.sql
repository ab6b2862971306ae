-- DISTINCT and DISTINCT ON.

select distinct region from account order by region

select distinct region from account

select distinct two, ten from many order by two desc, ten

select distinct odd from many

select distinct on (region) region, id from account order by region, id

select distinct on (region) region, id, balance from account order by region, balance desc, id

select distinct on (two) two, ten, id from many order by two using >, ten using <, id

select distinct on (1) ten, id from many order by 1, id desc

select distinct on (ten, two) two, ten, max from (select two, ten, max(id) from many group by two, ten) m order by ten, two

select distinct a from sparse order by a nulls first

select distinct a, b from sparse order by a, b

select distinct null::int, c from sparse order by c

select count(distinct a), count(a), count(*) from sparse

select count(distinct (a, b)) from sparse

select distinct upper(owner) from account order by 1

select distinct owner collate "C" from account order by 1

select distinct id % 3 as m from account order by m desc

select distinct id % 3 as m from account order by id % 3

select distinct region, count(*) over (partition by region) from account order by 1

select distinct count(*) from account group by region

select distinct on (kind) kind, owner from account where owner is not null order by kind, owner, id

select distinct on (lower(owner)) lower(owner), id from account order by lower(owner), id

select distinct tags from account order by tags

select distinct info -> 'deep' from account order by 1

select distinct r.name from account a join region r on r.code = a.region order by 1

select distinct e.kind, a.region from account a join entry e on e.account = a.id order by 1, 2

select distinct a.region, n.body from account a join note n on n.account = a.id order by 1, 2

select distinct ten from many where id > 395 union select distinct ten from many where id < 3 order by 1

select distinct ten from many order by ten limit 3 offset 2

select distinct on (region) region, id from account order by region, id desc limit 2

select count(*) from (select distinct two, ten from many) x

select count(*) from (select distinct on (ten) * from many order by ten, id) x where odd

select distinct * from digit, (select distinct two from many) t where d < 2 order by 1, 2

select distinct true from account

select distinct null from account

select distinct balance > 0 from account order by 1

select distinct date_trunc('year', opened) from account order by 1

-- fails: 42P10
select distinct region from account order by id

-- fails: 42P10
select distinct on (region) region, id from account order by id

-- fails: 42P10
select distinct on (5) region, id from account
