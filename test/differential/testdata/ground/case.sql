-- CASE, COALESCE, NULLIF, boolean logic.

select id, case a when 1 then 'one' when 2 then 'two' else 'other' end from sparse order by id

select id, case when a = 1 then 'one' when a is null then 'none' end as w from sparse order by id

select case when c then 1 else 0 end as v, count(*) from sparse group by case when c then 1 else 0 end order by 1

select case when c then 1 when not c then 2 end as v, sum(id) from sparse group by 1 order by 1

select sum(case when a > 0 then id end), count(case when b = 'x' then 1 end) from sparse

select id from sparse where case when a is null then false else a > 1 end order by id

select id, case when a = 0 then null else 10 / a end from sparse order by id

select id, case when exists (select from entry e where e.account = s.id and e.kind = 'fee') then 'fee' else '-' end from sparse s order by id

select id, case (select count(*) from event e where e.n = s.id) when 0 then 'no' else 'yes' end from sparse s order by id

select case when id < 3 then id when id < 5 then 2.5 else rate end from account where id < 8 order by 1

select case when id < 3 then opened end from account where id < 4 order by id

select coalesce(a, id), coalesce(b, 'none', 'never'), coalesce(null, c, true) from sparse order by id

select nullif(id, 3), nullif(b, 'x') from sparse order by id

select nullif(a, 1) as n, count(*) from sparse group by 1 order by 1

select coalesce(n.body, a.owner, '?') from account a left join note n on n.account = a.id order by a.id

select greatest(a, id, 3), least(b, 'm') from sparse order by id

select max(greatest(a, 0)) , min(least(a, 0)) from sparse

select id, a = 1 and c, a = 1 or c, not c from sparse order by id

select id, c is true, c is not false, c is unknown from sparse order by id

select id, a between 0 and 1, a not between 0 and 1, a between symmetric 1 and 0 from sparse order by id

select id, a in (1, null), a not in (1, null) from sparse order by id

select case when count(*) > 5 then 'many' else 'few' end from sparse

select region, case when sum(balance) > 1800 then 'rich' else 'poor' end from account group by region order by 1

select region from account group by region order by case region when 'us' then 0 else 1 end, region

select id from account order by case when active then 0 when not active then 1 else 2 end, id

select id, case when row_number() over (order by id) % 2 = 0 then 'even' end from sparse order by id

select (case when id = 1 then array[1, 2] else array[3] end)[1] from sparse order by id

select case when id = 1 then s end from sparse s order by id

select case when b > 'w' then b || case when c then '+' else '-' end end from sparse order by id

select count(*) from account where case region when 'nl' then active when 'de' then not active else kind = 'gold' end

select d, case when d in (select a from sparse) then 'in' when d > 5 then 'big' end from digit order by d

-- param: int4 1
-- param: text fits
select id, case a when $1 then $2 else 'not' end from sparse order by id

-- fails: 42804
select case when a = 1 then 1 else c end from sparse

-- fails: 22012
select sum(case when a = 0 then 1 / a else a end) from sparse

-- fails: 22P02
select case when id = 1 then 1 else 'x' end from sparse
