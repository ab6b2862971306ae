-- Strings and their functions.

select id, length(owner), char_length(code), octet_length(owner), bit_length(kind) from account where id < 8 order by id

select id, upper(owner), lower(owner), initcap(owner), reverse(owner) from account where id < 8 order by id

select id, owner || '-' || code, owner || null, concat(owner, null, code), concat_ws('/', owner, kind, code) from account where id < 8 order by id

select id, substring(owner from 2 for 2), left(owner, 1), right(owner, 1), position('e' in owner), overlay(owner placing 'X' from 1) from account where id < 8 order by id

select id, trim(code), rtrim(code), lpad(owner, 5, '*'), rpad(kind, 7, '.'), btrim(owner, 'ab') from account where id < 8 order by id

select id, code, code || '|', code = 'a', code = 'a  ', length(code) from account where id < 5 order by id

select code, count(*) from account group by code order by code

select code::text || '.', count(*) from account group by 1 order by 1

select distinct code::varchar(2) from account order by 1

select distinct kind::char(3) from account order by 1

select owner::char(2) as c, count(*) from account group by owner::char(2) order by c

select owner::varchar(2) as c, max(id) from account group by c order by c

select max(code), min(kind), max(owner::name) from account

select id from account where code like 'a%' order by id

select id from account where code in ('bb', 'ccc ') and id < 12 order by id

select id from account where kind like 'g_ld' and owner like '%\_%' is not true order by id

select id from account where owner ~* 'B|C' order by id

select regexp_replace(owner, '[aeiou]', '#', 'g'), regexp_match(owner, '(.)(.)') from account where id < 7 order by id

select id, (regexp_matches(owner, '[a-z]', 'g'))[1] from account where id < 3 order by 1, 2

select regexp_split_to_table(owner, 'n') from account where id = 6

select split_part(body, ' ', 2), count(*) from note group by 1 order by 1

select split_part(n.body, ' ', 1) as w, string_agg(a.owner, ',' order by a.id) from note n join account a on a.id = n.account group by w order by w

select translate(owner, 'abc', 'xyz'), replace(owner, 'e', 'ee'), repeat(code, 2), ascii(owner), chr(64 + id::int) from account where id < 6 order by id

select md5(string_agg(owner, '' order by id)), encode(convert_to(min(owner), 'UTF8'), 'hex') from account

select format('%s: %L (%I)', id, b, b) from sparse where b is not null order by id

select to_hex(id), id::text, quote_literal(owner), quote_nullable(owner) from account where id in (5, 10, 11) order by id

select starts_with(owner, 'a'), owner ^@ 'B' from account where id < 4 order by id

select string_agg(code, '|' order by id) from account where id < 5

select string_agg(trim(code), '' order by code, id) from account where id < 9

select word, count(*) from many where word like 'a%' group by word order by word limit 5

select left(word, 1) as l, min(word), max(word), count(distinct word) from many group by l order by l limit 4

select b, b || 'x' > 'x', b < 'é', upper(b) from sparse order by id

select 'lit' as l, U&'\00e9' as u, E'a\nb' as e, $$dollar$$ as d, b from sparse where id = 8

select 'lit'::char(5) || '|', 'lit'::varchar(2), 'x'::"char", cast('12' as int) + count(*) from sparse

select owner, '5'::char(3) as c, count(*) from account group by owner, c order by owner

select normalize(b), unistr('\00e9') = b from sparse where b is not null order by id

select decode('ff00', 'hex') || convert_to(b, 'UTF8'), length(b::bytea) from sparse where b is not null order by id

select max(word), id % 3 from many group by id % 3 order by 2

-- param: text %n%
select id from account where owner like $1 order by id

-- fails: 54000
select chr(0) || owner from account where id = 1

-- fails: 22011
select substring(owner from 1 for -1) from account where id = 1

-- fails: 2201B
select id from account where owner ~ '('

-- fails: 22026
select b'101'::bit(3) & b'1'::bit(1), id from account
