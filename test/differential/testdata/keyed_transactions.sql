-- Transactions that stay with one key.

create table account (owner int not null primary key, balance int not null check (balance >= 0))

-- router
select cleave.shard_table('{schema}.account', 'owner')

insert into account values (1, 100)

insert into account values (2, 100)

begin

update account set balance = balance - 10 where owner = 1

select balance from account where owner = 1

commit

select balance from account where owner = 1

begin

update account set balance = 0 where owner = 1

rollback

select balance from account where owner = 1

begin

update account set balance = balance - 1000 where owner = 1

select balance from account where owner = 1

commit

begin

savepoint a

update account set balance = balance - 1000 where owner = 1

rollback to a

update account set balance = balance - 1 where owner = 1

release a

commit

select balance from account where owner = 1

begin isolation level repeatable read

select balance from account where owner = 1

-- session: other

update account set balance = balance + 5 where owner = 1

-- session: main

select balance from account where owner = 1

update account set balance = balance + 1 where owner = 1

rollback

begin

declare c cursor for select * from account where owner = 1

fetch c

fetch c

close c

commit

begin

set local timezone = 'Asia/Tokyo'

select balance, current_setting('timezone') from account where owner = 1

commit

select current_setting('timezone') from account where owner = 2

begin read only

update account set balance = 1 where owner = 1

rollback

begin

select balance from account where owner = 1 for update

-- session: other

select balance from account where owner = 1 for update skip locked

select balance from account where owner = 2 for update skip locked

-- session: main

commit

set statement_timeout = '50ms'

select pg_sleep(10) from account where owner = 1

reset statement_timeout

select balance from account where owner = 1

set search_path to pg_catalog

select balance from account where owner = 1

select balance from {schema}.account where owner = 1

reset search_path

select balance from account where owner = 1

-- protocol: simple
update account set balance = 50 where owner = 1; select balance from account where owner = 1

-- protocol: simple
update account set balance = 60 where owner = 1; select 1/0

select balance from account where owner = 1

-- protocol: simple
begin; update account set balance = 70 where owner = 1; commit

select balance from account where owner = 1
