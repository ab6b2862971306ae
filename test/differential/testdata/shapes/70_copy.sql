-- Rows from the client, and to it.

copy orders to stdout

copy orders ({key}, note) to stdout (format csv, header, null 'nothing', force_quote *)

copy orders to stdout with (format binary)

copy items to stdout (delimiter '|')

copy (select * from orders where {= a} order by id) to stdout

copy (select id, {key} from orders where {= a} order by id) to stdout (format csv)

copy (select * from orders) to stdout

copy (select * from orders where {in a c e}) to stdout (format binary)

copy (select {key}, id, note, amount from orders order by id, {key}) to stdout (format csv, header, null 'nothing', force_quote (note))

copy (select {key}, id, note, amount from orders order by id, {key} limit 7) to stdout (format binary)

copy (select id, count(*), max(amount) from orders group by id order by id) to stdout (delimiter ';')

-- from: copy orders to stdout
copy loaded from stdin

select * from loaded

-- fails: 23505
-- from: copy orders to stdout
copy loaded from stdin

truncate loaded

-- from: copy orders to stdout (format csv, header, delimiter ';', quote '|', null 'nothing')
copy loaded from stdin with (format csv, header, delimiter ';', quote '|', null 'nothing')

select * from loaded

truncate loaded

-- from: copy orders to stdout (format csv, force_quote *)
copy loaded from stdin csv

select * from loaded

truncate loaded

-- from: copy orders to stdout (format binary)
copy loaded from stdin (format binary)

select * from loaded

truncate loaded

-- from: copy (select note, id, {key} from orders) to stdout
copy loaded (note, id, {key}) from stdin

select * from loaded

delete from loaded

-- from: copy (select * from orders where false) to stdout
copy loaded from stdin

-- fails: 23502
-- from: copy (select id, note from orders) to stdout
copy loaded (id, note) from stdin

-- fails: 22003
-- from: copy (select {key}, id, note, 12345678.9 from orders) to stdout
copy loaded from stdin

-- fails: 22P04
-- from: copy (select {key}, 1, note from orders) to stdout
copy loaded from stdin

-- fails: 57014
-- copyfail: changed my mind
copy loaded from stdin

select * from loaded

-- fails: 23502
-- only: single
-- from: copy (select null, id, note, amount from orders) to stdout
copy loaded from stdin

begin

-- from: copy orders to stdout
copy loaded from stdin

update loaded set note = 'copied' where {in a c}

select * from loaded

rollback

-- from: copy orders to stdout
copy loaded from stdin where id = 1

select * from loaded

truncate loaded

-- data: at	Austria
copy country from stdin

select name from country where code = 'at'

delete from country where code = 'at'
