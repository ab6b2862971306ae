-- Arrays.

select id, tags, tags[1], tags[2:3], array_length(tags, 1), cardinality(tags) from account where id < 7 order by id

select id from account where tags[1] = 't1' order by id

select id from account where 'u0' = any (tags) order by id

select id from account where 't2' <> all (tags) order by id

select id from account where tags @> array['t1'] order by id

select id from account where tags && '{t2,t6}' order by id

select id from account where tags <@ array['t0', 't1', 'u0', 'u1'] order by id

select id from account where tags = '{t1,u1,t1}' order by id

select id from account where id = any ('{3,5,7,77}') order by id

select id from account where id = any (array[1, 2, null]) order by id

select id from account where id <> all (array[1, 2]) and id < 6 order by id

select tags, count(*) from account group by tags order by tags limit 5

select distinct tags[2] from account order by 1

select tags[1] as t, array_agg(id order by id) from account group by 1 order by 1

select array_agg(id order by id desc) from account where active

select array_agg(array[id, a] order by id) from sparse

select array_agg(tags[1] order by id) filter (where id < 8) from account

select unnest(tags) as t, count(*) from account group by t order by t

select id, unnest(tags) from account where id < 4 order by 1, 2

select t, count(*) from account, unnest(tags) t group by t having count(*) > 3 order by t

select count(distinct t) from account, unnest(tags) t

select id, array(select unnest(tags) order by 1) from account where id < 5 order by id

select id, (select count(*) from unnest(tags) t where t like 'u%') from account where id < 6 order by id

select array(select id from account order by balance limit 3)

select array(select a from sparse order by id)

select array_to_string(array_agg(b order by id), ',', '*') from sparse

select string_to_array(string_agg(owner, ',' order by id), ',') from account where id < 5

select array_append(tags, 'x'), array_prepend('y', tags), tags || '{z}' from account where id < 3 order by id

select array_cat(tags, tags), array_remove(tags, 't1'), array_replace(tags, 'u1', 'w') from account where id < 3 order by id

select array_position(tags, 'u0'), array_positions(tags, 't1') from account where id < 4 order by id

select array[id, id * 2], array[[id, 1], [2, 3]] from sparse where id < 3 order by id

select max(tags), min(tags) from account

select array_agg(distinct tags[1] order by tags[1] desc) from account

select id, array_upper(tags, 1), array_lower(tags, 1), array_dims(tags), array_ndims(tags) from account where id in (1, 5) order by id

select tags from account where tags > '{t1}' order by tags, id limit 4

select id from sparse where array[a, id] > array[1, 1]::bigint[] order by id

select id from sparse where row(a, id) > row(1, 1) order by id

select id from sparse where a = any (select d from digit) order by id

select id, array_fill(a, array[2]) from sparse where id < 4 order by id

select generate_subscripts(tags, 1) as i, id from account where id < 3 order by id, i

select a.id, b.id from account a join account b on a.tags = b.tags and a.id < b.id order by 1, 2

select x.id, array_agg(n.body order by n.id) from account x join note n on n.account between x.id and x.id + 2 where x.id < 5 group by x.id order by 1

select trim_array(tags, 1) from account where id < 4 order by id

select array_agg(s) from (select id from sparse order by id) s

select (array_agg(id order by balance desc, id))[1:3] from account

-- param: _int8 {1,3,5}
select id, owner from account where id = any ($1) order by id

-- param: _text {t1,t0}
select count(*) from account where tags && $1

-- fails: 22P02
select id from account where tags = 't1'

-- fails: 22004
select array_agg(tags order by id) from account where id in (5, 6)

-- fails: 42804
select id[1] from account

-- fails: 2202E
select array[array[id], array[id, a]] from sparse
