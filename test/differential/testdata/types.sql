-- Values of every common type, as text and in binary.

select 1::int2, 2::int4, 3::int8, (-32768)::int2, (-2147483648)::int4, (-9223372036854775808)::int8

select 1.5::float4, 1.5::float8, 'NaN'::float8, 'Infinity'::float4, '-Infinity'::float8, 0.1::float4 + 0.2::float4, 0.1::float8 + 0.2::float8, '-0'::float8

select 1.50::numeric, 1.50::numeric(10, 4), 'NaN'::numeric, 'Infinity'::numeric, 1e100::numeric, -0.000001::numeric, 12345678901234567890.123456789::numeric

select 'text'::text, 'varchar'::varchar, 'abc'::varchar(2), 'char'::char(6), 'x'::"char", 'name'::name, ''::text

select true, false, null::bool

select '\x00ff10'::bytea, 'abc\\def'::bytea, ''::bytea

set bytea_output = escape

select '\x00ff10'::bytea

reset bytea_output

select date '2024-02-29', date 'infinity', date '4713-01-01 BC', date '0001-12-31 BC', date '9999-12-31'

select time '00:00', time '23:59:59.999999', time '24:00', timetz '12:00+05:30', time(3) '12:34:56.7891'

select timestamp '2024-02-29 12:34:56.789', timestamp 'infinity', timestamp '-infinity', timestamp(0) '2024-02-29 12:34:56.789'

select timestamptz '2024-02-29 12:34:56.789+00', timestamptz '2024-07-01 00:00:00+14'

select interval '1 year 2 mons 3 days 04:05:06.789', interval '-1 day', interval '0', interval '1 day -1 second', interval(0) '1.9 seconds'

select '550e8400-e29b-41d4-a716-446655440000'::uuid

select '{"a": 1, "a": 2, "b": [1, null, "x"]}'::json, '{"a": 1, "a": 2, "b": [1, null, "x"]}'::jsonb, 'null'::jsonb, '"x"'::json

select '$.a[*] ? (@ > 1)'::jsonpath

select '127.0.0.1'::inet, '10.0.0.0/8'::cidr, '::1/128'::inet, '08:00:2b:01:02:03'::macaddr, '08:00:2b:01:02:03:04:05'::macaddr8

select point '(1,2)', line '{1,2,3}', lseg '((1,2),(3,4))', box '((1,2),(3,4))', path '((1,2),(3,4))', polygon '((1,2),(3,4),(5,6))', circle '<(1,2),3>'

select b'1010'::bit(4), b'101'::varbit, b'1'::bit(3)

select int4range(1, 5), int8range(1, null), numrange(1.5, 2.5, '[]'), daterange('2024-01-01', '2024-02-01'), 'empty'::int4range, tsrange(null, null), '{[1,3),[5,7)}'::int4multirange

select 'a fat cat'::tsvector, 'fat & cat'::tsquery, to_tsvector('english', 'The fat cats')

select array[1, null, 3], array['a', 'b"c', null, ''], array[[1, 2], [3, 4]], array[1.5, 2.5]::numeric[], '{}'::text[], array[true, false]

select array['2024-01-01'::date], array['550e8400-e29b-41d4-a716-446655440000'::uuid], array['\x00'::bytea], array['{"a":1}'::jsonb]

select 12.34::money

select '<a>b</a>'::xml

select 1::oid, 'int4'::regtype, 'pg_class'::regclass, 'lower(text)'::regprocedure, '1'::xid, '(1,2)'::tid, '0/16'::pg_lsn

select null::int2, null::text, null::timestamptz, null::numeric[], null::jsonb

select row(1, 'a')::record

select pg_typeof(1), pg_typeof('x'), pg_typeof(null), pg_typeof(1.5), pg_typeof(now())

-- Types of one's own.

create type mood as enum ('sad', 'ok', 'happy')

create type pair as (a int, b text)

create domain positive as int check (value > 0)

create type span as range (subtype = float8)

create table t (m mood, p pair, d positive, ms mood[], s span)

insert into t values ('ok', (1, 'x'), 5, '{sad,happy}', '[1,2]')

select m, p, d, s from t

select (p).a, (p).b, m > 'sad', ms[2] from t

insert into t (d) values (-1)

insert into t (m) values ('angry')

select 'happy'::mood, enum_range(null::mood)::text[]

-- Parameters of many types.

-- param: int2 -7
-- param: int4 7
-- param: int8 7
-- param: float4 1.5
-- param: float8 -2.5
-- param: numeric 123.4500
-- param: bool t
select $1, $2, $3, $4, $5, $6, $7

-- param: text some text
-- param: varchar some varchar
-- param: bytea \x00ff
-- param: uuid 550e8400-e29b-41d4-a716-446655440000
-- param: json {"a": 1}
-- param: jsonb {"a": 1}
select $1, $2, $3, $4, $5, $6

-- param: date 2024-02-29
-- param: time 12:34:56
-- param: timestamp 2024-02-29 12:34:56.789
-- param: timestamptz 2024-02-29 12:34:56.789+00
-- param: interval 1 mon 2 days 00:00:03
select $1, $2, $3, $4, $5

-- param: inet 10.0.0.1/8
-- param: cidr 10.0.0.0/8
-- param: _int4 {1,NULL,3}
-- param: _text {a,"b c",NULL}
-- param: point (1,2)
-- param: bit 101
select $1, $2, $3, $4, $5, $6

-- param: int4 not a number
select $1

-- param: date 2024-02-30
select $1

-- Aggregates and their types.

select count(*), sum(i), avg(i), min(i), max(i), sum(i::int8), sum(i::numeric), avg(i::float8), bool_and(i > 0), string_agg(i::text, ','), array_agg(i), json_agg(i), jsonb_object_agg(i, i) from generate_series(1, 5) i

select count(*), sum(i), avg(i), string_agg(i::text, ','), array_agg(i) from generate_series(1, 0) i

drop table t

drop type mood, pair, span

drop domain positive
