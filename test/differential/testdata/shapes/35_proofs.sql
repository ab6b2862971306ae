-- Where the key seems to be bound, and is not; or is, and does not seem so.

select count(*) from (select * from orders limit 2) o where o.id > 0

select * from (select * from orders order by id desc, {key} limit 2) o where {o in a c}

select * from (select * from orders order by note, id, {key} offset 1) o where {o = a}

select * from (select *, row_number() over (order by note, id, {key}) as r from orders) o where {o = a}

select id, r from (select *, row_number() over (partition by {key} order by id) as r from orders) o where {o = a} order by id

select * from (select distinct on (note) * from orders order by note, id, {key}) o where {o = a}

select * from (select distinct on (note) * from orders order by note, id, {key}) o

select * from (select distinct {key}, note from orders) o where {o = a} order by note

select * from (select {key}, count(*) as c, max(note) from orders group by {key}) o where {o = a}

select * from (select percentile_disc(1) within group (order by k) as k, count(*) as c from orders group by note) o where {> a}

with o as (select {key}, count(*) as c from orders group by {key}) select * from o where {o = c}

with o as (select * from orders order by id, {key} limit 1) select * from o where {o in a b c d e}

select {key}, count(*) from orders where {= a} group by {key}

select {key}, count(*) from orders group by {key} having {= a}

select {key}, count(*) from orders group by {key}

select distinct {key} from orders

select * from orders where exists (select from items where tag = 'red')

select * from orders where id = (select max(n) from items)

select * from orders o where id in (select n from items i where {i = a})

select * from orders o where ({key o}) in (select {key} from items)

select * from orders o where ({key o}) in (select {key} from items where n = 2) and id = 1

select * from orders o where ({key o}) not in (select {key} from items)

select * from orders o where not exists (select from items i where {i = o})

select * from orders o where exists (select from items i where {i = o} and i.n = 2)

select o.id, i.n, p.id from orders o left join items i on {o = i} and i.n = 1 left join orders p on {p = i} and p.id = 2

select o.id, i.n from orders o left join items i on {o = i} where coalesce(i.n, 0) <> 1

select o.id, p.id from orders o left join items i on {o = i} left join orders p on p.id = i.n

select o.id, p.id from orders o left join items i on {o = i} left join orders p on p.id = i.n and {p = o} where {o = a} order by 1, 2

-- A condition of an outer join does not bind the side that is kept.

select o.id, i.n from orders o left join items i on {o = i} and {o = a} where o.id = 1

select o.id, i.n from orders o left join items i on {o = i} and {i = a}

select o.id, i.n from items i right join orders o on {o = i} and {i = a}

select o.id, i.n from orders o left join items i on {o = i} where {i = a}

-- Truth in other words.

select id from orders where ({= a}) is true

select id from orders where ({= a}) and true order by id

select id from orders where ({= a}) or false

select id from orders where not (not ({= a}))

select id from orders where ({= a}) is not true and id = 1

select id from orders where case when id = 1 then {= a} else {= c} end

select id from orders where ({= a} or {= c}) and ({= c} or {= e})

select id from orders where ({= a} or {= b}) and id in (1, 2) order by id, k

select id from orders where {= a} and {= b}

select id from orders where {= a} or ({= c} and false)

select id from orders where {= a} and null

-- only: single
select id from orders where (k, id) = ({a}, 1)

-- only: single
select id from orders where (k, id) in (({a}, 1), ({c}, 2))

-- only: single
select id from orders where (k, id) > ({a}, 1)

-- only: single
select id from orders where {a} = k and k = {a} order by id

-- only: single
select id from orders where k between symmetric {c} and {a}

-- only: single
select id from orders where coalesce(k, {a}) = {a}

-- only: single
select id from orders where nullif(k, {a}) is null

-- Rows that are given in the statement.

select o.id, v.n from orders o join (values ({cast a}, 1), ({cast c}, 2)) v({key}, n) on {o = v}

select o.id, v.n from (values ({cast a}, 1), ({cast b}, 2)) v({key}, n) join orders o on {o = v} order by o.id, v.n

select o.id, v.n from (values ({cast a}, 1), ({cast c}, 2)) v({key}, n) left join orders o on {o = v}

select o.id, v.n from (values ({cast a}, 1), ({cast b}, 2)) v({key}, n) left join orders o on {o = v} order by o.id, v.n

-- only: single
select o.id from orders o join unnest({array a b}::{types}[]) u on u = o.k

-- Queries without a table of their own.

select (select note from orders where {= a} and id = 1) as x, (select note from orders where {= b} and id = 2) as y

select (select note from orders where {= a} and id = 1), (select note from orders where {= c} and id = 2)

select exists (select from orders where {= a})

select array(select id from orders where {= a} order by id)

select id from orders where {= a} and id = any (array(select n from items where {= a})) order by id

select o.id from orders o where {o = a} group by o.id having exists (select from items i where {i = a} and i.n = o.id) order by 1

select o.id, l.c from orders o, lateral (select count(*) as c from items i where {i = o}) l

select o.id from orders o tablesample system (100) where {o = a} order by id

select tableoid::regclass::text, id from orders where {in a c e}

-- key: a
select id from orders where {= $1} order by id limit 1

select id from orders where {= a} order by id limit 1 offset 1

select id from orders where {= a} order by id fetch first 1 row with ties

select o.id, p.id from orders o cross join orders p where {o = a} and {p = a} order by 1, 2

select id from orders where {= a} and id >= (select min(id) from orders where {= b}) order by id

-- Names that hide others.

with orders as (select * from items where {= a}) select n from orders order by n

with items as (select * from orders) select id from items i where {i = a} order by id

select id from orders o where {o = a} order by id

select n from (select n, {key} from items) as o where {o = a} order by n

select k from (select id as k from orders where {= a}) o order by k

select k from (select id as k, note from orders) o where k = 1 order by k

select k from (select id as k, note from orders) o where k = 1
