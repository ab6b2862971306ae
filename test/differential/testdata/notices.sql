-- What the server says besides.

do $$ begin raise notice 'hello'; end $$

do $$ begin raise notice 'one'; raise warning 'two'; raise info 'three'; raise log 'four'; raise debug 'five'; end $$

do language plpgsql $$ begin raise notice using message = 'm', errcode = '01234', detail = 'd', hint = 'h'; end $$

set client_min_messages = error

do $$ begin raise notice 'not heard'; end $$

set client_min_messages = debug1

do $$ begin raise debug 'heard'; end $$

reset client_min_messages

create table if not exists t (a int)

create table if not exists t (a int)

drop table if exists missing

drop schema if exists missing cascade

drop function if exists missing(int)

create view v as select * from t

drop table t

drop table t cascade

-- Notices come before what they belong to.

create function loud(i int) returns int language plpgsql as $$ begin raise notice 'row %', i; return i; end $$

select loud(i) from generate_series(1, 3) i

begin

do $$ begin raise notice 'inside'; raise exception 'and out' using errcode = 'CL999'; end $$

do $$ begin raise notice 'not run'; end $$

rollback

do $$ begin raise division_by_zero; end $$

do $$ begin raise exception 'with position' using hint = 'none'; end $$

-- protocol: simple
do $$ begin raise notice 'first'; end $$; select 1; do $$ begin raise notice 'second'; end $$

-- Long names are cut with a notice.

select 1 as abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz

-- Procedures and their transactions.

create procedure act(inout a int) language plpgsql as $$ begin raise notice 'acting on %', a; a := a + 1; end $$

call act(1)

create procedure commits() language plpgsql as $$ begin commit; raise notice 'committed'; end $$

call commits()

begin

call commits()

rollback

drop procedure commits()

drop procedure act(int)

drop function loud(int)
