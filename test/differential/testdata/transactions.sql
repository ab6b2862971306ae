-- Blocks, savepoints, errors inside, and the warnings around them.

create table t (a int primary key, b text)

begin

insert into t values (1, 'one')

select * from t

commit

select * from t

begin work

insert into t values (2, 'two')

rollback work

select * from t

start transaction

insert into t values (3, 'three')

end

select * from t order by a

begin transaction

abort

-- Warnings.

commit

rollback

begin

begin

commit

-- A failed block.

begin

insert into t values (1, 'again')

select * from t

insert into t values (4, 'four')

commit

select * from t order by a

begin

select 1/0

rollback

begin

nonsense

rollback

begin

select nothing from t

end

-- Savepoints.

begin

insert into t values (5, 'five')

savepoint a

insert into t values (6, 'six')

savepoint b

insert into t values (7, 'seven')

rollback to savepoint b

insert into t values (8, 'eight')

release savepoint a

select * from t order by a

rollback to a

rollback

begin

savepoint a

select 1/0

select 1

rollback to a

select 1

savepoint a

savepoint a

release a

release a

release a

release a

rollback

savepoint outside

release outside

rollback to outside

begin

savepoint "Odd ""name"""

rollback to "Odd ""name"""

release "Odd ""name"""

rollback to nowhere

rollback

-- Isolation and access.

begin isolation level repeatable read

show transaction_isolation

select count(*) from t

commit

begin isolation level serializable, read only, deferrable

show transaction_read_only

insert into t values (9, 'nine')

rollback

begin read only

insert into t values (9, 'nine')

commit

begin

set transaction isolation level serializable

select count(*) from t

set transaction isolation level read committed

rollback

set transaction read only

begin read write

set transaction read only

show transaction_read_only

rollback

-- Chains.

begin isolation level repeatable read

insert into t values (10, 'ten')

commit and chain

show transaction_isolation

insert into t values (11, 'eleven')

rollback and chain

select a from t order by a

commit and no chain

commit and chain

rollback and chain

-- What must stand outside of a block.

begin

vacuum t

rollback

begin

create database {schema}

rollback

vacuum t

-- A transaction that another session does not see.

begin

insert into t values (12, 'twelve')

-- session: other

select a from t where a = 12

-- session: main

commit

-- session: other

select a from t where a = 12

-- session: main

begin isolation level repeatable read

select count(*) from t

-- session: other

insert into t values (13, 'thirteen')

-- session: main

select count(*) from t

update t set b = 'x' where a = 13

commit

select b from t where a = 13

-- Serialisation failures.

begin isolation level repeatable read

select b from t where a = 1

-- session: other

update t set b = 'other' where a = 1

-- session: main

update t set b = 'main' where a = 1

commit

select b from t where a = 1

-- Deferred constraints fail at COMMIT.

create table d (a int unique deferrable initially deferred)

begin

insert into d values (1)

insert into d values (1)

commit

select count(*) from d

begin

insert into d values (1)

insert into d values (1)

set constraints all immediate

rollback

-- A session that ends in the middle.

-- session: other

begin

insert into t values (14, 'fourteen')

-- end

-- session: main

select count(*) from t where a = 14

-- What a transaction says of itself.

begin

select now() = transaction_timestamp(), pg_current_xact_id_if_assigned() is null

insert into t values (15, 'fifteen')

select pg_current_xact_id_if_assigned() is null

commit

drop table t, d
