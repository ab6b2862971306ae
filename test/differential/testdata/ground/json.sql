-- JSON.

select id, info from account where id < 4 order by id

select id, info -> 'n', info ->> 'n', info -> 'list' -> 0, info #>> '{deep,k}', info #> '{list,1}' from account where id < 4 order by id

select id from account where info @> '{"deep": {"k": "v1"}}' order by id

select id from account where info ? 'n' and (info ->> 'n')::int > 27 order by id

select id from account where info -> 'list' @> '[2]' order by id

select id from account where info @? '$.list[*] ? (@ == 3)' order by id

select id from account where info @@ '$.n > 28' order by id

select info -> 'deep' ->> 'k' as k, count(*) from account group by k order by k

select info -> 'deep' as k, sum((info ->> 'n')::int) from account group by 1 order by 1

select distinct info -> 'deep' from account order by 1 desc

select distinct info #> '{list,1}' from account order by 1

select info['deep']['k'], count(*) from account group by 1 order by 1

select jsonb_agg(info -> 'n' order by id) from account where id < 5

select json_agg(json_build_object('id', id, 'b', b) order by id) from sparse

select jsonb_object_agg(id, b) from sparse

select json_object_agg(b, id order by id) from sparse where b is not null

select json_agg(r order by r.code) from region r

select json_agg(s order by id) from sparse s

select row_to_json(s), to_jsonb(s) from sparse s order by id

select id, jsonb_array_elements(info -> 'list') from account where id < 3 order by 1, 2

select a.id, e from account a, jsonb_array_elements_text(a.info -> 'list') e where a.id < 4 order by 1, 2

select e, count(*) from account a, jsonb_array_elements(a.info -> 'list') e group by e order by 2 desc, e limit 5

select k, count(*) from account, jsonb_object_keys(info) k group by k order by k

select a.id, x.key, x.value from account a, jsonb_each(a.info) x where a.id = 2 order by key

select a.id, x.n, x.deep from account a, jsonb_to_record(a.info) x (n int, deep jsonb) where a.id < 3 order by 1

select jsonb_set(info, '{n}', '0'), info - 'list', info #- '{deep,k}', info || '{"x": 1}' from account where id = 2

select jsonb_pretty(info) from account where id = 1

select jsonb_typeof(info -> 'list'), jsonb_array_length(info -> 'list') from account where id < 3 order by id

select jsonb_strip_nulls(info), info::text from account where id = 3

select jsonb_path_query(info, '$.list[*]') from account where id < 3

select jsonb_path_query_first(info, '$.deep.k'), jsonb_path_exists(info, '$.n') from account where id < 3 order by id

select max((info ->> 'n')::numeric), min(info ->> 'n'), avg((info -> 'n')::int) from account

select info from account order by info limit 2

select info -> 'n' from account order by info -> 'n' desc limit 3

select count(distinct info -> 'deep') from account

select a.id, b.id from account a join account b on a.info -> 'deep' = b.info -> 'deep' and a.id < b.id where a.id < 3 and b.id < 12 order by 1, 2

select n.id, a.info ->> 'n' from note n join account a on (a.info ->> 'n')::int = n.account order by 1

select json_build_array(id, b, c), json_build_object(id, a) from sparse order by id

select array_to_json(tags), to_json(owner) from account where id < 4 order by id

select json_strip_nulls(row_to_json(s)) from sparse s order by id

select jsonb_build_object('total', sum(balance), 'n', count(*)) from account

select region, jsonb_object_agg(id, owner order by id) from account group by region order by region

select jsonb_agg(distinct kind) from account

select jsonb_populate_record(s, '{"b": "new"}') from sparse s where id < 3 order by 1

-- param: jsonb {"n": 5}
select id from account where info @> $1

-- fails: 22P02
select id from account where info = 'no json'

-- fails: 22023
select jsonb_array_length(info) from account where id = 1

-- fails: 42883
select min(info) from account

-- fails: 22023
select json_object_agg(b, id) from sparse
