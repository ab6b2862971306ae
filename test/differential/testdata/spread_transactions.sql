-- Transactions over several shards: what a client sees is what one server shows, whichever of the keys share a shard.

create table account (owner int not null primary key, balance int not null check (balance >= 0))

-- router
select cleave.shard_table('{schema}.account', 'owner')

create table note (owner int, number int, constraint once unique (owner, number) deferrable initially deferred)

-- router
select cleave.shard_table('{schema}.note', 'owner')

create table rate (name text primary key, percent int)

-- router
select cleave.create_reference_table('{schema}.rate')

insert into account values (1, 100), (2, 100), (3, 100), (4, 100), (5, 100), (6, 100), (7, 100), (8, 100)

insert into rate values ('low', 1), ('high', 9)

-- Money goes from shard to shard.

begin

update account set balance = balance - 10 where owner = 1

update account set balance = balance + 10 where owner = 2

select owner, balance from account where owner = 1

select owner, balance from account where owner = 2

commit

-- unordered
select owner, balance from account where owner in (1, 2, 3)

-- And comes back.

begin

update account set balance = 0 where owner = 1

update account set balance = 0 where owner = 2

update account set balance = 0 where owner = 3

update account set balance = 0 where owner = 4

rollback

-- unordered
select owner, balance from account where owner in (1, 2, 3, 4)

-- A statement fails on one of them, and nothing goes on anywhere.

begin

update account set balance = balance + 1000 where owner = 3

update account set balance = balance - 1000 where owner = 4

select balance from account where owner = 3

update account set balance = 1 where owner = 5

savepoint late

commit

-- unordered
select owner, balance from account where owner in (3, 4, 5)

-- Savepoints span the shards, also those that had not been reached when they were set.

begin

update account set balance = balance + 1 where owner = 1

savepoint a

update account set balance = balance + 1 where owner = 2

savepoint b

update account set balance = balance + 1 where owner = 3

update account set balance = balance - 1000 where owner = 4

update account set balance = 1 where owner = 5

rollback to b

update account set balance = balance + 1 where owner = 6

rollback to a

update account set balance = balance + 1 where owner = 7

release a

release b

rollback to savepoint a

commit

-- unordered
select owner, balance from account where owner in (1, 2, 3, 4, 5, 6, 7)

-- The same without the mistake at its end, and with a name used twice.

begin

update account set balance = balance + 1 where owner = 1

savepoint a

update account set balance = balance + 1 where owner = 2

savepoint a

update account set balance = balance + 1 where owner = 3

rollback to a

release a

update account set balance = balance + 1 where owner = 4

rollback to a

update account set balance = balance + 1 where owner = 8

release a

commit

-- unordered
select owner, balance from account where owner in (1, 2, 3, 4, 8)

-- One after the other.

begin isolation level repeatable read

update account set balance = balance + 1 where owner = 1

update account set balance = balance + 1 where owner = 2

commit and chain

show transaction_isolation

update account set balance = balance + 1 where owner = 3

update account set balance = balance + 1 where owner = 4

rollback and chain

show transaction_isolation

update account set balance = balance + 1 where owner = 5

update account set balance = balance + 1 where owner = 6

commit

-- unordered
select owner, balance from account where owner in (1, 2, 3, 4, 5, 6)

-- Who only reads.

begin read only

select balance from account where owner = 1

select balance from account where owner = 2

update account set balance = 1 where owner = 3

rollback

begin isolation level serializable read only deferrable

select balance from account where owner = 1

-- expect: refused: Each shard alone would be serializable
select balance from account where owner in (1, 2, 3, 4, 5, 6, 7, 8)

rollback

set default_transaction_read_only = on

begin

update account set balance = 1 where owner = 1

rollback

begin read write

update account set balance = balance + 1 where owner = 1

update account set balance = balance + 1 where owner = 2

commit

reset default_transaction_read_only

-- What others see, and do not.

begin

update account set balance = 11 where owner = 1

update account set balance = 12 where owner = 2

-- session: other

select balance from account where owner = 1

select balance from account where owner = 2

begin isolation level repeatable read

select balance from account where owner = 3

-- session: main

commit

-- session: other

select balance from account where owner = 3

commit

select balance from account where owner = 1

select balance from account where owner = 2

-- A row that somebody else has changed, behind a transaction's snapshot.

-- session: main

begin isolation level repeatable read

select balance from account where owner = 1

update account set balance = balance + 1 where owner = 5

-- session: other

update account set balance = 21 where owner = 1

-- session: main

update account set balance = 22 where owner = 1

update account set balance = balance + 1 where owner = 6

commit

-- unordered
select owner, balance from account where owner in (1, 5, 6)

-- Locks.

begin

select balance from account where owner = 1 for update

select balance from account where owner = 2 for update

-- session: other

select balance from account where owner = 1 for update skip locked

select balance from account where owner = 2 for update nowait

select balance from account where owner = 3 for update nowait

-- session: main

commit

-- A shared table and others.

begin

update rate set percent = percent + 1 where name = 'low'

update account set balance = balance + 1 where owner = 1

update account set balance = balance + 1 where owner = 2

select percent from rate where name = 'low'

commit

begin

update rate set percent = 50 where name = 'low'

update account set balance = balance - 10000 where owner = 2

commit

-- unordered
select * from rate

-- Settings.

begin

set local timezone = 'Asia/Tokyo'

select current_setting('timezone') from account where owner = 1

update account set balance = balance + 1 where owner = 1

set timezone = 'Europe/Paris'

update account set balance = balance + 1 where owner = 2

savepoint a

set timezone = 'America/Lima'

select current_setting('timezone') from account where owner = 2

rollback to a

select current_setting('timezone') from account where owner = 3

commit

show timezone

select current_setting('timezone') from account where owner = 4

reset timezone

-- Prepared statements.

prepare add (int, int) as update account set balance = balance + $2 where owner = $1

begin

execute add(1, 5)

execute add(2, 5)

execute add(3, -100000)

execute add(4, 5)

rollback

begin

execute add(1, 5)

execute add(2, 5)

commit

deallocate add

-- unordered
select owner, balance from account where owner in (1, 2, 3, 4)

-- Many rows at once.

begin

insert into account values (11, 1), (12, 2), (13, 3), (14, 4)

update account set balance = balance + 1 where owner in (11, 12, 13, 14)

savepoint a

delete from account where owner in (11, 12)

rollback to a

delete from account where owner in (13, 14)

commit

-- unordered
select owner, balance from account where owner in (11, 12, 13, 14)

begin

insert into account values (15, 1), (16, 2), (11, 3), (17, 4)

select balance from account where owner = 1

end

-- unordered
select owner, balance from account where owner in (15, 16, 17)

-- What is checked at the end.

begin

insert into note values (1, 1)

insert into note values (2, 1)

insert into note values (2, 1)

insert into note values (3, 1)

commit

-- unordered
select * from note

begin

insert into note values (1, 1), (2, 1), (2, 1), (3, 1)

savepoint a

set constraints all immediate

rollback to a

delete from note where owner = 2

insert into note values (2, 2)

commit

-- unordered
select * from note

-- A whole script.

-- protocol: simple
begin; update account set balance = balance + 1 where owner = 1; update account set balance = balance + 1 where owner = 2; commit

-- protocol: simple
begin; update account set balance = balance + 1 where owner = 1; update account set balance = balance - 100000 where owner = 2; commit

commit

-- unordered
select owner, balance from account where owner in (1, 2)

-- Out of turn.

commit

rollback

begin

begin

update account set balance = balance + 1 where owner = 1

begin

update account set balance = balance + 1 where owner = 2

start transaction

commit

rollback to nowhere

savepoint nowhere

begin

update account set balance = balance + 1 where owner = 1

update account set balance = balance + 1 where owner = 2

release nowhere

commit

begin

update account set balance = balance + 1 where owner = 1

set transaction isolation level serializable

update account set balance = balance + 1 where owner = 2

commit

begin

set transaction isolation level serializable

update account set balance = balance + 1 where owner = 1

show transaction_isolation

-- expect: refused: Each shard alone would be serializable
update account set balance = balance + 1 where owner in (1, 2, 3, 4, 5, 6, 7, 8)

rollback

-- unordered
select owner, balance from account where owner in (1, 2, 3, 4, 5, 6, 7, 8)
