-- COPY of queries and tables to the client.

-- ordered
copy (select id, owner, balance from account order by id) to stdout

-- ordered
copy (select id, owner from account where id < 5 order by id) to stdout (format csv, header)

-- ordered
copy (select id, b, c from sparse order by id) to stdout (format csv, null '-', force_quote (b))

-- ordered
copy (select id, b from sparse order by id) to stdout (delimiter '|', null '')

-- ordered
copy (select region, count(*), sum(balance) from account group by region order by region) to stdout csv

-- ordered
copy (select a.id, n.body from account a join note n on n.account = a.id order by 1) to stdout

-- ordered
copy (select id from account order by balance desc, id limit 4) to stdout (format binary)

-- ordered
copy (select tags, info from account where id in (1, 5) order by id) to stdout

-- ordered
copy (select tags, info from account where id in (1, 5) order by id) to stdout (format csv)

-- ordered
copy (with x as (select place, max(at) as m from event group by place) select * from x order by place) to stdout

-- ordered
copy (select id from sparse union select d from digit order by 1) to stdout

-- ordered
copy (select id, rank() over (order by a) from sparse order by id) to stdout

-- ordered
copy (values (1, 'x'), (2, E'a\tb')) to stdout

-- ordered
copy (select E'a\\b\n' || id from sparse order by id) to stdout

-- ordered
copy (select id, 'with "quotes", ' || coalesce(b, 'none') from sparse order by id) to stdout csv

copy account (id, owner) to stdout

copy region to stdout csv

copy digit to stdout

copy event (place, n) to stdout (format csv, header)

copy hollow to stdout

copy (select * from hollow) to stdout (format csv, header)

copy (select count(*) from account where id < 0) to stdout

copy (select id from account where id = 3) to stdout

copy (select e.place from event e, account a where a.id = e.n and a.id = 2) to stdout

-- ordered
copy (select distinct on (region) region, id from account order by region, id desc) to stdout

-- ordered
copy (select id from many order by word collate "C", id offset 395) to stdout

-- fails: 42703
copy (select nothing from account) to stdout

-- fails: 42703
copy account (nothing) to stdout

-- fails: 42P01
copy nothing to stdout

-- fails: 42601
copy (select id from account) to stdout (format csv, format text)

-- fails: 0A000
copy account to stdout (delimiter 'xx')
