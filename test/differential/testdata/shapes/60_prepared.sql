-- Prepared by statements.

prepare by_key ({types}) as select id, note from orders where {= $1} order by id

execute by_key ({a})

execute by_key ({c})

execute by_key ({z})

execute by_key ({cast e})

deallocate by_key

prepare by_key as select * from orders where {= $1} order by id

execute by_key ({d})

execute by_key ({f})

deallocate by_key

prepare by_keys as select * from orders where {in $1 $2}

execute by_keys ({a}, {c})

execute by_keys ({a}, {b})

execute by_keys ({e}, {e})

prepare add_one as insert into loaded ({key}, id) values ({$1}, 1) returning *

execute add_one ({a})

execute add_one ({c})

-- fails: 23505
execute add_one ({a})

prepare add_some as insert into loaded ({key}, id) values ({$1}, 2), ({$2}, 3)

execute add_some ({a}, {b})

-- fails: 23505
execute add_some ({a}, {b})

-- protocol: simple
-- fails: 23505
execute add_some ({a}, {c})

prepare sorted as select * from orders where {in $1 $2} order by id, k

execute sorted ({a}, {b})

execute sorted ({a}, {c})

prepare counted (int) as select count(*), max(id + $1), min(amount) from orders where id > $1

execute counted (0)

execute counted (length('x'))

execute counted (null)

-- only: single
execute sorted ({a}, null)

-- only: single
execute by_keys (null, null)

-- fails: 23502
-- only: single
execute add_one (null)

deallocate all

-- fails: 26000
execute by_keys ({a}, {c})

-- By the protocol.

-- parse: s
select id, {key} from orders where {= $1} order by id

-- bind: s
-- key: a

-- bind: s
-- key: c

-- bind: s
-- key: ? e

-- bind: s
-- key: z

-- close: s

-- parse: s
-- key: a
select * from orders where {= $1} and id = 1

-- bind: s
-- key: b

-- bind: s
-- key: f

-- close: s

-- parse: s
select id, note from orders where {in $1 $2}

-- bind: s
-- key: a
-- key: b

-- bind: s
-- key: a
-- key: c

-- close: s

-- parse: s
-- only: single
-- key: array a
select id, note from orders where k = any ($1)

-- bind: s
-- only: single
-- key: array a b c d e f

-- bind: s
-- only: single
-- key: array a

-- bind: s
-- only: single
-- key: array

-- close: s
-- only: single

-- parse: s
-- only: single
select id from orders where k = any ($1)

-- bind: s
-- only: single
-- not: varchar
-- key: array a c e

-- close: s
-- only: single

-- parse: s
insert into loaded ({key}, id, note) values ({$1}, 4, 'x'), ({$2}, 4, 'y') returning *

-- bind: s
-- ordered
-- key: a
-- key: c

-- fails: 23505
-- bind: s
-- key: c
-- key: a

-- bind: s
-- ordered
-- key: b
-- key: e

-- close: s

-- parse: s
update loaded set note = 'bound' where {= $1}

-- bind: s
-- key: a

-- bind: s
-- key: e

-- close: s

-- parse: s
select id, note from orders where {in $1 $2} order by id, {key}

-- bind: s
-- key: a
-- key: b

-- bind: s
-- key: a
-- key: c

-- close: s

-- What a statement answers after its table has changed.

-- parse: s
select * from loaded where {= $1} order by id

-- bind: s
-- key: a

select * from loaded

truncate loaded

-- close: s
