-- Intervals.

select place, n, span from event where n < 3 order by span, place

select sum(span), avg(span), min(span), max(span) from event

select place, sum(span) from event group by place order by 2 desc

select distinct span from event where n in (1, 2) order by span

select span, count(*) from event group by span having count(*) > 0 order by span limit 4

select justify_hours(span), justify_days(span * 10), justify_interval(span) from event where place = 'b' order by n

select extract(hour from span), extract(epoch from span), date_part('day', span) from event where place = 'Bb' order by n

select span * 2, span / 4, -span, span + interval '1 mon' from event where n = 3 order by span

select count(*) from event where span > interval '3 days 12 hours'

select place from event where span = '1 day 7:00' or span = interval 'P5DT7H' order by place

select place, n from event where span between '2 days' and '60:00' order by span, n, place

select at + span, at - span from event where place = 'd d' order by n

select max(at + span) - min(at) from event

select to_char(span, 'DD HH24:MI'), span::text from event where n = 7 order by span

select make_interval(hours => n), sum(span) from event group by n order by n

select span, rank() over (order by span) from event where n < 3 order by span, place

select place, sum(span) over (partition by place order by n) from event where n < 4 order by place, n

select percentile_disc(0.5) within group (order by span) from event

select percentile_cont(0.5) within group (order by span) from event

select array_agg(distinct span order by span) from event where place < 'c'

select date_trunc('hour', span), span::interval hour to minute from event where n = 2 order by 1

select interval '1 day' * a from sparse order by id

select sum(interval '1 hour' * a), avg(interval '90 minutes' * id) from sparse

select age(max(opened), min(opened)) from account

select (max(at) - min(at)) / count(*) from entry

select account, max(at) - min(at) as d from entry group by account having max(at) - min(at) > '14 hours' order by d desc, account limit 5

set intervalstyle = 'iso_8601'

select span from event where place = 'aa' order by span

select sum(span), max(span) from event

select span, count(*) from event where n < 3 group by span order by span

set intervalstyle = 'sql_standard'

select span, -span from event where place = 'b' and n < 4 order by span

select sum(span), avg(span) from event where n < 3

set intervalstyle = 'postgres_verbose'

select place, max(span) from event group by place order by place

select count(*) from event where span > '@ 2 days 3 hours'

reset intervalstyle

-- param: interval 2 days
select count(*) from event where span < $1

-- fails: 22007
select place from event where span = 'a while'

-- fails: 22008
select span * 1e18 from event

-- fails: 22012
select span / 0 from event
