-- Tables that nobody declared: all of PostgreSQL.

create table customers (id int primary key, name text, country text)

create table invoices (id serial primary key, customer int references customers on delete cascade, amount numeric(10, 2), at date default '2024-01-01')

insert into customers values (1, 'Ada', 'uk'), (2, 'Bob', 'us'), (3, 'Cem', null)

insert into invoices (customer, amount) values (1, 10), (1, 20.5), (2, 5) returning *

select * from customers order by id

select c.name, sum(i.amount) from customers c left join invoices i on i.customer = c.id group by c.name order by c.name

select name, (select count(*) from invoices where customer = customers.id) from customers order by id

with totals as (select customer, sum(amount) as total from invoices group by customer) select c.name, t.total from customers c join totals t on t.customer = c.id order by 1

with recursive n(i) as (select 1 union all select i + 1 from n where i < 5) select * from n

with moved as (delete from invoices where amount < 10 returning *) select customer, amount from moved

with added as (insert into invoices (customer, amount) values (2, 7) returning customer, amount) select * from added

select id, rank() over (order by amount desc), sum(amount) over (partition by customer order by id) from invoices order by id

select country, count(*) from customers group by rollup (country) order by 1, 2

select distinct customer from invoices order by 1

select distinct on (customer) customer, amount from invoices order by customer, amount desc

select id from customers union select customer from invoices order by 1

select id from customers except select customer from invoices order by 1

select id from customers intersect select customer from invoices order by 1

select * from customers order by name desc nulls first limit 1 offset 1

select * from customers order by id fetch first 2 rows with ties

select * from customers c, lateral (select max(amount) as most from invoices where customer = c.id) m order by c.id

select * from customers natural join (values (1, 'x')) as v(id, note)

select * from customers tablesample system (100) order by id

insert into customers values (1, 'again', 'fr') on conflict (id) do update set name = excluded.name || '!' returning *

insert into customers values (1, 'again', 'fr') on conflict do nothing

update customers set country = 'de' where id = 3 returning id, country

update customers c set name = c.name || ' has ' || i.amount from invoices i where i.customer = c.id and i.amount > 20

delete from invoices using customers where customers.id = invoices.customer and customers.name like 'Bob%' returning invoices.id

merge into customers c using (values (3, 'merged'), (4, 'new')) as v(id, name) on c.id = v.id when matched then update set name = v.name when not matched then insert (id, name) values (v.id, v.name)

select * from customers order by id

-- Views, functions, triggers, rules.

create view rich as select * from customers where id in (select customer from invoices where amount > 15)

select * from rich

create materialized view counted as select count(*) from customers

select * from counted

refresh materialized view counted

create function total(int) returns numeric language sql stable as 'select sum(amount) from invoices where customer = $1'

select total(1), total(99)

create function noted() returns trigger language plpgsql as $$ begin new.name := upper(new.name); return new; end $$

create trigger t before insert on customers for each row execute function noted()

insert into customers values (5, 'eve') returning name

create rule keep as on delete to customers do instead nothing

delete from customers

select count(*) from customers

drop rule keep on customers

-- Sequences.

create sequence s

select nextval('s'), nextval('s')

-- The session has no backend of its own between statements, so nobody remembers these.

-- expect: refused: a value of this session's own backend
select currval('s'), lastval()

select setval('s', 10), nextval('s')

-- Changes of the tables.

alter table customers add column vip boolean default false not null

select * from customers order by id

alter table customers rename column vip to very

select very from customers order by id limit 1

alter table customers alter column country type varchar(10), alter column country set default 'xx'

insert into customers (id, name) values (6, 'f') returning *

alter table customers drop column very

create index on customers (name)

create unique index customers_name on customers (lower(name))

comment on table customers is 'people'

select obj_description('customers'::regclass)

analyze customers

vacuum customers

truncate invoices restart identity

select count(*) from invoices

insert into invoices (customer, amount) values (1, 1) returning id

-- Partitions and inheritance.

create table parted (a int, b text) partition by range (a)

create table parted_low partition of parted for values from (0) to (10)

insert into parted values (1, 'low')

insert into parted values (11, 'high')

select tableoid::regclass::text = 'parted_low', a, b from parted

create table child (c int) inherits (customers)

insert into child (id, name, c) values (7, 'child', 1)

select id from only customers order by id

select id from customers order by id

-- Copies of tables.

create table made as select id, name from customers order by id

select count(*) from made

select id into into_made from customers

create table alike (like customers including all)

select * from alike

create table if not exists alike (a int)

-- Explained.

explain (costs off) select * from customers where id = 1

explain (costs off, format json) select 1

explain (analyze, costs off, timing off, summary off) select 1

-- Everything else.

select current_date = now()::date, extract(year from date '2024-05-06'), to_char(date '2024-05-06', 'YYYY"x"DD'), age(date '2024-05-06', date '2024-01-01')

select * from unnest(array[1, 2], array['a', 'b']) with ordinality

select * from json_to_recordset('[{"a": 1, "b": "x"}]') as x(a int, b text)

select regexp_matches('abc', '(.)(.)', 'g'), string_to_array('a,b', ','), format('%s %I %L', 1, 'A b', 'it''s')

select count(*) filter (where i > 2), percentile_cont(0.5) within group (order by i) from generate_series(1, 5) i

grant select on customers to public

revoke select on customers from public

create schema {schema}_more create table inside (a int)

select * from {schema}_more.inside

drop schema {schema}_more cascade

drop table child, made, into_made, alike, parted

drop view rich

drop materialized view counted

drop table customers, invoices

drop function total(int)

drop function noted()

drop sequence s
