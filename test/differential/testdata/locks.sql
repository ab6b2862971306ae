-- Advisory locks, and locks of tables and rows.

select pg_advisory_lock(1)

select pg_try_advisory_lock(1)

-- session: other

select pg_try_advisory_lock(1)

select pg_try_advisory_lock_shared(1)

select pg_try_advisory_lock(2)

-- session: main

select pg_advisory_unlock(1)

select pg_advisory_unlock(1)

select pg_advisory_unlock(1)

-- session: other

select pg_try_advisory_lock(1)

select pg_advisory_unlock_all()

-- session: main

select pg_advisory_lock(1, 2), pg_advisory_lock_shared(3)

-- session: other

select pg_try_advisory_lock(1, 2), pg_try_advisory_lock_shared(3), pg_try_advisory_lock(3)

-- session: main

select pg_advisory_unlock_all()

begin

select pg_advisory_xact_lock(5)

-- session: other

select pg_try_advisory_xact_lock(5)

-- session: main

commit

-- session: other

begin

select pg_try_advisory_xact_lock(5)

rollback

-- session: main

select pg_advisory_lock(6)

-- end

-- session: other

select pg_advisory_lock(6), pg_advisory_unlock(6)

-- session: main

create table t (a int primary key, b text)

insert into t values (1, 'one'), (2, 'two')

lock table t

begin

lock table t in exclusive mode nowait

-- session: other

begin

lock table t in share mode nowait

rollback

select count(*) from t

-- session: main

commit

begin

select * from t where a = 1 for update

-- session: other

select * from t order by a for update skip locked

select * from t where a = 1 for share nowait

select * from t where a = 2 for no key update nowait

select * from t where a = 1 for key share skip locked

-- session: main

rollback

drop table t
