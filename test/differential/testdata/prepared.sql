-- Prepared statements of SQL.

create table t (a int primary key, b text)

insert into t select i, 'row ' || i from generate_series(1, 10) i

prepare one as select * from t where a = $1

execute one(3)

execute one('4')

execute one(null)

execute one

execute one(1, 2)

execute one('x')

prepare one as select 1

deallocate one

execute one(3)

deallocate one

prepare two(int, text) as insert into t values ($1, $2) returning *

execute two(11, 'eleven')

execute two(11, 'eleven')

execute two(10 + 2, 'tw' || 'elve')

prepare "Odd ""name""" as select 'odd'

execute "Odd ""name"""

deallocate prepare "Odd ""name"""

prepare three(int) as update t set b = b || '!' where a > $1

execute three(8)

select * from t order by a

prepare four as delete from t where a = $1 or a = $2

execute four(11, 12)

prepare five as values (1), (2)

execute five

-- Inside transactions they are not rolled back.

begin

prepare six as select 6

rollback

execute six

begin

execute six

select 1/0

execute six

rollback

execute six

-- The table changes under them.

prepare seven as select * from t where a = 1

execute seven

alter table t add column c int

execute seven

deallocate seven

-- Many ways to use one.

explain (costs off) execute six

create table made as execute five

select * from made order by 1

prepare eight as select $1::int + $2::int as sum

execute eight(1, 2)

prepare nine(unknown) as select $1

execute nine('x')

prepare ten as select $1 || 'x'

execute ten('a')

prepare eleven as nonsense

prepare twelve as create table u (a int)

prepare thirteen as select 1; select 2

-- protocol: simple
prepare fourteen as select 14; execute fourteen; deallocate fourteen

-- Another session has its own.

-- session: other

execute six

prepare six as select 'other'

execute six

-- session: main

execute six

deallocate all

execute six

deallocate prepare all

prepare six as select 6

discard all

execute six

drop table t, made
