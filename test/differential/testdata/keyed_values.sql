-- Values that are no keys, or other keys than they seem.

create table by_bigint (k bigint primary key, v text)

create table by_smallint (k smallint primary key, v text)

create table by_varchar (k varchar(3) primary key, v text)

create table by_text (k text primary key, v text)

create table by_uuid (k uuid primary key, v text)

create table by_date (k date primary key, v text)

create table by_time (k timestamptz primary key, v text)

create table by_second (k timestamptz(0) primary key, v text)

create table by_bytea (k bytea primary key, v text)

-- router
select cleave.shard_tables('{schema}.by_bigint(k), {schema}.by_smallint(k), {schema}.by_varchar(k), {schema}.by_text(k), {schema}.by_uuid(k), {schema}.by_date(k), {schema}.by_time(k), {schema}.by_second(k), {schema}.by_bytea(k)')

-- Numbers are rounded on their way into a column.

insert into by_bigint values (2.5, 'numeric') returning *

insert into by_bigint values (3.5::float8, 'float8') returning *

insert into by_bigint values (-0.5, 'minus') returning *

insert into by_bigint values (1e3, 'exponent') returning *

insert into by_bigint values (7.49::numeric, 'cast'), (8.51, 'literal') returning *

insert into by_bigint values ('5.5', 'text')

insert into by_bigint values (99999999999999999999, 'too large')

insert into by_bigint values (1, 'x'), (99999999999999999999, 'too large')

insert into by_bigint values (true, 'boolean')

insert into by_date values (false, 'boolean')

insert into by_bigint values ('', 'empty')

-- unordered
select * from by_bigint

select * from by_bigint where k = 3

-- unordered
select * from by_bigint where k in (3, 4, 1000)

select * from by_bigint where k = '3.0'

-- expect: refused simple: the value of type bool
select * from by_bigint where k = true

select * from by_bigint where k = any ('{1,x}')

-- expect: refused simple: this form of array
select * from by_bigint where k = any ('{1,2')

select * from by_bigint where k in ('1', 'x')

-- param: ? x
select * from by_bigint where k = $1

-- param: ? {1,x}
select * from by_bigint where k = any ($1)

-- param: ? 99999999999999999999
select * from by_bigint where k = $1

-- param: int2 3
-- param: int4 1000
-- unordered
select * from by_bigint where k in ($1, $2)

-- param: numeric 2.5
insert into by_bigint values ($1, 'by parameter') on conflict (k) do update set v = 'again' returning *

-- param: float8 2.5
insert into by_bigint values ($1, 'by parameter') on conflict (k) do update set v = 'again' returning *

-- param: numeric 3
select * from by_bigint where k = $1

-- param: numeric 3.5
select * from by_bigint where k = $1

-- param: float8 3
select * from by_bigint where k = $1

-- expect: refused: the value of type float8
-- param: float8 9007199254740993
select * from by_bigint where k = $1

select * from by_smallint where k = 70000

select * from by_smallint where k in (1, 70000, 9223372036854775807)

insert into by_smallint values (32767.4, 'rounded'), (-32768.4, 'too') returning *

insert into by_smallint values (1, 'x'), (32767.5, 'too large')

delete from by_smallint where k = 32767::bigint returning *

-- Texts.

insert into by_varchar values ('abc   ', 'cut'), ('ab ', 'kept'), ('日本語 ', 'wide') returning '<' || k || '>', v

insert into by_varchar values ('ab', 'other'), ('abcd', 'too long')

insert into by_varchar values ('abcd'::varchar(3), 'cast'), ('xyzzy'::char(3), 'char') on conflict do nothing returning k, v

-- unordered
select '<' || k || '>', v from by_varchar

select v from by_varchar where k = 'abc   '

-- unordered
select v from by_varchar where k in ('abc', 'ab ', 'ab', '日本語')

select v from by_varchar where k = 'ab '::text

select v from by_varchar where k = 'ab '::varchar(2)

-- param: varchar 日本語  
insert into by_varchar values ($1, 'twice')

insert into by_text values ('x' || 'y', '7'), (e'\u00e9' || e'\n', '8')

-- unordered
select k, v from by_text where k in ('xy', e'é\n')

insert into by_text values (e'new\nline', '1'), (e'\u00e9', '2'), (e'e\u0301', '3'), (U&'\0061', '4'), ('a'' or 1=1', '5'), ($x$a$$b$x$, '6') returning *

-- unordered
select v from by_text where k in (e'new\nline', 'é', 'a', 'a$$b')

select v from by_text where k = 'a' collate "C"

-- unordered
select v from by_text where k like 'a%'

select v from by_text where lower(k) = 'a'

-- expect: refused: the value of type name
select v from by_text where k = 'a'::name

-- expect: refused: the value of type bpchar
select v from by_text where k = 'a  '::char(5)

set standard_conforming_strings = off

-- unordered
select v from by_text where k in ('a', 'x')

reset standard_conforming_strings

set client_encoding = 'LATIN1'

select v from by_text where k = 'a'

reset client_encoding

-- Times are read by the session's settings.

insert into by_date values ('01/02/2024', 'month first') returning *

set datestyle = 'ISO, DMY'

insert into by_date values ('01/02/2024', 'day first') returning *

select v from by_date where k = '01/02/2024'

set datestyle = 'German'

select * from by_date where k = '1.2.2024'

set datestyle = 'SQL, MDY'

-- unordered
select * from by_date where k in ('01/02/2024', '02/01/2024')

reset datestyle

insert into by_date values ('2024-02-30', 'wrong')

insert into by_date values ('2024-02-29', 'x'), ('soon', 'wrong')

insert into by_date values ('J2460370', 'julian'), ('2024-060', 'day of the year') on conflict do nothing returning *

insert into by_date values ('2024-06-01 23:00:00+05', 'with a time'), (timestamp '2024-06-02 23:00:00', 'a timestamp'), (timestamptz '2024-06-03 12:00:00+00', 'with a zone')

-- expect: refused: a value that means the current time
select v from by_date where k = 'today' and v = 'nobody'

select v from by_date where k = 'soon'

select v from by_date where k = timestamp '2024-02-01 00:00:00'

select v from by_date where k = timestamp '2024-02-01 00:00:01'

-- unordered
select * from by_date

insert into by_time values ('2024-07-01 12:00:00', 'in UTC') returning *

set timezone = 'Asia/Tokyo'

insert into by_time values ('2024-07-01 12:00:00', 'in Tokyo') returning *

select v from by_time where k = '2024-07-01 12:00:00'

select v from by_time where k = '2024-07-01 21:00:00'

-- unordered
select * from by_time where k in ('2024-07-01 12:00:00', '2024-07-01 21:00:00')

-- param: ? 2024-07-01 12:00:00
select v from by_time where k = $1

prepare p as select v from by_time where k = $1

execute p ('2024-07-01 12:00:00')

set timezone = 'America/New_York'

execute p ('2024-07-01 08:00:00')

insert into by_time values ('2024-03-10 02:30:00', 'no such time'), ('2024-11-03 01:30:00', 'twice that day') returning *

insert into by_time values ('2024-07-01 12:00:00 Europe/Berlin', 'a named zone'), ('2024-07-02 12:00:00 PST', 'a short one') returning *

reset timezone

deallocate p

-- unordered
select * from by_time

select v from by_time where k = date '2024-07-01'

select v from by_time where k = timestamp '2024-07-01 12:00:00'

insert into by_second values ('2024-07-01 12:00:00.4+00', 'down'), ('2024-07-01 12:00:00.5+00', 'half'), ('2024-07-01 12:00:01.5+00', 'half again') returning *

select v from by_second where k = '2024-07-01 12:00:00.4+00'

-- unordered
select v from by_second where k in ('2024-07-01 12:00:00+00', '2024-07-01 12:00:01+00', '2024-07-01 12:00:02+00')

-- param: timestamptz 2024-07-01 12:00:09.5+00
insert into by_second values ($1, 'by parameter') returning *

-- Others.

insert into by_uuid values ('{550e8400e29b41d4a716446655440000}', 'braces'), ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'upper case') returning *

insert into by_uuid values ('550e8400-e29b-41d4-a716-446655440001', 'x'), ('550e8400', 'wrong')

-- unordered
select v from by_uuid where k in ('550E8400E29B41D4A716446655440000', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')

select v from by_uuid where k = 'x'

insert into by_bytea values ('\x00ff', 'hex'), ('a\\b', 'escaped'), ('\000\001', 'octal'), ('é', 'text') returning *

insert into by_bytea values ('\x0', 'wrong')

insert into by_bytea values ('\x01', 'x'), ('\xzz', 'wrong')

-- unordered
select v from by_bytea where k in ('\x00FF', 'a\\b', '\x0001', '\xc3a9')

set bytea_output = 'escape'

select * from by_bytea where k = '\x00ff'

reset bytea_output

-- param: bytea \x00ff
select v from by_bytea where k = $1
