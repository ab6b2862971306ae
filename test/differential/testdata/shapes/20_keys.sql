-- One key, or several, or bounds.

-- each: sample
select * from orders where {= x} order by id

-- each: sample
select id from orders where {= cast x} order by id desc

-- each: sample
-- key: x
select * from orders where {= $1} order by id

-- each: sample
-- key: ? x
select {key}, note from orders where {= $1} and id = 1

-- each: spelling
select * from orders where {= x} order by id

-- each: spelling
-- key: ? x
select * from orders where {= $1} order by id

select * from orders where {in a}

select * from orders where {in a b} order by id, 1

select * from orders where {in a c e}

select * from orders where {in a c e z}

select * from orders where {in a a c}

select id, note from orders o where {o in a d f} and id > 1

-- key: a
-- key: c
-- key: e
select * from orders where {in $1 $2 $3}

-- key: ? a
-- key: ? c
select * from orders where {in $1 $2}

select * from orders where {= a} or {= c}

select * from orders where ({= a} and id = 1) or (id = 2 and ({= c} or {= e}))

select * from orders where {= a} and (id = 1 or note = 'fr')

select * from orders where {= a} and {= c}

select * from orders where {= a} and not ({= a})

select * from orders where {= a} or id = 2

select * from orders where not ({in a c})

-- only: single
select * from orders where k = any ({array a c e})

-- only: single
select * from orders where k = any ({array a b}) order by id, k

-- only: single
select * from orders where k = any ({array a c z})

-- only: single
select * from orders where k = any ({array a c}::{types}[])

-- only: single
-- key: array a c e
select * from orders where k = any ($1)

-- only: single
-- key: array a b
select * from orders where k = any ($1) order by id, k

-- only: single
-- key: array
select * from orders where k = any ($1)

-- only: single
select * from orders where k = any (array[{a}, {c}]::{types}[])

select * from orders where k = any ('{}')

select * from orders where k = any ('{NULL}')

select * from orders where k = any (null)

-- only: single
select * from orders where k <> all ({array a c e}::{types}[])

-- Bounds, which say something of a keyspace by range.

select * from orders where {> c}

select * from orders where {>= c} and {<= d}

select * from orders where {< c} and id = 1

select * from orders where {<= a}

select * from orders where {between a b}

select * from orders where {between b e}

select * from orders where not ({between c d})

select * from orders where {> a} and {= c} order by id

-- only: int2, int4
select * from orders where k < 3000000000

-- only: int2, int4
select * from orders where k between -3000000000 and 3000000000

-- only: single
-- key: b
-- key: e
select * from orders where k >= $1 and k < $2

-- only: single
-- key: ? a
select * from orders where k > $1 and id = 2

-- Nobody's key.

select * from orders where k = null

select * from orders where k is null

select * from orders where k in (null, null)

-- only: single
select * from orders where k in ({a}, null)

select * from orders where k is not null and id = 2

-- only: single
select * from orders where k is not distinct from {a}

select count(*) from orders where {= z}

-- All rows.

select * from orders

select note, id + 1 as next from orders where note like 'd%'

select {key} from only orders where id = 1

table items

-- What has to be put together.

select * from orders where {in a c} order by id, {key}

select * from orders where {in a c} order by id desc, {key} limit 2 offset 1

select 1 from orders where {in a c} limit 2 offset 1

select * from orders where {in a c} limit 1000

select count(*) from orders where {in a c}

select distinct note from orders where {in a c}

select note, count(*) from orders where {in a c} group by note

select row_number() over (order by id) from orders where {in a c}

select count(*) from orders

select count(*), sum(amount), min(note), max(id), avg(amount) from orders

select * from orders order by id, {key}

-- expect: refused: a system column
select count(ctid) from orders

-- Values on one shard can.

select * from orders where {in a b} order by id desc, k limit 3

select count(*), sum(amount), min(note), max(id), avg(amount) from orders where {in a b}

select distinct note from orders where {in a b} order by note

select note, count(*) from orders where {in a b} group by note having count(*) > 1 order by note

select * from orders where {= a} order by id for update

select * from orders where {= a} for no key update skip locked

select * from orders where {in a c} for share
