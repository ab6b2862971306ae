-- Several shards in one transaction.

begin

insert into loaded ({key}, id) values ({a}, 1)

insert into loaded ({key}, id) values ({c}, 1)

select * from loaded where {= a}

select * from loaded where {in a c e}

update loaded set note = 'x' where {= c}

commit

select * from loaded

begin

insert into loaded ({key}, id) values ({a}, 2), ({c}, 2), ({e}, 2)

delete from loaded

select * from loaded

rollback

select * from loaded

-- Savepoints.

begin

insert into loaded ({key}, id) values ({a}, 3)

savepoint one

insert into loaded ({key}, id) values ({c}, 3)

-- fails: 23505
insert into loaded ({key}, id) values ({a}, 3)

-- fails: 25P02
select 1 from loaded where {= e}

rollback to one

insert into loaded ({key}, id) values ({e}, 3)

savepoint two

update loaded set note = 'y'

savepoint three

release three

rollback to savepoint two

release one

-- fails: 3B001
rollback to two

rollback

select * from loaded

begin

savepoint one

insert into loaded ({key}, id) values ({c}, 4)

release one

savepoint two

insert into loaded ({key}, id) values ({e}, 4), ({a}, 4)

rollback to two

insert into loaded ({key}, id) values ({e}, 5)

commit

select * from loaded

-- An error in the middle.

begin

insert into loaded ({key}, id) values ({a}, 6)

-- fails: 23505
insert into loaded ({key}, id) values ({c}, 6), ({c}, 6)

-- fails: 25P02
select * from loaded where {= a}

-- fails: 25P02
insert into loaded ({key}, id) values ({e}, 6)

commit

select * from loaded where id = 6

begin

insert into loaded ({key}, id) values ({a}, 7)

select * from loaded where {in a c} order by id, {key}

-- expect: refused: a system column
select count(ctid) from loaded

-- fails: 25P02
select * from loaded where {= a}

rollback

begin

insert into loaded ({key}, id) values ({a}, 7)

savepoint one

select count(*) from loaded

-- expect: refused: a system column
select count(ctid) from loaded

rollback to one

insert into loaded ({key}, id) values ({c}, 7)

commit

select * from loaded where id = 7

begin read only

select * from loaded where {in a c e}

-- fails: 25006
insert into loaded ({key}, id) values ({c}, 8)

rollback

begin isolation level repeatable read

select * from loaded where {= a}

select * from loaded where {= c}

commit

begin

update country set name = 'x' where code = 'de'

select o.id, c.name from orders o join country c on c.code = o.note where {o in a c e} and o.id = 1

rollback

select name from country where code = 'de'

begin

truncate loaded

select * from loaded

rollback

select * from loaded

-- Texts with several statements.

-- protocol: simple
insert into loaded ({key}, id) values ({a}, 10); insert into loaded ({key}, id) values ({c}, 10); select * from loaded where {= a} order by id

-- fails: 23505
-- protocol: simple
insert into loaded ({key}, id) values ({a}, 11); insert into loaded ({key}, id) values ({c}, 10); select 1

select * from loaded where id = 11

-- protocol: simple
begin; insert into loaded ({key}, id) values ({a}, 12); insert into loaded ({key}, id) values ({e}, 12); commit; select * from loaded where {= e} order by id

-- fails: 22012
-- protocol: simple
update loaded set note = 'z' where {= a}; select 1 / 0; update loaded set note = 'z' where {= c}

-- protocol: simple
select id from loaded where {= a} order by id; ; select id from loaded where {= c} order by id;

select * from loaded

-- protocol: pipeline
-- key: a
insert into loaded ({key}, id) values ({$1}, 20)
insert into loaded ({key}, id) values ({$1}, 21)
select id from loaded where {= $1} order by id

-- fails: 23505
-- protocol: pipeline
-- key: a
insert into loaded ({key}, id) values ({$1}, 22)
insert into loaded ({key}, id) values ({$1}, 22)
select id from loaded where {= $1} order by id

-- fails: 23505
-- protocol: pipeline
-- key: c
insert into loaded ({key}, id) values ({$1}, 23)
-- sync
insert into loaded ({key}, id) values ({$1}, 23)
-- sync
select id from loaded where {= $1} order by id

select * from loaded

truncate loaded

-- Cursors.

begin

declare c cursor for select id from orders where {= a} order by id

fetch c

fetch all from c

close c

-- Over several shards.

declare c scroll cursor for select {key}, id, note, amount from orders where {in a c e} order by id, {key}

fetch 2 from c

fetch backward all from c

move 3 in c

fetch relative 0 from c

fetch last from c

fetch absolute 2 from c

savepoint s

declare d cursor for select count(*), max(id) from orders

fetch all from d

rollback to s

-- fails: 34000
fetch d

rollback

begin

declare h cursor with hold for select id, amount from orders where {in a c e} order by id, amount

fetch h

commit

fetch 2 from h

close h

-- fails: 34000
fetch h
