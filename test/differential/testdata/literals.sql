-- How values can be written.

select 1, -1, +1, - 1, 1.5, .5, 5., 1e3, 1.5e-3, -0, 0.0

select 2147483647, 2147483648, 9223372036854775807, 9223372036854775808, -9223372036854775808, 123456789012345678901234567890

select 'a', 'it''s', '', ' '

select 'a'
  'b'

select e'a\nb\tc\\d\'e', E'\x41\102\u0043\U00000044'

select U&'d\0061t\+000061', U&'d!0061t!+000061' uescape '!', U&'\\'

select $$dollar$$, $tag$with 'quotes' and $$ in it$tag$, $ü$ünï$ü$

select b'1010', B'', x'1F', X'ff'

select n'national'

select true, false, null, TRUE, 'yes'::bool, 'f'::boolean

select 1::text, cast('5' as int), int '7', date '2024-02-29', timestamp '2024-02-29 12:00', interval '1' day, interval '1-2' year to month

select timestamptz '2024-02-29 12:00+02', time '12:34:56.789', numeric '1.50', float8 '1e10', text 'x', "char" 'c', bool 't'

select array[1, 2, 3], '{1,2,3}'::int[], array[]::int[], array[[1,2],[3,4]], '[2:3]={1,2}'::int[]

select row(1, 'a', null), (1, 2), row()

select 'x' collate "C", 'a' < 'B' collate "C"

select -5::int, (-5)::int, -'5'::int, - - 5

select 1 as "Odd ""name""", 2 as "ünï", 3 as "select", 4 as UPPER

select 1 a, 2 "b", 3 as c

select 1 /* comment */ + /* nested /* one */ */ 2 -- and the end

select 'a' || 'b' || $$c$$

select 'tab	in it', 'line
in it'

set standard_conforming_strings = off

-- The router's grammar reads strings as they are by default.

-- expect: refused: the router cannot read this statement
select 'a\nb', 'it\'s', e'\\'

reset standard_conforming_strings

select 'a\nb'

set escape_string_warning = off

set backslash_quote = on

reset all

select '日本語', length('日本語'), '😀', 'é' = e'e\u0301'

select 1 where false

select

select from generate_series(1, 3)

values (1, 'a'), (2, 'b')

table pg_catalog.pg_am limit 0

select * from (values (1, 'x')) as v(a, b)

-- Operators of all kinds.

select 5 % 3, 2 ^ 10, |/ 16, @ -5, 5 & 3, 5 | 3, 5 # 3, ~ 5, 1 << 4, 'a' ~ 'A', 'a' ~* 'A', 'abc' like 'a%', 'abc' ilike 'A_C', 'abc' similar to '(a|b)%'

select 1 = 1, 1 <> 2, 1 != 2, null is null, 1 is distinct from null, 3 between 1 and 5, 3 in (1, 2, 3), 3 = any (array[1, 3]), 3 > all (array[1, 2])

select 5 operator(pg_catalog.+) 3

select '{"a": [1, 2]}'::jsonb -> 'a' -> 1, '{"a": 1}'::jsonb ->> 'a', '{"a": 1}'::jsonb ? 'a', '{"a": 1}'::jsonb @> '{"a": 1}'

-- Parameters.

-- param: int4 5
select $1

-- param: text it's
select $1, $1 || 'x'

-- param: ? 5
select $1::int + 1

-- param: ? 5
select $1

-- param: int4
select $1, $1 is null

-- param: int8 9223372036854775807
-- param: int2 -5
select $1, $2, $1 + $2

-- param: text a
-- param: text b
select $2, $1

-- param: int4 1
select $2

-- param: ? x
select $1::int

-- param: int4 5
select $1 + 'x'

-- param: text a
select 1

select $1

select $0
