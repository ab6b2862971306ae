-- Numbers.

create table num (k bigint primary key, n numeric, m numeric(10, 3), f float8, r real, i int, s smallint)

-- router
select cleave.shard_tables('{schema}.num(k)', keyspace => 'ground_bigint')

insert into num values (1, 1, 1.0005, 0.5, 0.25, 1, 1), (2, 'NaN', 2.5, 'NaN', 'NaN', -2, -2), (3, -7.50, null, '-Infinity', 'Infinity', 2147483647, 32767), (4, 100000000000000000000.01, -0.001, 1e300, 1e-30, null, 0), (5, 0.00, 0, 0, '-0', 0, null), (6, null, 99.9999, -2.5, 3.5, 7, 7), (7, 7.5000, 7.5, 2.5, 4.5, 8, 8), (8, 'Infinity', 1, 'Infinity', 1, 9, 9)

select k, n, m, f, r, i, s from num order by k

select k from num order by n, k

select k from num order by f desc, k

select n from num order by n desc nulls last limit 3

select sum(m), avg(m), min(m), max(m) from num

select sum(n), avg(n) from num where n <> 'NaN' and n <> 'Infinity'

select sum(n), max(n), min(n), avg(n) from num

select sum(n) from num where k <> 2

select sum(f), max(f), min(f) from num where k in (1, 5, 6, 7)

select max(f), min(f), max(r), min(r) from num

select sum(i), avg(i), sum(s), avg(s), sum(i)::int8 from num

select sum(i) + 1, sum(i) / count(i), sum(i)::numeric / count(i) from num

select round(n, 1), trunc(n), ceil(m), floor(m), sign(n), abs(m) from num where k in (1, 3, 7) order by k

select k, n + m, n * m, n - m, n / nullif(m, 0), n % 2 from num where k in (1, 3, 7) order by k

select k, power(f, 2), sqrt(abs(m)), exp(0), ln(1), mod(i, 5), div(n, 2) from num where k in (1, 6, 7) order by k

select k, f::int, r::int, m::int, n::numeric(5, 1) from num where k in (1, 6, 7) order by k

select distinct n from num where n in (7.5, 0, 1) order by n

select n, count(*) from (select 7.5 as n union all select n from num) x group by n order by n

select count(*), n from num group by n order by n nulls first

select sum(m) filter (where m > 1), count(distinct m) from num

select stddev(m), variance(i), var_pop(m) from num

select width_bucket(m, 0, 100, 4), count(*) from num group by 1 order by 1

select k from num where n = 7.50 or m = 7.5 order by k

select k from num where n > all (select balance from account) order by k

select k, to_char(m, 'FM990.000'), to_char(i, '9G999') from num order by k

select m::text, n::text, f::text from num order by k

select scale(sum(m)), scale(avg(m)), min_scale(max(m)) from num

select gcd(i, 12), lcm(i, 2) from num where k in (1, 6) order by k

select sum(k), sum(k * 1000000000000000000) from num

select avg(k), avg(k::numeric), avg(k::float8) from num

select array_agg(m order by m desc nulls last) from num

select bit_or(s), bit_and(s), bit_xor(i) from num

select regr_count(m, k), regr_sxx(f, k), regr_slope(f, k) from num where k in (1, 5, 7)

select trunc(avg(m), 5), round(sum(n)::numeric, 1) from num where k in (1, 3, 7)

select 0.1 + sum(m), sum(m) * 1.10 from num

select k, i::bigint * i, s::int << 2, i # 3, ~i from num order by k

select k, i::bit(8), s::oid from num where k = 1

select money(m) from num where k in (1, 7) order by k

-- fails: 22003
select sum(i + 1) from num

-- fails: 22003
select i + 1 from num where k = 3

-- fails: 22003
select s::smallint + 32767::smallint from num where k = 3

-- fails: 22012
select n / 0 from num where k < 3

-- fails: 2201F
select sqrt(n) from num where k = 3

-- fails: 22003
select n::numeric(3, 2) from num where k = 4
