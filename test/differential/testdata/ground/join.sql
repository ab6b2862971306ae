-- Joins of all kinds, between all kinds of tables.

select a.id, e.n from account a join entry e on e.account = a.id where e.amount > 20 order by 1, 2

select a.id, e.n from account a, entry e where e.account = a.id and e.kind = 'fee' order by 1, 2

select * from sparse cross join digit where d > 7 order by id, d

select s.id, t.id from sparse s join sparse t on s.a = t.a order by 1, 2

select s.id, t.id from sparse s left join sparse t on s.a = t.a and s.id < t.id order by 1, 2

select s.id, t.id from sparse s full join sparse t on s.id = t.a order by 1, 2

select s.id, t.id from sparse s right join sparse t on s.id = t.a order by 1, 2

select id, a, d from sparse left join digit on d = a order by id

select id, a, d from sparse right join digit on d = a order by d, id

select id, a, d from sparse full join digit on d = a order by d, id

select * from sparse join (select id, d from sparse, digit where d = id) x using (id) order by id

select * from sparse natural join (select 2 as a, 'y' as b) x order by id

select * from sparse natural left join (select 2 as a, 'y' as b) x order by id

select sparse.id, x.a, a from sparse left join (values (1), (2)) x (a) using (a) order by id

select id, a from sparse full join (values (1), (9)) x (a) using (a) order by 1, 2

select j.* from (sparse s join digit d on d.d = s.a) as j order by id

select row_to_json(j) from (sparse s join digit d on d.d = s.a) as j order by id

select j, count(j) over () from (account a join note n on n.account = a.id) as j (x, y) where x < 5 order by x

select u.id, s.b, t.b from sparse s join sparse t using (id) as u order by u.id

select a.id, n.body from account a join note n on n.account = a.id order by 1

select a.id, n.body from account a left join note n on n.account = a.id where a.id < 9 order by 1

select n.id, a.owner from note n left join account a on a.id = n.account and a.active order by 1

select a.id, r.name, p.name from account a left join region r on r.code = a.region left join region p on p.code = r.parent order by a.id

select r.code, count(a.id) from region r left join account a on a.region = r.code group by r.code order by 1

select e.place, a.id from event e join account a on a.id = e.n where e.place < 'c' order by 1, 2

select e.place, a.owner, n.body from event e join account a on a.id = e.n join note n on n.account = a.id order by e.place, a.id

select e.place, m.id from event e left join many m on m.id = e.n * 50 order by e.place collate "C", e.n

select count(*) from account a, event e, region r where a.region = r.code

select a.id, x.total from account a join lateral (select sum(amount) as total from entry e where e.account = a.id) x on true where x.total > 25 order by 1

select a.id, x.n from account a cross join lateral (select n from entry e where e.account = a.id order by amount desc, n limit 1) x order by 1

select a.id, x.* from account a left join lateral (select e.n, e.at from event e where e.n = a.id and e.place = 'b') x on true where a.id < 10 order by 1

select d, x.id from digit, lateral (select id from sparse where id > d order by id limit 2) x order by 1, 2

select a.id, g from account a, generate_series(1, a.id) g where a.id < 4 order by 1, 2

select a.id, t from account a, unnest(a.tags) t where a.id < 5 order by 1, 2

select a.id, t.tag, t.nr from account a, unnest(a.tags) with ordinality t (tag, nr) where a.id < 4 order by 1, 3

select s.id from sparse s where exists (select from entry e where e.account = s.id and e.n = s.a) order by 1

select s.id from sparse s where not exists (select from event e where e.n = s.id) order by 1

select s.id, t.id from sparse s join sparse t on s.a < t.a where s.b = t.b order by 1, 2

select s.id, t.id, u.id from sparse s join sparse t on t.id = s.id + 1 join sparse u on u.id = t.id + 1 order by 1

select s.id, h.id from sparse s left join hollow h on h.id = s.id order by 1

select s.id, h.id from hollow h right join sparse s on h.a = s.a order by 1

select count(*) from hollow h full join sparse s on h.a = s.a

select m.ten, count(*) from many m join digit on d = ten group by m.ten having count(*) > 1 order by 1 limit 3

select m1.id, m2.id from many m1 join many m2 on m1.hundred = m2.hundred and m1.id < m2.id where m1.ten = 7 and m1.id < 30 order by 1, 2

select x.id, y.c from (select id, region from account) x join (select region, count(*) as c from account group by region) y using (region) order by 1

select coalesce(x.id, y.n), x.o, y.w from (select id, owner as o from account where id < 5) x full join (select n, weight as w from event where place = 'aa') y on x.id = y.n order by 1

select a.id, b.id from account a left join account b on b.id = a.id + 15 and b.active where a.id between 1 and 8 order by 1

select * from (select 1 as x) one left join sparse on sparse.a = one.x and sparse.c order by id

select * from digit left join (sparse join hollow using (id)) on digit.d = sparse.a where d < 2 order by d

select t.id from sparse s, sparse t where s.id = t.a and s.b is null order by 1

select s.id, r.code from sparse s left join (region r join digit on d = 1) on r.parent is null and s.a = d order by 1, 2

select join_alias.id, join_alias.n from (account a join entry e on e.account = a.id) as join_alias where join_alias.id = 2 order by n

-- fails: 42P01
select a.id from account a, lateral (select z.id) x, sparse z

-- fails: 42702
select id from sparse s join sparse t on s.id = t.id

-- fails: 42703
select * from sparse join digit using (a)

-- fails: 42712
select * from sparse s, digit s

-- Rows and names that are easily mistaken.

select j.* from (sparse s left join digit d on d.d = s.a) as j where j.d is null order by id

select to_jsonb(j) - 'info' from (account a join note n on n.account = a.id) as j (x) where x < 5 order by x

select count(j), count(distinct j.b) from (sparse join digit on d = a) j

select s, t from sparse s join sparse t on t.id = s.id + 1 where s.id < 3 order by s.id

select (select count(*) from digit where d < j.id) from (sparse s join digit x on x.d = s.a) j order by j.id
