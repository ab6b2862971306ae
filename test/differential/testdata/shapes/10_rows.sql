-- The rows that other shapes find: each key has two orders, most have items.

truncate orders, items, loaded

delete from country

insert into country values ('de', 'Germany'), ('fr', 'France'), ('it', 'Italy')

insert into orders values {values 1, 'de', 10}

-- ordered
insert into orders ({key}, id, note) values {values 2, 'fr'} returning *

insert into items values {values 1, 'red'}

insert into items ({key}, n) values ({a}, 2), ({c}, 2)

delete from items where {in b d}

select * from orders

select * from items

select * from country order by code
