-- Statements between changes of the tables.

-- parse: s
select * from orders where {= $1} and id = 1

-- bind: s
-- key: a

alter table orders add column extra int default 7

select * from orders where {= a} order by id

select * from orders where {in a c e}

insert into orders ({key}, id, extra) values ({a}, 3, 1), ({c}, 3, 2) returning *

insert into orders values ({e}, 3, 'x', 1, 3) returning extra

create index orders_extra on orders (extra, note)

select id from orders where {= a} and extra = 7 order by id

create unique index orders_unique on orders ({key}, extra, id)

update orders set extra = null where {in a c e} and id < 3

-- fails: 23502
alter table orders alter column extra set not null

alter table orders rename column extra to more

select more from orders where {= c} order by id

-- fails: 42703
select extra from orders where {= c}

alter table orders alter column more type bigint

select id, more from orders where {in a c e}

comment on table orders is 'what was ordered'

select obj_description('orders'::regclass)

alter table orders add constraint positive check (id > 0)

-- fails: 23514
insert into orders ({key}, id) values ({a}, 4), ({c}, -1)

-- fails: 23514
insert into orders ({key}, id) values ({c}, -1)

-- A change that is taken back.

begin

alter table orders drop column more

rollback

select more from orders where {= a} and id = 3

-- fails: 42703
create index orders_missing on orders (missing)

-- fails: 42703
alter table orders drop column missing

drop index orders_extra

-- fails: 42704
drop index orders_extra

-- fails: 42704
drop index orders_extra, orders_unique

drop index orders_unique

alter table orders drop constraint positive

alter table orders drop column more

delete from orders where id = 3

select * from orders

-- close: s

create table later ({columns}, v text, primary key ({key}))

insert into later values ({a}, 'not sharded'), ({c}, 'yet')

select * from later order by v

-- router
select cleave.shard_table('{schema}.later', '{key}', colocate_with => '{schema}.orders')

select * from later

insert into later values ({e}, 'now')

select o.id, l.v from orders o join later l on {l = o}

drop table later

-- fails: 42P01
select * from later

create table copied as select * from orders where {= a}

select * from copied

select o.* into into_copied from orders o join orders p on o.id = p.id + 1

select * from into_copied

create materialized view counted as select {key}, count(*) as n, max(note) as note from orders group by {key}

select * from counted

delete from orders where {= a}

refresh materialized view counted

select * from counted

select o.id, m.n from orders o join counted m on {m = o}

drop materialized view counted

drop table copied, into_copied
