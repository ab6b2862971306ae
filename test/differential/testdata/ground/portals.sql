-- Cursors, and rows by portions.

begin

declare one cursor for select id, owner from account order by id

-- ordered
fetch one

-- ordered
fetch 3 from one

-- ordered
fetch forward 2 in one

move 5 in one

-- ordered
fetch next from one

-- ordered
fetch all from one

-- ordered
fetch one

close one

declare two scroll cursor for select id from account order by id

-- ordered
fetch last from two

-- ordered
fetch prior from two

-- ordered
fetch backward 3 from two

-- ordered
fetch first from two

-- ordered
fetch absolute 10 from two

-- ordered
fetch relative -2 from two

-- ordered
fetch absolute -1 from two

move backward all in two

-- ordered
fetch forward all from two

close two

declare three cursor for select region, count(*) from account group by region order by region

-- ordered
fetch 2 from three

savepoint s

-- ordered
fetch 1 from three

rollback to s

-- ordered
fetch 1 from three

close all

declare four cursor for select e.place, a.id from event e join account a on a.id = e.n order by 1, 2

-- ordered
fetch 4 from four

-- expect: different: the view shows the cursors of one shard's session
select name, is_scrollable, is_holdable from pg_cursors order by name

commit

begin

declare held cursor with hold for select id, a from sparse order by id

-- ordered
fetch 2 from held

commit

-- ordered
fetch 3 from held

close held

begin

declare five cursor for select id from account where id = 7

-- ordered
fetch 1 from five

-- expect: refused: WHERE CURRENT OF is not supported yet on a sharded table
update account set owner = owner where current of five

rollback

begin

declare six no scroll cursor for select id from account order by id

-- ordered
fetch 2 from six

-- fails: 55000
fetch prior from six

rollback

begin

-- fails: 34000
fetch 1 from nothing

rollback

-- fails: 25P01
declare seven cursor for select id from account

-- fails: 34000
close nothing

-- rows: 2
select id from account where id < 6 order by id

-- rows: 3
select region, count(*) from account group by region order by region

-- rows: 4
select e.place, e.n from event e where e.n < 4 order by at

-- rows: 100
select id from account order by balance, id

-- rows: 5
select a.id, n.body from account a left join note n on n.account = a.id where a.id < 9 order by 1
