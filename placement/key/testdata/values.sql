-- The values whose hashes become golden vectors: the corners of every type, then pseudo-random ones drawn from md5, so
-- that every version of the server makes the same.

create function bits(i bigint, stream text) returns bigint language sql immutable as
$$ select ('x' || left(md5(stream || i || current_setting('cleave.salt')), 16))::bit(64)::bigint $$;
select set_config('cleave.salt', :'salt', false);

create function seed_of(i bigint) returns bigint language sql immutable as
$$ select case i % 8 when 0 then 0 when 1 then 1 when 2 then -1 when 3 then 9223372036854775807
   when 4 then '-9223372036854775808'::bigint else bits(i, 'seed') end $$;

create table powers as select p::bigint as v from (
  select (2::numeric ^ e + d) as p from generate_series(0, 63) e, generate_series(-2, 2) d
  union select -(2::numeric ^ e + d) from generate_series(0, 63) e, generate_series(-2, 2) d) x
  where p between -9223372036854775808 and 9223372036854775807;

-- Widths vary, so that small numbers are as common as large ones.
create table bigints as select row_number() over (order by k, v) as n, v as a from (
  select 0 as k, v from powers union all
  select i, bits(i, 'bigint') >> (i % 64)::int from generate_series(1, 2000) i) x;
create table integers as select row_number() over (order by k, v) as n, v::int as a from (
  select 0 as k, v from powers where v between -2147483648 and 2147483647 union all
  select i, (bits(i, 'integer') >> 32) >> (i % 32)::int from generate_series(1, 2000) i) x;
create table smallints as select row_number() over (order by k, v) as n, v::smallint as a from (
  select 0 as k, v from powers where v between -32768 and 32767 union all
  select i, (bits(i, 'smallint') >> 48) >> (i % 8)::int from generate_series(1, 2000) i) x;

-- Text of every length from nothing to 40 characters, of one to four bytes each, and a few long ones.
create function text_of(i bigint, stream text) returns text language sql immutable as $$
  select coalesce(string_agg(
    case (i % 4)
      when 0 then chr(32 + (abs(bits(i * 1000 + c, stream) % 95))::int)
      when 1 then substr('äöüßéèñçøåžłőșţđ', 1 + (abs(bits(i * 1000 + c, stream) % 16))::int, 1)
      when 2 then substr('漢字かなカナ한글中文汉数据库片钥', 1 + (abs(bits(i * 1000 + c, stream) % 16))::int, 1)
      else substr('a😀ß漢🜁z𝔘é🚀', 1 + (abs(bits(i * 1000 + c, stream) % 9))::int, 1)
    end, '' order by c), '')
  from generate_series(1, (i / 4) % 41) c $$;
create table texts as select row_number() over () as n, v as a from (
  values (''), (' '), ('  '), ('a'), (chr(1)), (chr(127)), (E'\t'), (E'\n'), (E'a\nb'), ('user:12345'), (chr(1114111)),
    (repeat('x', 1000)), (repeat('漢', 700)), (repeat('ab', 5000))) c(v);
insert into texts select 100 + i, text_of(i, 'text') from generate_series(1, 2000) i;
create table varchars as select n, a::varchar from texts where n <= 100;
insert into varchars select 100 + i, text_of(i, 'varchar') from generate_series(1, 2000) i;

create table uuids as select row_number() over () as n, v::uuid as a from (
  select '00000000-0000-0000-0000-000000000000' as v union all
  select 'ffffffff-ffff-ffff-ffff-ffffffffffff' union all
  select '00000000-0000-0000-0000-000000000001' union all
  select md5('uuid' || i || current_setting('cleave.salt')) from generate_series(1, 2010) i) x;

create table dates as select row_number() over () as n, v::date as a from (
  values ('4714-11-24 BC'), ('4713-11-24 BC'), ('0001-12-31 BC'), ('0001-01-01'), ('1582-10-15'), ('1899-12-31'), ('1969-12-31'),
    ('1970-01-01'), ('1999-12-31'), ('2000-01-01'), ('2000-01-02'), ('2000-02-29'), ('2024-02-29'), ('9999-12-31'),
    ('10000-01-01'), ('5874897-12-31'), ('infinity'), ('-infinity')) c(v);
insert into dates select 100 + i, date '2000-01-01' + (case when i % 2 = 0
  then bits(i, 'date') % 40000 else bits(i, 'date') % 2000000 end)::int from generate_series(1, 2010) i;

create table timestamptzs as select row_number() over () as n, v::timestamptz as a from (
  values ('4714-11-24 00:00:00+00 BC'), ('0001-12-31 23:59:59.999999+00 BC'), ('1969-12-31 23:59:59.999999+00'),
    ('1970-01-01 00:00:00+00'), ('1999-12-31 23:59:59.999999+00'), ('2000-01-01 00:00:00+00'),
    ('2000-01-01 00:00:00.000001+00'), ('294276-12-31 23:59:59.999999+00'), ('infinity'), ('-infinity')) c(v);
insert into timestamptzs select 100 + i, timestamptz '2000-01-01 00:00:00+00' + make_interval(secs => 0) +
  (case when i % 2 = 0 then bits(i, 'timestamptz') % 3000000000 else bits(i, 'timestamptz') % 100000000000 end) * interval '1 second' +
  (bits(i, 'micros') % 1000000) * interval '1 microsecond' from generate_series(1, 2000) i;

create table byteas as select row_number() over () as n, v as a from (
  values (''::bytea), ('\x00'), ('\x0000'), ('\xff'), ('\x00ff00ff'), (decode(repeat('00', 500), 'hex'))) c(v);
insert into byteas select 100 + i, substr(decode(md5('1bytea' || i || current_setting('cleave.salt')) ||
  md5('2bytea' || i) || md5('3bytea' || i) || md5('4bytea' || i), 'hex'), 1, (i % 65)::int) from generate_series(1, 2000) i;

create table bigint_integer as select b.n, b.a, i.a as b from bigints b join integers i using (n) where n <= 2100;
create table text_bigint as select t.n, t.a, b.a as b from texts t join bigints b using (n);
create table uuid_date as select u.n, u.a, d.a as b from uuids u join dates d on d.n = u.n + 95;
create table bigint_timestamptz_text as select b.n, b.a, t.a as b, x.a as c
  from bigints b join timestamptzs t using (n) join texts x using (n);

do $$ declare t text; begin
  for t in select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace and relname <> 'powers' loop
    execute format('alter table %I add column seed bigint', t);
    execute format('update %I set seed = seed_of(n)', t);
  end loop;
end $$;
