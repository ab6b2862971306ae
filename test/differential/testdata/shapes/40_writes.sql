-- Each key by itself.

-- each: sample
insert into loaded values ({x}, 1, 'one', 1.005) returning *

-- each: sample
update loaded set note = note || '!' where {= x} returning *

-- fails: 23505
insert into loaded ({key}, id) values ({a}, 1)

-- each: sample
-- key: x
insert into loaded ({key}, id, note) values ({$1}, 2, 'two')

-- each: sample
-- key: ? x
insert into loaded ({key}, id, note) values ({$1}, 3, 'three') returning {key}, id

select * from loaded

-- each: sample
select count(*) from loaded where {= x}

-- each: sample
delete from loaded where {= x} and id = 1 returning *

-- each: sample
-- key: x
delete from loaded where {= $1} and id > 2

select * from loaded

truncate loaded

-- What is stored is not always what was written.

-- each: spelling
insert into loaded ({key}, id) values ({x}, 1) returning *

-- each: spelling
-- key: ? x
insert into loaded ({key}, id) values ({$1}, 2) returning *

-- each: spelling
-- key: x
insert into loaded ({key}, id) values ({$1}, 3) returning *

-- each: spelling
insert into loaded ({key}, id) values ({cast x}, 4) returning *

-- each: spelling
select count(*) from loaded where {= x}

-- each: spelling
select count(*) from loaded where {= cast x}

-- each: spelling
-- key: x
update loaded set note = 'spelt' where {= $1}

select * from loaded

delete from loaded

-- Many rows.

insert into loaded values ({a}, 1, 'one', 1), ({b}, 1, 'two', 2)

-- ordered
insert into loaded values ({c}, 1, 'one', 1), ({a}, 2, 'two', null), ({e}, 1, default, default), ({a}, 3, null, 5) returning *, id * 2 as twice

-- key: c
-- key: a
-- key: e
insert into loaded ({key}, id, note) values ({$1}, 5, 'x'), ({$2}, 5, 'y'), ({$3}, 5, 'z')

-- key: ? d
-- key: ? b
-- key: ? f
insert into loaded ({key}, id) values ({$1}, 6), ({$2}, 6), ({$3}, 6) returning id

insert into loaded ({key}, id) values ({cast a}, 7), ({cast d}, 7)

insert into loaded ({key}, id, note) values ({a}, 8, upper('x')), ({c}, 8, (select name from country where code = 'de')), ({e}, 8, 'a' || 'b') returning note

-- One row too many: nothing of it stays.

-- fails: 23505
insert into loaded ({key}, id) values ({a}, 9), ({c}, 9), ({e}, 1)

-- fails: 23502
insert into loaded ({key}, id) values ({a}, 9), ({c}, null)

-- fails: 42601
-- elsewhere
insert into loaded ({key}, id) values ({a}, 9), ({c})

-- fails: 42601
-- late
-- elsewhere
insert into loaded ({key}, id) values ({a}, 9, 'x'), ({c}, 9, 'x')

-- fails: 22003
-- late
insert into loaded ({key}, id, amount) values ({a}, 9, 1), ({c}, 9, 12345678.9)

select * from loaded where id = 9

-- Without a key.

-- fails: 23502
insert into loaded (id) values (1)

-- fails: 23502
insert into loaded default values

-- fails: 23502
-- only: single
insert into loaded (k, id) values (null, 1)

-- fails: 23502
-- only: single
insert into loaded (k, id) values ({a}, 10), (null, 10)

-- fails: 23502
-- only: single
insert into loaded (k, id) values (default, 1)

-- fails: 23502
-- only: single
-- param: ?
insert into loaded (k, id) values ($1, 1)

-- fails: 23502
-- only: composite
insert into loaded (k, j, id) values (1, null, 1)

-- fails: 23502
-- only: composite
insert into loaded (k, id) values (1, 1)

-- Conflicts.

insert into loaded values ({a}, 1, 'again', 9) on conflict do nothing

insert into loaded values ({a}, 1, 'again', 9), ({c}, 1, 'again', 9), ({c}, 11, 'new', 9) on conflict do nothing

insert into loaded as l values ({a}, 1, 'again', 9) on conflict ({key}, id) do update set note = excluded.note || l.note, amount = l.amount + 1 returning *

-- ordered
insert into loaded as l values ({a}, 1, 'x', 9), ({c}, 1, 'y', 9), ({e}, 12, 'z', 9) on conflict ({key}, id) do update set note = excluded.note where l.id = 1 returning *

-- fails: 21000
insert into loaded as l ({key}, id) values ({a}, 1), ({a}, 1) on conflict ({key}, id) do update set note = 'twice'

-- fails: 42P10
insert into loaded values ({a}, 1) on conflict (note) do nothing

-- From queries.

insert into loaded select {key}, id + 20, note, amount from orders where {= a}

insert into loaded ({key}, id) select {key}, id + 30 from orders where {in a c e} returning *

insert into loaded ({key}, id, note) select {key i}, n + 40, c.name from items i join country c on c.code = 'de'

insert into loaded ({key}, id) select {a}, 50 where exists (select from country)

insert into loaded ({key}, id) select {cast c}, n + 50 from items where {= c}

insert into loaded ({key}, id) select {e}, n + 55 from items where {= a}

insert into loaded ({key}, id) select {key}, id + 60 from orders where {in a c} order by id desc, {key} limit 3

-- fails: 23505
insert into loaded ({key}, id) select {key}, id from orders where {in a c e}

select * from loaded

-- UPDATE.

update loaded set note = 'changed' where {= a} and id = 1

update loaded set note = 'changed', amount = default where {in a c e} returning {key}, id, note

update loaded set amount = coalesce(amount, 0) + 1

update loaded l set note = c.name from country c where c.code = 'fr' and {l = a}

update loaded l set note = o.note from orders o where {o = l} and {l = a} and o.id = l.id returning l.id, o.amount

update loaded l set note = i.tag from items i where {i = l} and i.n = l.id returning l.id, l.note

update loaded set (note, amount) = (select 'pair', 5) where {= a} and id = 1 returning *

update loaded set note = (select max(tag) from items where {= a}) where {= a}

-- key: a
update loaded set note = 'by parameter' where {= $1} returning id

-- only: single
-- key: array a c e
update loaded set note = 'by array' where k = any ($1)

update loaded set {set a}, note = 'kept' where {= a} and id = 1 returning *

update loaded set {set b} where {= a} and id = 2 returning *

-- fails: 23505
update loaded set {set c} where {= a}

update loaded set {set c}, id = id + 1000 where {= a} returning id, note

update loaded set id = id - 1000, {set a} where {= c} and id > 1000

update loaded set id = id where {= z}

-- fails: 23505
update loaded set id = 1 where {= a}

-- fails: 23502
update loaded set id = null where {in a c}

-- fails: 22003
update loaded set amount = 12345678.9 where {in a c e}

-- DELETE.

delete from loaded where {= a} and id = 5 returning *

delete from loaded where {in a c e} and id = 8

delete from loaded l using items i where {i = l} and {l = c} and l.id = i.n + 40

delete from loaded l using orders o where {o = l} and o.id + 20 = l.id returning l.id, o.note

delete from loaded where {= z}

delete from loaded where id = 6 returning {key}

select * from loaded

-- Data-modifying queries.

with gone as (delete from loaded where {= a} and id = 1 returning *) insert into items ({key}, n, tag) select {key}, 70, note from gone returning *

with made as (insert into loaded ({key}, id) values ({a}, 71) returning *) select id from made

with changed as (update loaded set note = 'cte' where {= a} returning id, note) select count(*), max(note) from changed

with gone as (delete from items where {= a} and n = 70 returning *) select * from gone

with made as (insert into loaded ({key}, id) values ({c}, 72) returning *) select * from orders where {= a}

-- MERGE.

merge into loaded l using (select * from orders where {= a}) o on {l = o} and l.id = o.id when matched then update set note = 'merged' when not matched then insert values ({key o}, o.id, 'inserted', o.amount)

merge into loaded l using items i on {l = i} and l.id = i.n when matched then delete

merge into loaded l using orders o on {l = o} and l.id = o.id when matched and o.id > 1 then update set amount = o.amount when matched then do nothing when not matched then insert ({key}, id, note) values ({key o}, o.id, 'merged in parts')

merge into loaded l using country c on {l = a} and c.code = 'de' and l.id = 1 when matched then update set note = c.name

-- expect: refused: an outer join
merge into loaded l using country c on l.note = c.code when not matched then insert ({key}, id) values ({a}, 80)

select * from loaded

truncate table loaded

select * from loaded

-- Reference tables are written on every shard.

insert into country values ('es', 'Spain'), ('pt', 'Portugal') returning *

-- fails: 23505
insert into country values ('es', 'Again')

update country set name = upper(name) where code in ('es', 'pt')

insert into country values ('es', 'x') on conflict (code) do update set name = excluded.name || country.name returning name

merge into country c using (values ('pt', 'P'), ('gr', 'Greece')) v(code, name) on c.code = v.code when matched then update set name = v.name when not matched then insert values (v.code, v.name)

select * from country order by code

delete from country where code in ('es', 'pt', 'gr') returning code
