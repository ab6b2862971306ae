-- Dates and times.

set timezone = 'America/New_York'

select place, n, at from event where n = 1 order by at

select min(at), max(at), max(at) - min(at), count(distinct at::date) from event

select at::date, count(*) from event group by at::date order by 1

select date_trunc('day', at) as d, count(*) from event group by d order by d

select date_trunc('month', at, 'Asia/Tokyo') as d, count(*), min(at) from event group by 1 order by 1

select extract(hour from at) as h, count(*) from event group by h order by h

select extract(epoch from at), extract(timezone from at), date_part('dow', at) from event where place = 'b' order by n

select at at time zone 'UTC', at at time zone 'Europe/Amsterdam' from event where n = 2 order by 1

select place, n from event where at between '2022-06-03' and '2022-06-04 12:00' order by at, place

select place, n from event where at >= date '2022-06-07' order by at desc, place

select at + interval '1 month', at - interval '3 hours' from event where place = 'd d' order by at

select to_char(at, 'YYYY-MM-DD HH24:MI TZ'), to_char(at, 'Day, DD Mon') from event where n = 3 order by at

select age(at, '2022-01-01'::timestamptz) from event where n = 4 order by at

select place, max(at) - min(at) as spread from event group by place order by spread, place

select place, array_agg(at order by at) from event where n < 3 group by place order by place

select place, n, at - lag(at) over (partition by place order by at) from event where n < 4 order by 1, 2

select date_bin('6 hours', at, '2022-01-01'::timestamptz) as b, count(*) from event group by b order by b limit 4

select at::timestamp, at::time, at::timetz from event where place = 'aa' order by n limit 3

select opened + n, opened - date '2020-01-01' from account a join entry e on e.account = a.id where a.id < 3 order by 1, 2

select extract(year from opened) as y, extract(quarter from opened) as q, count(*) from account group by 1, 2 order by 1, 2

select opened, opened + 30, opened + interval '1 month', opened + time '10:30' from account where id < 4 order by id

select to_char(opened, 'IYYY-IW'), count(*) from account group by 1 order by 1 limit 4

select min(opened), max(opened), max(opened) - min(opened) from account

select opened::timestamptz, opened::timestamp::text from account where id in (3, 8) order by id

select id from account where opened between '2020-06-01' and '2020-08-01' order by opened

select id from account where opened in ('2020-02-17', date '2020-03-05') order by id

select (opened, opened + 10) overlaps (date '2020-06-01', interval '20 days'), id from account where id between 5 and 9 order by id

select count(*) from event e join entry x on x.at::date = (e.at - interval '455 days')::date

select count(*) from account where opened < now() and opened < current_date and opened < localtimestamp

select now() = max(now()), count(distinct now()) from account

select make_date(2020, id::int, 1), make_timestamptz(2020, id::int, 1, 1, 2, 3) from account where id < 4 order by id

set datestyle = 'German'

select at, opened from event, account where place = 'b' and n = 2 and id = 2

select min(at), max(opened) from event, account

select at, count(*) from event where n = 1 group by at order by at

set datestyle = 'SQL, DMY'

select id from account where opened = '17/02/2020' or opened > '20/05/2021' order by id

select opened, max(at) from account a join entry e on e.account = a.id where id < 4 group by opened order by opened

reset datestyle

set timezone = 'Asia/Kathmandu'

select place, max(at), min(at::date) from event group by place order by place

select at from event where at = '2022-06-03 04:45' or at = '2022-06-02 15:00+02' order by at

reset timezone

-- param: timestamptz 2022-06-03 00:00+00
select count(*), max(at) from event where at < $1

-- param: ? 2020-05-12
select id from account where opened = $1

-- fails: 22007
select id from account where opened = 'tomorrowish'

-- fails: 22008
select opened + 2147483000 from account where id = 1

-- fails: 22023
select at at time zone 'Nowhere' from event

-- fails: 22023
select date_trunc('fortnight', at) from event
