-- Sharded tables with more to them: types of their own, generated columns, constraints that wait for COMMIT.

create type mood as enum ('sad', 'fine', 'glad')

create domain positive as int check (value > 0)

create type pair as (a int, b text)

create table country (code text primary key, name text)

create table person (id bigint primary key, name text not null, feels mood default 'fine', feelings mood[], rank positive, both_of pair, code text, upper_name text generated always as (upper(name)) stored, noted text)

create table visit (person_id bigint not null, n int not null, primary key (person_id, n), foreign key (person_id) references person on delete cascade deferrable initially deferred)

alter table person add constraint lives foreign key (code) references country deferrable initially deferred

-- router
select cleave.reference_table('{schema}.country')

-- router
select cleave.shard_tables('{schema}.person(id), {schema}.visit(person_id)')

insert into country values ('de', 'Germany'), ('fr', 'France')

insert into person (id, name, feels, feelings, rank, both_of, code) values (1, 'Ann', 'glad', '{sad,glad}', 1, row(1, 'x'), 'de') returning id, feels, feelings::text, rank, both_of, upper_name

insert into person (id, name, feels) values (2, 'Bob', default), (3, 'Cid', 'sad'), (4, 'Dan', 'glad'::mood), (5, 'Eve', null), (6, 'Fay', 'fine'), (7, 'Gus', 'fine'), (8, 'Hal', 'sad') returning id, feels, upper_name, noted

-- unordered
select id, name, feels, rank, both_of, code, upper_name, noted from person

-- unordered
select id, feels, feelings::text, both_of from person where id in (1, 2, 3, 4, 5, 6, 7, 8)

-- unordered
select id from person where feels > 'sad'

select feels, count(*) from person where id = 1 group by feels

-- param: ? glad
update person set feels = $1 where id = 2 returning feels

-- param: ? glad
-- unordered
select id, feels from person where feels = $1

-- parse: s
select id, feels, rank, both_of from person where id = any ($1)

-- bind: s
-- param: _int8 {1}

-- unordered
-- bind: s
-- param: _int8 {1,2,3,4,5,6,7,8}

-- close: s

insert into person (id, name, feels) values (9, 'Ida', 'angry')

-- late
insert into person (id, name, feels) values (9, 'Ida', 'sad'), (10, 'Jim', 'angry'), (11, 'Kay', 'sad')

insert into person (id, name, rank) values (9, 'Ida', 0), (10, 'Jim', 1), (11, 'Kay', 1)

insert into person (id, name, upper_name) values (9, 'Ida', 'x')

insert into person (id, name) values (9, null), (10, 'Jim'), (11, 'Kay')

-- unordered
select id from person where id > 8

-- Constraints that wait.

insert into person (id, name, code) values (9, 'Ida', 'xx')

-- protocol: extended
insert into person (id, name, code) values (9, 'Ida', 'de'), (10, 'Jim', 'fr'), (11, 'Kay', 'xx'), (12, 'Lea', 'de')

-- unordered
select id from person where id > 8

begin

insert into visit values (20, 1)

insert into visit values (21, 1), (22, 1), (23, 1), (24, 1)

insert into person (id, name) values (20, 'Max'), (21, 'Ned'), (22, 'Oda'), (23, 'Pam'), (24, 'Quy')

commit

begin

insert into visit values (31, 1), (32, 1), (33, 1), (34, 1), (35, 1), (36, 1)

insert into person (id, name) values (31, 'Ray'), (32, 'Sam'), (33, 'Tim'), (34, 'Una'), (35, 'Vic')

commit

-- unordered
select person_id from visit

delete from person where id in (20, 21, 22)

-- unordered
select p.id, v.n from visit v join person p on p.id = v.person_id

update person set name = 'Zoe' where id in (1, 2, 3)

-- unordered
select id, upper_name from person where id < 4

-- Transactions that go on.

begin

update person set rank = 5 where id = 1

update person set rank = 5 where id in (2, 3, 4)

commit and chain

update person set rank = 6 where id in (5, 6, 7)

rollback and chain

select rank from person where id = 5

end

-- unordered
select id, rank from person where id < 8

begin

set local timezone = 'Asia/Tokyo'

select current_setting('timezone') from person where id = 1

-- unordered
select current_setting('timezone') from person where id in (1, 2, 3, 4, 5, 6)

savepoint s

set local timezone = 'Europe/Paris'

-- unordered
select current_setting('timezone') from person where id in (1, 2, 3, 4, 5, 6)

rollback to s

-- unordered
select current_setting('timezone') from person where id in (1, 2, 3, 4, 5, 6)

show timezone

commit

-- unordered
select current_setting('timezone') from person where id in (1, 2, 3, 4, 5, 6)

begin isolation level repeatable read, read only

-- unordered
select current_setting('transaction_isolation'), current_setting('transaction_read_only') from person where id in (1, 2, 3, 4, 5, 6)

show transaction_isolation

update person set rank = 1 where id in (1, 2, 3, 4, 5, 6)

rollback

-- Texts that are hard to cut.

insert into person (id, name) values /* ( */ (40, 'a), (41, ''b'')'), -- ), (
(41, $$c), ($$) , (42, E'd\'), (') ,(43, upper('e') || ',' || (array['f', 'g'])[1]), (44, (select 'h' || name from country where code = 'de')), (45, coalesce(null, 'i'))   ; -- the end

-- unordered
select id, name from person where id >= 40 and id < 50

insert into person (id, name) values (50, 'x'), (51, 'y'), (52, 'z') on conflict (id) do update set name = excluded.name returning id, name

insert into person (id, name) values (50, 'X'), (53, 'Y'), (52, 'Z') on conflict (id) do update set name = excluded.name || person.name returning id, name

-- protocol: simple
insert into person (id, name) values (60, 'a'), (61, 'b'), (62, 'c'); update person set rank = 9 where id in (60, 61, 62); delete from person where id = 61; select id from person where id = 60

-- protocol: simple
insert into person (id, name) values (63, 'a'), (64, 'b'), (65, 'c'); insert into person (id, name) values (66, 'a'), (60, 'twice')

-- unordered
select id, rank from person where id >= 60

with gone as (delete from person where id = 60 returning *) select id, name from gone

truncate person, visit

-- unordered
select * from person

-- Code of a trigger's own may read what is on other shards.

create function note() returns trigger language plpgsql as $$ begin new.noted := tg_op; return new; end $$

create trigger note before insert on person for each row execute function note()

-- expect: refused: which may read or write sharded tables unseen
insert into person (id, name) values (1, 'Ann')

drop trigger note on person

insert into person (id, name) values (1, 'Ann')
