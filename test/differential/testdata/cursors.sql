-- Cursors.

create table t as select i as a, 'row ' || i as b from generate_series(1, 20) i

declare c cursor for select * from t order by a

begin

declare c cursor for select * from t order by a

fetch c

fetch 3 from c

fetch forward 2 from c

fetch next in c

move 5 from c

fetch 2 c

fetch backward 1 from c

fetch all from c

fetch c

close c

fetch c

rollback

begin

declare c scroll cursor for select * from t order by a

fetch last from c

fetch prior from c

fetch first from c

fetch absolute 7 from c

fetch relative -2 from c

fetch backward all from c

move absolute 10 in c

fetch 0 from c

move all in c

commit

fetch c

begin

declare c no scroll cursor for select * from t order by a

fetch 2 from c

fetch backward 1 from c

rollback

-- Several, with savepoints.

begin

declare x cursor for select a from t order by a

savepoint s

declare y cursor for select b from t order by a

fetch x

fetch y

rollback to s

fetch x

fetch y

rollback

-- Updates through them.

begin

declare c cursor for select * from t where a = 5 for update

fetch c

update t set b = 'changed' where current of c

delete from t where current of c

select * from t where a = 5

rollback

-- With hold.

begin

declare h cursor with hold for select a from t order by a

fetch 2 from h

commit

fetch 2 from h

begin

fetch 1 from h

rollback

fetch 1 from h

select name, statement, is_holdable, is_scrollable from pg_cursors where name = 'h'

close h

fetch h

declare h cursor with hold for select 1

close all

fetch h

-- Binary cursors answer in binary whatever is asked for.

begin

declare b binary cursor for select a, b from t order by a

fetch 2 from b

commit

-- Errors in the middle.

begin

declare c cursor for select 1 / (3 - a) from t order by a

fetch 2 from c

fetch 1 from c

fetch 1 from c

rollback

close nothing

begin

declare c cursor for select 1

declare c cursor for select 2

rollback

declare h cursor with hold for select * from t

discard all

fetch h

drop table t
