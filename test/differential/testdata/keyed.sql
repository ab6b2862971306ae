-- A sharded table, one row's key at a time.

create table orders (user_id bigint not null, id bigint not null, item text, amount numeric(10, 2) default 1, at timestamptz, primary key (user_id, id))

-- router
select cleave.shard_table('{schema}.orders', 'user_id')

-- Written with literals.

insert into orders values (1, 1, 'apple', 2.5, '2024-01-01 00:00:00+00')

insert into orders (user_id, id, item) values (2, 1, 'pear')

insert into orders (item, id, user_id) values ('plum', 1, 3) returning *

insert into {schema}.orders as o (user_id, id) values (-4, 1) returning o.user_id, o.amount, o.item is null

insert into orders values (5, 1, default, default, null) returning *

insert into orders (user_id, id, item) values (6, 1 + 1, upper('fig') || '!') returning id, item

insert into orders values ('7', '1', 'text as a key')

insert into orders (user_id, id) values (8, 1)

insert into orders (user_id, id) values (8, 2)

insert into orders values (1, 1, 'again')

insert into orders (user_id, id) values (9223372036854775807, 1)

insert into orders (user_id, id) values (-9223372036854775808, 1)

insert into orders (user_id, id) values (0, 0)

insert into orders (user_id, id) values (4294967296, 1)

-- Read.

select * from orders where user_id = 1

select * from orders where user_id = 1 and id = 1

select * from orders where 1 = user_id

select * from orders where (user_id = 1)

select * from orders where user_id = 1 and (id = 1 or id = 2)

select item, amount * 2 as twice from orders o where o.user_id = 1

select o.* from {schema}.orders o where o.user_id = 3 and o.item like 'p%'

select * from {schema}.orders where {schema}.orders.user_id = 3

select * from orders where user_id = -4

select * from orders where user_id = - 4

select * from orders where user_id = -4::bigint

select * from orders where user_id = (-4)::bigint

select * from orders where user_id = '7'

select * from orders where user_id = 7::bigint

select * from orders where user_id = 7::int

select * from orders where user_id = 7::smallint

select * from orders where user_id = '7'::bigint

select * from orders where user_id = cast('7' as bigint)

select * from orders where user_id = bigint '7'

select * from orders where user_id = 9223372036854775807

select * from orders where user_id = -9223372036854775808

select * from orders where user_id = 4294967296

select * from orders where user_id = 99

select * from orders where user_id in (3)

select * from orders where (user_id, id) = (3, 1)

select count(*), sum(amount), max(item) from orders where user_id = 1

select item, count(*) from orders where user_id = 1 group by item having count(*) > 0 order by item limit 5

select distinct item from orders where user_id = 1

select * from orders where user_id = 1 limit 0

select 1 from orders where user_id = 1

select from orders where user_id = 1

select row_number() over (order by id), * from orders where user_id = 1

select tableoid = 'orders'::regclass from orders where user_id = 1

select * from only orders where user_id = 1

select * from orders where user_id = 1 for update

select * from orders where user_id = 1 for share nowait

select * from orders where user_id = 1 and item = (select 'apple')

select (select 'x'), item from orders where user_id = 1

-- NULL is nobody's key.

select * from orders where user_id = null

select * from orders where user_id = null::bigint

update orders set item = 'x' where user_id = null

delete from orders where user_id = null returning *

insert into orders (user_id, id) values (null, 1)

insert into orders (id) values (1)

-- Changed.

update orders set item = 'green apple' where user_id = 1 and id = 1

update orders set item = item || '!', amount = default where user_id = 1 returning *

update orders as o set amount = o.amount + 1 where o.user_id = 2 returning o.amount

update orders set item = 'nobody' where user_id = 99

delete from orders where user_id = 3

delete from orders where user_id = 3 returning *

delete from orders o where o.user_id = 5 and o.id = 1 returning o.*

-- Conflicts.

insert into orders (user_id, id, item) values (1, 1, 'kept') on conflict do nothing

insert into orders (user_id, id, item) values (1, 1, 'new') on conflict (user_id, id) do update set item = excluded.item || ' and ' || orders.item returning item

insert into orders (user_id, id, item) values (1, 3, 'third') on conflict (user_id, id) do update set item = 'never' where orders.amount > 5

insert into orders (user_id, id) values (1, 1) on conflict (item) do nothing

-- Wrong.

select nothing from orders where user_id = 1

select * from orders where user_id = 'x'

-- A number that is too large for the column's type is compared as numeric, and so is one with a fraction.

select * from orders where user_id = 99999999999999999999

select * from orders where user_id = 1.0

delete from orders where user_id = 1.5

insert into orders (user_id, id) values ('x', 1)

insert into orders (user_id, id) values (99999999999999999999, 1)

insert into orders (user_id, id, nothing) values (1, 2, 3)

select 1/0 from orders where user_id = 1

update orders set id = null where user_id = 1

selec * from orders where user_id = 1

select * from orders where user_id = 1 and

-- Explained: the router says the route first, in every format but that of machines.

explain (costs off, format json) select * from orders where user_id = 1 and id = 1

-- Parameters.

-- param: int8 1
select * from orders where user_id = $1 order by id

-- param: ? 1
select * from orders where user_id = $1 order by id

-- param: int4 2
select * from orders where user_id = $1

-- param: int2 2
select * from orders where user_id = $1

-- param: text 2
select * from orders where user_id = $1::bigint

-- param: int8
select * from orders where user_id = $1

-- param: int8 10
-- param: int8 1
-- param: text by parameter
insert into orders (user_id, id, item) values ($1, $2, $3) returning *

-- param: ? 11
-- param: ? 1
insert into orders (user_id, id) values ($1, $2)

-- param: int8
-- param: int8 1
insert into orders (user_id, id) values ($1, $2)

-- param: text changed
-- param: int8 10
update orders set item = $1 where user_id = $2 returning item

-- param: int8 10
delete from orders where user_id = $1 returning *

-- param: ? x
select * from orders where user_id = $1

-- param: int8 1
-- param: int8 3
select * from orders where user_id = $1 and id = $2

-- param: int8 5
select $1 as p, o.item from orders o where user_id = 1 order by id

-- parse: by_user
select id, item from orders where user_id = $1 order by id

-- bind: by_user
-- param: int8 1

-- bind: by_user
-- param: int8 2

-- bind: by_user
-- param: int8 4294967296

-- bind: by_user
-- param: int8

-- close: by_user

-- rows: 1
select * from orders where user_id = 8 order by id

prepare p as select id, item from orders where user_id = $1 order by id

execute p(1)

execute p(2)

execute p('8')

execute p(null)

execute p('x')

deallocate p

-- protocol: pipeline
-- param: int8 1
select id from orders where user_id = $1 order by id
update orders set amount = amount where user_id = $1
select id from orders where user_id = $1 order by id

-- protocol: pipeline
-- param: int8 1
update orders set item = 'lost' where user_id = $1
select 1 / (user_id - $1) from orders where user_id = $1
select id from orders where user_id = $1

select item from orders where user_id = 1 order by id

-- Names that hide it.

with orders as (select 5 as user_id) select * from orders

with orders as (select 5 as user_id) select * from orders where user_id = 5

select * from (select 7 as user_id) as orders where user_id = 7

create temporary table orders (user_id bigint, note text)

-- expect: refused: it cannot be told which relation "orders" means
insert into orders values (1, 'temporary'), (2, 'too')

insert into pg_temp.orders values (1, 'temporary'), (2, 'too')

-- expect: refused: it cannot be told which relation "orders" means
select * from orders order by user_id

select * from pg_temp.orders order by user_id

select * from {schema}.orders where user_id = 2

drop table pg_temp.orders

select item from orders where user_id = 2
