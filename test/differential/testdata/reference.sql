-- Reference tables: the same on every shard. A write reaches all of them.

create table country (code text primary key, name text)

create table visit (person bigint not null, id int, code text, primary key (person, id))

-- router
select cleave.reference_table('{schema}.country')

-- router
select cleave.shard_table('{schema}.visit', 'person')

select * from country

select count(*) from country

select * from country where code = 'fr'

select c.name from country c, country d where c.code = d.code

select name from country union all select code from country

with c as (select * from country) select count(*) from c

select exists (select from country)

insert into visit values (1, 1, 'fr')

select v.id, c.name from visit v left join country c on c.code = v.code where v.person = 1

select v.id, c.name from visit v join country c on c.code = v.code where v.person = 1

select c.name, v.id from country c left join visit v on v.person = 1 and v.code = c.code

select v.id from visit v where v.person = 1 and v.code not in (select code from country)

select (select count(*) from country), v.id from visit v where v.person = 1

update visit v set code = c.code from country c where c.code = v.code and v.person = 1

delete from visit v using country c where c.code = v.code and v.person = 1

explain (costs off, format json) select * from country where code = 'x'

-- param: text fr
select * from country where code = $1

begin

select id from visit where person = 1

select count(*) from country

select id from visit where person = 1

commit

insert into country values ('fr', 'France')

update country set name = 'x' returning *

select * from country

delete from country

truncate country

alter table country add column c int

drop table country

select * from country

-- A write that every shard would do in its own way.

create table moment (id int primary key, at timestamptz default now(), n int)

-- router
select cleave.reference_table('{schema}.moment')

insert into moment (id) values (1)

insert into moment values (2, now(), 1) returning id, at = now()

insert into moment values (3, null, random() * 10)

insert into moment select person + 3, null, 1 from visit

insert into moment values (5, '2024-01-01 00:00:00+00', 1) returning id, n

select id, at is null from moment order by id

select id, n from moment where id <> 3 order by id
