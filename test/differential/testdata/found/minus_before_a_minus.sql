-- A number and all minuses before it are one constant. What has two of them is not negative, whatever the number is when the plan is used again. Found by making statements up.

create table s (id integer, txt text collate "und-x-icu", k bigint not null, primary key (k, id))

insert into s (id, txt, k) values (1, 'a', 7), (2, 'b', 8), (3, 'a', 9), (-2, 'c', -7)

-- keyspace: {"name":"{schema}_1","key":["bigint"],"seed":"426"}

-- router
select cleave.shard_tables('{schema}.s(k)', keyspace => '{schema}_1')

-- unordered
select - (-1) as c2 from s group by txt

-- unordered
select - (-0) as c2 from s group by txt

-- unordered
select - (-5) as c2, - 3, - (- (- 4)), - /* - */ (- -- -
 2.50), -(((-2147483648))), - (2147483648) from s group by txt

-- unordered
select - (-6) as c2, - 7, - (- (- 8)), - /* - */ (- -- -
 9.50), -(((-9))), - (10) from s group by txt

select txt, max(id + - (-1)) from s group by txt order by - (-1)

select txt, max(id + - (-1)) as m from s group by txt order by - (-2), - (-1)

select id from s where k = - (-7)

select id from s where k = - (7)

select id from s where k in (- (-7), - (- (-7)), 9) order by id

-- unordered
select max(id) from s group by - (-1) + id having max(id) > - (-1)

select txt, count(*) from s group by txt order by txt limit - (-2)

update s set id = - (-20) where k = - (-8)

insert into s values (- (-30), 'd', - (-30)), (- (- (-31)), 'd', - (- (-31)))

select * from s order by k, id
