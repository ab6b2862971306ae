-- INSERT … ON CONFLICT.

create table con (k bigint not null, n int not null, t text, hits int default 0, primary key (k, n))

create table con_ref (id int primary key, t text, hits int default 1)

create unique index con_text on con (k, lower(t))

-- router
select cleave.shard_tables('{schema}.con(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.con_ref')

insert into con values (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'c'), (4, 1, null)

insert into con values (1, 1, 'z') on conflict do nothing

insert into con values (1, 1, 'z'), (5, 1, 'e') on conflict do nothing returning *

insert into con values (2, 1, 'zz') on conflict (k, n) do nothing

insert into con values (1, 1, 'x'), (2, 1, 'y'), (6, 1, 'f') on conflict (k, n) do update set hits = con.hits + 1 returning *

insert into con values (1, 1, 'x') on conflict (k, n) do update set t = excluded.t

insert into con values (1, 1, 'x2'), (7, 1, 'g') on conflict on constraint con_pkey do update set t = excluded.t || con.t returning k, t

insert into con values (1, 1, 'q') on conflict (k, n) do update set t = 'w' where con.hits > 5

insert into con values (1, 1, 'q'), (2, 1, 'q') on conflict (k, n) do update set t = 'w' || con.k where con.hits > 0 returning k, n, t

insert into con as c values (3, 1, 'new') on conflict (k, n) do update set hits = c.hits + 10, t = upper(excluded.t) returning c.*

insert into con values (3, 2, 'NEW') on conflict (k, lower(t)) do update set hits = -1 returning *

insert into con values (3, 3, 'new') on conflict (k, lower(t)) do nothing

insert into con values (1, 1, 'x') on conflict (k, n) do update set (t, hits) = (excluded.t, 77) returning *

insert into con values (1, 1, 'x') on conflict (k, n) do update set (t, hits) = (select 'sub', 78) returning *

insert into con values (1, 1, 'x') on conflict (n, k) do update set hits = excluded.hits

insert into con select id, 1, owner from account where id < 10 on conflict (k, n) do nothing

insert into con select id, 1, owner from account where id < 12 on conflict (k, n) do update set hits = con.hits + 100 returning k, hits

insert into con select account, n, kind || n from entry where account < 4 on conflict (k, n) do update set hits = excluded.n

insert into con select d, 1, 'd' || d from digit on conflict do nothing

with x as (select id, a from sparse where a is not null) insert into con select id, a, 'x' || id from x on conflict (k, n) do update set t = excluded.t

insert into con values (1, 1, 'x') on conflict (k, n) do update set hits = (select count(*) from region)

select * from con order by k, n

-- fails: 21000
insert into con values (1, 1, 'p'), (1, 1, 'q') on conflict (k, n) do update set hits = 0

-- fails: 21000
insert into con values (1, 1, 'p'), (2, 1, 'q'), (2, 1, 'r') on conflict (k, n) do update set hits = 0

insert into con values (1, 9, 'p'), (1, 9, 'q') on conflict do nothing returning t

-- fails: 42P10
insert into con values (1, 1, 'p') on conflict (t) do nothing

-- fails: 42601
insert into con values (1, 1, 'p') on conflict do update set hits = 0

-- fails: 42704
insert into con values (1, 1, 'p') on conflict on constraint nothing do nothing

-- fails: 42P01
insert into con values (1, 1, 'p') on conflict (k, n) do update set hits = other.hits

-- fails: 42702
insert into con values (1, 1, 'p') on conflict (k, n) do update set hits = hits

-- fails: 23505
insert into con values (1, 1, 'x9'), (3, 5, 'new') on conflict (k, n) do update set hits = 1

insert into con_ref values (1, 'one'), (2, 'two')

insert into con_ref values (1, 'uno'), (3, 'tre') on conflict (id) do update set t = excluded.t, hits = con_ref.hits + 1 returning *

insert into con_ref values (1, 'x') on conflict do nothing

insert into con_ref select id, owner from account where id < 5 on conflict (id) do update set t = excluded.t returning *

select * from con_ref order by id

-- param: int8 1
-- param: int4 1
-- param: text par
insert into con (k, n, t) values ($1, $2, $3) on conflict (k, n) do update set t = excluded.t returning *

select count(*), sum(hits), max(t) from con
