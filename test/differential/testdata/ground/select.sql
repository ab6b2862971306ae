-- Columns, conditions, expressions, sorting.

select * from account where id < 6 order by id

table sparse order by id

select id, owner from account where id > 20 order by id desc

select owner, id from account where active order by owner using <, id using >

select a.* from account a where a.id between 3 and 7 and a.owner is not null order by a.id

select a.id, a.owner || '!' as who, upper(kind) from account a where kind = 'gold' order by 2 nulls first, 1

select id, balance from account order by balance desc, id limit 5

select id, balance from account order by balance nulls first, id offset 25

select id, a, b from sparse order by a nulls first, b nulls last, id

select id, a, b from sparse order by a desc nulls last, b desc nulls first, id

select id from sparse order by c, a desc, id

select id, a + 1 as next from sparse where a + 1 > 1 order by next, id

select id from sparse order by -id

select id, a from sparse order by coalesce(a, 100), id

select id from sparse where a in (1, 2) and b is null order by id

select id from sparse where (a, b) = (2, 'y') order by id

select id from sparse where (a, b) < (2, 'y') order by id

select id from sparse where row(a, b) is null order by id

select id from sparse where row(a, b) is not null order by id

select id from sparse where a is distinct from 1 order by id

select id from sparse where b is not distinct from null order by id

select id from sparse where c is unknown order by id

select id from sparse where c is not true order by id

select id from account where owner like '%e' or owner ilike 'B%' order by id

select id from account where owner similar to '(ann|cid)' order by id

select id, owner from account where owner ~ '^[A-Z]' order by owner, id

select id from many where id between symmetric 12 and 5 order by id

select word, id from many where ten = 3 and hundred < 20 order by word desc, id

select 1 as one, 'x' as x, null as nothing from account where id = 3

select 1 from account where false

select from sparse

select count(*) from (select from sparse) s

select account.id, account.owner from account, (values (3), (5), (77)) v (id) where account.id = v.id order by 1

select * from (values (1, 'a'), (2, 'b')) v (n, t) join sparse on sparse.id = v.n order by n

values (1, 'x'), (2, 'y') order by 1 desc

select v.* from (values (1, 2), (3, 4)) v, hollow

select * from hollow

-- expect: refused: a statement over several shards is not supported yet
select distinct tableoid = 'account'::regclass from account

select a from account a where id = 4

select (a).owner, (a).balance from account a where id in (4, 5) order by id

select id, case when balance > 300 then 'rich' when balance < 0 then 'poor' end as what from account order by id

select greatest(a, 1), least(a, 1), id from sparse order by id

select nullif(a, 1), coalesce(b, 'none'), id from sparse order by id

select id as "Id", owner "The Owner" from account order by "The Owner" nulls first, "Id" limit 4

select id from account order by random() is null, id limit 3

select current_user = owner, id from account where id < 4 order by id

-- fails: 42703
select nothing from account

-- fails: 42P01
select * from nowhere join account using (id)

-- fails: 42702
select id from account a, entry e, note where a.id = e.account

-- fails: 42804
select id from account where owner

-- fails: 42883
select id from account where owner + 1 = 2

-- fails: 22012
select id / (a - a) from sparse where a is not null

-- fails: 22P02
select owner::int from account where owner = 'ann'
