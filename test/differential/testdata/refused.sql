-- What the router does not do yet, and says so; beside what it does.

create table orders (user_id bigint not null, id bigint not null, item text, primary key (user_id, id))

create table more (user_id bigint not null primary key, note text)

create table made (user_id bigint primary key default (3 + 4), note text)

create table fixed (user_id bigint primary key default 7, note text)

create table plain (a bigint)

insert into plain values (1), (3)

-- router
select cleave.shard_tables('{schema}.orders(user_id), {schema}.more(user_id), {schema}.made(user_id), {schema}.fixed(user_id)')

insert into orders values (1, 1, 'one')

-- Keys that only a server could compute.

-- expect: refused: a default value for key column "user_id"
insert into made (note) values ('x')

-- expect: refused: a default value for key column "user_id"
insert into made values (default, 'x')

-- expect: refused: a default value for key column "user_id"
insert into made default values

-- A constant it knows.

insert into fixed (note) values ('x')

insert into fixed values (default, 'y')

insert into fixed default values

insert into fixed values (8, 'z'), (default, 'y') on conflict do nothing

select * from fixed where user_id = 7

-- Those that are in the statement it has computed.

insert into orders values (2 + 3, 1, 'five')

insert into orders values ((select 5), 2, 'five'), (6, 1, 'six')

-- param: int8 5
insert into orders values ($1 + 1, 3, 'six')

insert into orders select generate_series, 9 from generate_series(1, 3)

-- expect: refused: the value of type float8
select * from orders where user_id = 1.0::float8

-- Not bound to one shard's keys.

select count(*) from orders

-- expect: refused: a system column
select count(ctid) from orders

-- expect: refused: is not bound to values
select o.ctid from orders o join orders p on o.id = p.user_id

select count(*) from (select * from orders limit 2 offset 1) o

-- unordered
select * from orders o join orders p on o.id = p.user_id

-- unordered
select * from orders o, plain p where o.user_id = 1

select o.item, c.relname from orders o, pg_class c where o.user_id = 1 and c.relname = 'pg_class'

select * from plain where a in (select id from orders where user_id = 1)

insert into plain select id from orders where user_id = 1

-- Changes that several shards cannot make together.

-- expect: refused: key column "user_id"
alter table orders alter column user_id type int

-- expect: refused: key column "user_id"
alter table orders rename column user_id to owner

-- expect: refused: key column "user_id"
alter table orders drop column user_id

-- expect: refused: The shard map knows
alter table orders rename to ordered

-- expect: refused: a temporary view over a sharded or reference table is not supported
create temp view v as select * from orders

-- expect: refused: with a common table expression that writes
create table copied as with gone as (delete from orders returning *) select * from gone

-- expect: refused: is not supported yet
create table child () inherits (orders)

-- expect: refused: DROP SCHEMA is not supported yet
drop schema {schema} cascade

-- expect: refused: Every shard would count for itself
alter table orders add column number bigserial

-- expect: refused: Every shard would compute its own value
alter table orders add column made timestamptz default clock_timestamp()

-- Code that nobody can look into.

-- expect: refused: DO is not supported while
do $$ begin perform 1; end $$

create function opaque() returns int language plpgsql as 'begin return 1; end'

-- expect: refused: function "opaque" is not supported while
select opaque()

create function certain() returns int language plpgsql immutable as 'begin return 1; end'

select certain()

-- expect: refused: It runs SQL that it is given as text
select query_to_xml('select 1', true, true, '')

-- In a transaction a refusal is an error like any other.

begin

insert into orders values (1, 2, 'two')

select count(*) from orders

-- expect: refused: a system column
select count(ctid) from orders

select 1

rollback

begin

insert into orders values (1, 2, 'two')

savepoint s

select count(*) from orders

-- expect: refused: a system column
select count(ctid) from orders

rollback to s

commit

-- unordered
select * from orders

begin isolation level serializable

select item from orders where user_id = 1 order by id

-- expect: refused: SERIALIZABLE
insert into orders values (1, 3, 'x'), (2, 3, 'x'), (3, 3, 'x'), (4, 3, 'x'), (5, 3, 'x'), (6, 3, 'x'), (7, 3, 'x'), (8, 3, 'x'), (9, 3, 'x'), (10, 3, 'x'), (11, 3, 'x'), (12, 3, 'x')

rollback

-- What has nothing to do with it goes on.

lock table orders

-- unordered
select * from plain

create table alike (like orders including all)

select * from alike

drop table alike, plain

drop table more

-- unordered
delete from orders returning *
