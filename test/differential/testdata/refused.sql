-- What the router does not do yet, and says so.

create table orders (user_id bigint not null, id bigint not null, item text, primary key (user_id, id))

create table more (user_id bigint not null primary key, note text)

create table plain (a bigint)

-- router
select cleave.shard_table('{schema}.orders', 'user_id')

-- router
select cleave.shard_table('{schema}.more', 'user_id')

insert into orders values (1, 1, 'one')

-- Not bound to one key.

-- expect: refused
select * from orders

-- expect: refused
select count(*) from orders

-- expect: refused
select * from orders where user_id > 1

-- expect: refused
select * from orders where user_id = 1 or user_id = 2

-- expect: refused
select * from orders where user_id = 1 or item = 'x'

-- expect: refused
select * from orders where not (user_id = 1)

-- expect: refused
select * from orders where user_id <> 1

-- expect: refused
select * from orders where user_id in (1, 2)

-- expect: refused
select * from orders where id = 1

-- expect: refused
select * from orders where user_id + 0 = 1

-- expect: refused
select * from orders where user_id = id

-- expect: refused
select * from orders where user_id = 1.0::float8

-- expect: refused
select * from orders where user_id = (select 1)

-- expect: refused
update orders set item = 'x'

-- expect: refused
delete from orders

-- expect: refused
delete from orders where id = 1

-- More than one.

-- expect: refused
select * from orders o, orders p where o.user_id = 1 and p.user_id = 1

-- expect: refused
select * from orders where user_id = 1 union all select * from orders where user_id = 1

-- expect: refused
select * from (select * from orders where user_id = 1) o

-- expect: refused
with o as (select * from orders where user_id = 1) select * from o

-- expect: refused
select * from orders o, plain p where o.user_id = 1

-- expect: refused
select * from orders o, pg_class c where o.user_id = 1

-- expect: refused
select * from plain where a in (select id from orders where user_id = 1)

-- Writes.

-- expect: refused
insert into orders values (2, 1, 'two'), (3, 1, 'three')

-- expect: refused
insert into orders select 4, 1, 'four'

-- expect: refused
insert into orders values (2 + 3, 1, 'five')

-- expect: refused
update orders set user_id = 2 where user_id = 1

-- expect: refused
insert into orders values (1, 1, 'one') on conflict (user_id, id) do update set user_id = 5

-- expect: refused
merge into orders o using (values (1)) as v(a) on o.user_id = 1 when matched then delete

-- nodata
-- expect: refused
copy orders from stdin

-- expect: refused
copy orders to stdout

-- Changes of what it is.

-- expect: refused
alter table orders add column c int

-- expect: refused
drop table orders

-- expect: refused
truncate orders

-- expect: refused
create index on orders (item)

-- expect: refused
create view v as select * from orders

-- expect: refused
create table made as select * from orders where user_id = 1

-- expect: refused
create table refers (a bigint, b bigint, foreign key (a, b) references orders)

-- expect: refused
create table child () inherits (orders)

-- expect: refused
drop schema {schema} cascade

-- expect: refused
lock table orders

-- expect: refused
vacuum orders

-- Code that nobody can look into.

-- expect: refused
do $$ begin perform 1; end $$

create function opaque() returns int language plpgsql as 'begin return 1; end'

-- expect: refused
select opaque()

create function certain() returns int language plpgsql immutable as 'begin return 1; end'

select certain()

-- expect: refused
select query_to_xml('select 1', true, true, '')

-- In a transaction a refusal is an error like any other.

begin

-- expect: refused
select * from orders

select 1

rollback

select item from orders where user_id = 1

-- What has nothing to do with it goes on.

insert into plain values (1)

select * from plain

create table alike (like orders including all)

select * from alike

drop table alike, plain
