-- Every type that a key can have, and how its values can be written.

create table by_int2 (k int2 primary key, v text)

create table by_int4 (k int primary key, v text)

create table by_text (k text primary key, v text)

create table by_varchar (k varchar(5) primary key, v text)

create table by_uuid (k uuid primary key, v text)

create table by_date (k date primary key, v text)

create table by_time (k timestamptz primary key, v text)

create table by_bytea (k bytea primary key, v text)

-- All at once, which takes a fraction of the time.

-- router
select cleave.shard_tables('{schema}.by_int2(k), {schema}.by_int4(k), {schema}.by_text(k), {schema}.by_varchar(k), {schema}.by_uuid(k), {schema}.by_date(k), {schema}.by_time(k), {schema}.by_bytea(k)')

insert into by_int2 values (1, 'one')

insert into by_int2 values (-32768, 'least') returning *

insert into by_int2 values (32768, 'too much')

insert into by_int2 values ('5', 'five')

select * from by_int2 where k = 1

select * from by_int2 where k = -32768

select * from by_int2 where k = 32768

select * from by_int2 where k = '5'

select * from by_int2 where k = 1::bigint

-- param: int2 5
select * from by_int2 where k = $1

-- param: int8 5
select * from by_int2 where k = $1

-- param: ? 5
update by_int2 set v = v || '!' where k = $1 returning *

-- param: int8 70000
select * from by_int2 where k = $1

insert into by_int4 values (2147483647, 'most')

insert into by_int4 values (2147483648, 'too much')

insert into by_int4 values (-1, 'minus') returning k

select * from by_int4 where k = 2147483647

select * from by_int4 where k = -1

select * from by_int4 where k = 2147483648

-- param: int4 -1
select * from by_int4 where k = $1

-- param: ? -1
delete from by_int4 where k = $1 returning *

insert into by_text values ('a', 'plain')

insert into by_text values ('', 'empty')

insert into by_text values ('it''s', 'quote')

insert into by_text values (e'tab\there', 'escape')

insert into by_text values (U&'\00e9', 'unicode')

insert into by_text values ($$dollar$$, 'dollar')

insert into by_text values ('trailing  ', 'blanks')

insert into by_text values ('日本語', 'wide')

insert into by_text values (5, 'a number')

insert into by_text values ('con'
  'tinued', 'two parts')

select * from by_text where k = 'a'

select * from by_text where k = 'A'

select * from by_text where k = ''

select * from by_text where k = 'it''s'

select * from by_text where k = $$it's$$

select * from by_text where k = e'it\'s'

select * from by_text where k = e'tab\there'

select * from by_text where k = 'é'

select * from by_text where k = e'e\u0301'

select * from by_text where k = 'dollar'

select * from by_text where k = 'trailing  '

select * from by_text where k = 'trailing'

select * from by_text where k = '日本語'::text

select * from by_text where k = text '5'

select * from by_text where k = 'continued'

select * from by_text where k = 'a'::varchar

-- param: text it's
select * from by_text where k = $1

-- param: varchar a
select * from by_text where k = $1

-- param: ? 日本語
select * from by_text where k = $1

-- param: text
select * from by_text where k = $1

insert into by_varchar values ('abc', 'short')

insert into by_varchar values ('abcde     ', 'blanks are cut') returning '<' || k || '>'

insert into by_varchar values ('abcdef', 'too long')

select v from by_varchar where k = 'abc'

select v from by_varchar where k = 'abcde'

select v from by_varchar where k = 'abcde     '

select v from by_varchar where k = 'abcdef'

-- param: varchar abcde
select v from by_varchar where k = $1

-- param: text fghij   
insert into by_varchar values ($1, 'by parameter') returning '<' || k || '>'

select v from by_varchar where k = 'fghij'

insert into by_uuid values ('550e8400-e29b-41d4-a716-446655440000', 'plain')

insert into by_uuid values ('{A0EEBC99-9C0B4EF8-BB6D6BB9-BD380A11}', 'another form')

insert into by_uuid values ('not a uuid', 'wrong')

select * from by_uuid where k = '550e8400-e29b-41d4-a716-446655440000'

select * from by_uuid where k = '550E8400E29B41D4A716446655440000'

select * from by_uuid where k = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid

select * from by_uuid where k = uuid 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'

select * from by_uuid where k = 'not a uuid'

-- param: uuid 550e8400-e29b-41d4-a716-446655440000
select * from by_uuid where k = $1

-- param: ? {550e8400-e29b-41d4-a716-446655440000}
select * from by_uuid where k = $1

insert into by_date values ('2024-02-29', 'leap')

insert into by_date values ('infinity', 'for ever')

insert into by_date values ('2024-02-30', 'wrong')

select * from by_date where k = '2024-02-29'

select * from by_date where k = date '2024-02-29'

select * from by_date where k = 'infinity'

-- param: date 2024-02-29
select * from by_date where k = $1

insert into by_time values ('2024-02-29 12:00:00+00', 'noon')

select v from by_time where k = '2024-02-29 12:00:00+00'

select v from by_time where k = '2024-02-29 13:00:00+01'

select v from by_time where k = timestamptz '2024-02-29 12:00:00Z'

-- param: timestamptz 2024-02-29 12:00:00+00
select v from by_time where k = $1

insert into by_bytea values ('\x00ff', 'hex')

insert into by_bytea values ('', 'empty')

select v from by_bytea where k = '\x00ff'

select v from by_bytea where k = '\x00FF'::bytea

select v from by_bytea where k = ''

-- param: bytea \x00ff
select v from by_bytea where k = $1

-- Names that have to be quoted.

create table "Odd ""table""" ("Odd ""key""" bigint primary key, "select" text)

-- router
select cleave.shard_table('{schema}."Odd ""table"""', '"Odd ""key"""')

insert into "Odd ""table""" values (1, 'odd') returning *

select "select" from "Odd ""table""" where "Odd ""key""" = 1

update "Odd ""table""" as "T" set "select" = 'even' where "T"."Odd ""key""" = 1 returning "T"."select"
