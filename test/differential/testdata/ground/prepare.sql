-- Prepared statements.

prepare by_id (bigint) as select id, owner from account where id = $1

execute by_id (3)

execute by_id (4.4)

execute by_id ('5')

execute by_id (null)

prepare above as select id from account where id > $1 order by id

execute above (27)

execute above (length('x') + 27)

prepare counts (text, int) as select region, count(*) from account where region <> $1 group by region having count(*) > $2 order by region

execute counts ('nl', 0)

execute counts ('xx', 6)

prepare joined (int) as select a.id, n.body from account a join note n on n.account = a.id where n.id < $1 order by 1

execute joined (4)

execute joined (1)

prepare first (bigint) as select id from account order by balance desc, id limit $1

execute first (3)

execute first (0)

prepare wide (int, int) as select $1 + $2 as s, count(*) from sparse where a = $1 or a = $2

execute wide (1, 2)

prepare types (text, date, numeric, bool, text[]) as select id from account where owner = $1 and opened > $2 and balance > $3 and active is not distinct from $4 and tags is distinct from $5 order by id

execute types ('Bob', '2020-01-01', -1000, true, '{x}')

prepare arms as select id from sparse where a = $1 union select d from digit where d = $2 order by 1

execute arms (1, 9)

-- expect: different: the view shows the statements of one shard's session
select name, statement, parameter_types::text, from_sql from pg_prepared_statements order by name limit 2

deallocate first

-- fails: 26000
execute first (3)

-- fails: 42P05
prepare above as select 1

-- fails: 42601
execute above

-- fails: 22P02
execute above ('x')

-- expect: different: the error has the name that the shard knows the statement by
-- fails: 42601
execute by_id (1, 2)

-- fails: 42P18
prepare unknown as select $1 is null from account

-- fails: 42703
prepare wrong as select nothing from account

-- fails: 26000
deallocate nothing

deallocate all

-- parse: p
select id, owner, balance from account where balance > $1 and id < $2 order by id

-- bind: p
-- param: numeric 300
-- param: int8 12
-- bind: p
-- param: numeric 600
-- param: int8 31
-- close: p
-- parse: q
select region, sum(balance), $1::text as label from account group by region order by region

-- bind: q
-- param: text one
-- bind: q
-- param: text two
-- close: q
-- parse: r
select a.id, (select count(*) from event e where e.n = a.id and e.weight > $1) from account a where a.id < 8 order by 1

-- bind: r
-- param: float8 2.5
-- close: r
-- param: int4 5
-- param: ? nl
select id, $1 * 2 as twice from account where region = $2 order by id

-- param: ? 2020-06-01
select count(*) from account where opened > $1

-- param: ? gold
select max(id), $1 from account where kind = $1

-- fails: 42P18
select $1 from account where $2 is null

-- fails: 22P02
-- param: ? x
select id from account where id > $1
