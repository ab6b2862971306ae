-- Aggregates and window functions on one key.

select count(*), count(note), sum(amount), min(id), max(note), avg(amount), bool_and(id > 0), string_agg(note, ',' order by id), array_agg(id order by id) from orders where {= a}

select note, sum(amount) as total from orders where {= a} group by note order by total desc

select note, sum(amount) from orders where {= a} group by rollup (note) order by note nulls last

select count(*) filter (where id > 1) from orders where {= a} having count(*) > 0

select id, row_number() over (order by id desc), lag(note) over w, sum(amount) over w from orders where {= a} window w as (order by id) order by id

select distinct on (note) note, id from orders where {= a} order by note, id desc

select percentile_cont(0.5) within group (order by amount) from orders where {= a}

-- Joins of tables whose rows are together.

select o.*, i.* from orders o join items i on {o = i} where {o = a} order by o.id, i.n

select o.id, i.n from orders o, items i where {o = i} and {i = a} order by 1, 2

select o.id, i.n from orders o join items i using ({key}) where {o = a} order by 1, 2

select * from orders o natural join items i where {= a} order by id, n

select o.id, i.n from orders o left join items i on {o = i} where {o = b} order by 1

select o.id, i.n from orders o left join items i on {o = i} and i.n > 1 where {o = a} order by 1

select o.id, i.n from items i right join orders o on {o = i} where {o = b} order by 1

select o.id, i.n from orders o full join items i on {o = i} and o.id = i.n where {o = a} and {i = a} order by 1, 2

select o.id, i.n from (select * from orders where {= a}) o full join (select * from items where {= a}) i on o.id = i.n + 1 order by 1, 2

select o.id, l.n from orders o cross join lateral (select n from items i where {i = o} order by n limit 1) l where {o = a} order by 1

select o.id, l.n from orders o left join lateral (select n from items i where {i = o} and i.n > o.id) l on true where {o = c} order by 1, 2

select o.id, p.id from orders o join orders p on {o = p} and o.id < p.id where {o = a}

select o.id, i.n from orders o join items i on {o = i} join orders p on {p = i} and p.id = 1 where {p = c} order by 1, 2

-- key: a
select o.id, i.n from orders o join items i on {o = i} where {o = $1} order by 1, 2

-- key: a
-- key: c
select o.id, i.n from orders o join items i on {o = i} where {o in $1 $2}

select o.id, i.n from orders o join items i on {o = i} where {o in a c e}

select o.*, i.n from orders o join items i on {o = i}

select o.id, i.tag from orders o left join items i on {o = i} where o.id = 1

select o.id, i.tag from items i right join orders o on {o = i}

select o.id, i.tag from orders o left join items i on {o = i} where i.n is null

select * from orders o, items i where {o = a} and {i = c}

select o.id, i.n from orders o, items i where {o = a} and {i = b} order by 1, 2

select o.id, i.n from orders o, items i where {o = a} and {i = a} order by 1, 2

select * from orders o join items i on o.id = i.n

select * from orders o full join items i on {o = i}

-- Beside reference tables.

select o.id, c.name from orders o join country c on c.code = o.note where {o = a} order by 1

select o.id, c.name from orders o join country c on c.code = o.note where {o in a c}

select o.id, c.name from orders o left join country c on c.code = o.note and c.code = 'de'

select c.name, o.id from country c left join orders o on o.note = c.code and {o = a} order by 1, 2

select c.name, o.id from country c left join orders o on o.note = c.code

select o.id from orders o where {o = a} and o.note in (select code from country where name like 'G%')

select o.id, (select name from country c where c.code = o.note) from orders o where {o in a c e}

-- Subqueries.

select * from (select id, note from orders where {= a}) o order by id

select * from (select * from orders) o where {o = a} order by id

select * from (select {key}, sum(amount) as total from orders group by {key}) o where {o = a}

select id, (select count(*) from items i where {i = o}) from orders o where {o = a} order by id

select id, (select count(*) from items where {= a}) from orders where {= a} order by id

select id from orders o where {o = a} and exists (select from items i where {i = o} and i.n = o.id) order by id

select id from orders o where {o = b} and not exists (select from items i where {i = o}) order by id

select id from orders where {= a} and id in (select n from items where {= a}) order by id

select id from orders where {= a} and id > all (select n from items where {= b}) order by id

select id from orders o where {o = a} and exists (select from items i where {i = o} and exists (select from orders p where {p = i} and p.id = o.id + 1))

select id from orders o where {o = a} and (select count(*) from items i where {i = o} and i.n in (select p.id from orders p where {p = o} and p.note = o.note)) > 0

select o.id from orders o where exists (select from items i where {i = o})

select id, (select count(*) from items where {= c}) from orders where {= a}

select id from orders where {= a} and id in (select n from items)

-- Common table expressions.

with o as (select * from orders where {= a}) select o.id, i.n from o join items i on {i = o} order by 1, 2

with o as (select * from orders) select id from o where {o = a} order by id

with o as materialized (select * from orders where {= a}), i as (select * from items where {= a}) select count(*) from o, i

with o as (select * from orders where {= a}) select l.id, r.id from o l join o r on l.id < r.id

with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select r.n, o.id from r join orders o on o.id = r.n where {o = a} order by 1

with recursive r as (select {key}, id from orders where {= a} and id = 1 union all select {key o}, o.id from orders o join r on {o = r} and o.id = r.id + 1) select id from r order by id

with recursive r as (select {key}, id from orders where {= a} and id = 1 union select {key o}, o.id from orders o join r on {o = r}) select count(*) from r

with c as (select * from country where code <> 'it') select o.id, c.name from orders o join c on c.code = o.note where {o in a c}

-- Set operations.

select id from orders where {= a} union all select n from items where {= a} order by 1

select id from orders where {= a} union select n from items where {= b} order by 1

select id from orders where {= a} except select n from items where {= a} order by 1

select id from orders where {= a} intersect all select n from items where {= a} order by 1

(select id from orders where {= a} order by id desc limit 1) union all (select n from items where {= a} order by n limit 1) order by 1 desc limit 1

select * from (select {key}, id from orders union all select {key}, n from items) x where {x = a} order by id

select id from orders where {= a} union all select n from items where {= c}

select id from orders union all select n from items

-- Shapes of the answer.

select from orders where {= a}

select {key}, {key} from orders where {= a} and id = 1

select o from orders o where {o = a} and id = 1

select row({key o}, id) from orders o where {o = a} order by id

select to_json(o) ->> 'note' from orders o where {o = a} order by id

select note as "Note", amount::int, {key} from orders where {in a c e}

select 1 as one, null as nothing, 'x' as x from orders where {in a c e}

select case when id = 1 then 'first' else note end from orders where {in a c e}

values (1, 'x'), (2, 'y') order by 1

-- rows: 1
select id from orders where {= a} order by id

-- rows: 2
select 'one' as one from orders where {in a c e}

-- rows: 2
select id from orders where {in a c e} order by id

-- rows: 1
update orders set note = 'portion' where {in a c e} and id = 1 returning note

-- rows: 3
select id from orders where {in a b} order by id

-- fails: 42703
-- late
select nothing from orders where {in a c e}

-- fails: 22012
select 1 / (id - 1) from (select id from orders where {= a} order by id desc) o

-- fails: 22012
select 1 / (id - id) from orders where {in a c e}
