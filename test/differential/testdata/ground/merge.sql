-- MERGE.

create table goal (k bigint primary key, v int, t text)

create table src (k bigint primary key, d int, t text)

create table goal_ref (id int primary key, t text)

-- router
select cleave.shard_tables('{schema}.goal(k), {schema}.src(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.goal_ref')

insert into goal select i, i * 10, 'g' || i from generate_series(1, 8) i

insert into src select i, i, 's' || i from generate_series(5, 12) i

merge into goal g using src s on g.k = s.k when matched then update set v = g.v + s.d

merge into goal g using src s on g.k = s.k when matched then update set v = g.v + s.d when not matched then insert values (s.k, s.d, s.t)

merge into goal using src on goal.k = src.k when matched and src.d > 10 then delete when matched then update set t = goal.t || src.t when not matched then do nothing

select * from goal order by k

merge into goal g using (values (30, 'x'), (31, 'y'), (32, null), (1, 'z')) as s (k, n) on s.k = g.k when matched then update set t = n when not matched and s.n is not null then insert (t, k) values (s.n, s.k)

-- expect: refused: is compared with a value of another type
merge into goal g using (values (33.4, 'x'), (31, 'w'), (2.0, 'v')) as s (k) on s.k = g.k when matched then update set t = column2 when not matched then insert (t, k) values (column2, k)

-- fails: 23502
merge into goal g using (values (40, 1), (null, 2), (41, 3)) as s (k, d) on s.k = g.k when not matched then insert (v, k) values (d, s.k)

merge into goal g using (select i, i * 2 from generate_series(50, 56) i) as s (k, d) on s.k = g.k when matched then delete when not matched then insert (v, k) values (d, s.k)

-- fails: 21000
merge into goal g using (values (50, 1), (52, 2), (50, 3)) as s (k, d) on s.k = g.k when matched then update set v = d

-- fails: 23505
merge into goal g using (values (60, 1), (61, 2), (60, 3)) as s (k, d) on s.k = g.k when not matched then insert (v, k) values (d, s.k)

merge into goal g using region r on g.t = r.code when matched then update set v = 0 when not matched then do nothing

select * from goal order by k

merge into goal g using (values (1::bigint, 100), (20, 200)) as s (k, d) on g.k = s.k when matched then update set v = d when not matched then insert (k, v) values (s.k, s.d)

merge into goal g using (select account as k, sum(amount) as total from entry group by account) s on g.k = s.k when matched then update set v = s.total

merge into goal g using note s on g.k = s.account when matched then update set t = s.body when not matched then insert (k, t) values (s.account, s.body)

merge into goal g using region r on g.t = r.code when matched then delete

merge into goal g using digit s on g.k = s.d when not matched then insert (k, v) values (d, d)

-- expect: refused: In the way: rows of ground.goal whose key is not that of ground.src
merge into goal g using src s on g.k = s.k and s.d < 7 when matched then do nothing when not matched and s.d = 60 then insert (k, v) values (s.k + 0, -1)

select * from goal order by k

merge into only goal g using src s on g.k = s.k when matched and false then delete

merge into goal as g using src as s on s.k = g.k and g.v > 0 when matched then update set (v, t) = (0, 'zero')

with x as (select k from src where d > 10) merge into goal g using x on g.k = x.k when matched then update set t = 'with'

merge into goal g using src s on g.k = s.k when matched then update set v = default

merge into goal g using (select 3::bigint as k) s on g.k = s.k when matched then update set v = 33 when not matched then insert values (s.k)

merge into goal g using hollow h on g.k = h.id when matched then delete when not matched then insert values (h.id)

delete from goal where k in (9, 10)

-- expect: different: refused before the key is found to be NULL (23502)
-- fails: 23502
merge into goal g using src s on g.k = s.k when not matched then insert default values

select * from goal order by k

-- fails: 21000
merge into goal g using (values (1::bigint), (1)) s (k) on g.k = s.k when matched then update set v = 1

merge into goal g using (values (1), (2)) s (x) on g.v = s.x when matched then update set t = 'x' || s.x

-- fails: 23505
merge into goal g using src s on g.k = s.k and false when not matched then insert (k) values (s.k)

-- fails: 42703
merge into goal g using src s on g.k = s.k when matched then update set nothing = 1

-- fails: 42601
merge into goal g using src s on g.k = s.k when matched then do nothing when matched then delete

-- fails: 42P01
merge into goal g using src s on g.k = s.k when matched then update set v = other.v

insert into goal_ref values (1, 'a'), (2, 'b')

merge into goal_ref r using (values (1, 'x'), (3, 'y')) s (id, t) on r.id = s.id when matched then update set t = s.t when not matched then insert values (s.id, s.t)

merge into goal_ref r using src s on r.id = s.k when not matched then insert values (s.k, s.t)

merge into goal_ref r using account a on r.id = a.id when matched then update set t = a.owner

select * from goal_ref order by id

-- param: int8 2
-- param: int4 5
merge into goal g using (select $1::bigint as k, $2::int as v) s on g.k = s.k when matched then update set v = s.v when not matched then insert values (s.k, s.v)

select count(*), sum(v), count(t) from goal
