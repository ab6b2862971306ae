-- What all topics read, and none of them changes. Two keyspaces, a reference table, and tables that are not declared.

create table account (id bigint primary key, owner text, region text, balance numeric(12, 2), opened date, kind varchar(8), code char(4), active boolean, rate float8, tags text[], info jsonb)

create table entry (account bigint not null, n int not null, amount numeric(10, 2), kind text, at timestamp, primary key (account, n))

create table event (place text not null, n int not null, at timestamptz, weight float8, span interval, primary key (place, n))

create table many (id int primary key, two int, ten int, hundred int, odd boolean, word text)

create table hollow (id bigint primary key, a int, b text)

create table sparse (id bigint primary key, a int, b text, c boolean)

create table region (code text primary key, name text, parent text)

create table note (id int primary key, account bigint, body text)

create table digit (d int)

-- keyspace: {"name": "ground_bigint", "key": ["bigint"], "seed": "19"}

-- keyspace: {"name": "ground_int", "key": ["integer"], "seed": "19"}

-- keyspace: {"name": "ground_text", "key": ["text"], "seed": "19"}

-- router
select cleave.shard_tables('{schema}.account(id), {schema}.entry(account), {schema}.sparse(id), {schema}.hollow(id)', keyspace => 'ground_bigint')

-- router
select cleave.shard_tables('{schema}.event(place)', keyspace => 'ground_text')

-- router
select cleave.shard_tables('{schema}.many(id)', keyspace => 'ground_int')

-- router
select cleave.reference_table('{schema}.region')

insert into region values ('eu', 'Europe', null), ('us', 'America', null), ('nl', 'Netherlands', 'eu'), ('de', 'Germany', 'eu'), ('ca', 'California', 'us'), ('xx', null, 'yy')

insert into account select i, (array['ann', 'Bob', 'cid', 'Dée', 'eve', null])[i % 6 + 1], (array['nl', 'de', 'ca', 'us', 'zz'])[i % 5 + 1], (i * 37 % 101) * 10.25 - 100, date '2020-01-31' + i * 17, (array['basic', 'gold', null])[i % 3 + 1], (array['a', 'bb', 'ccc', 'dddd'])[i % 4 + 1], case i % 4 when 0 then null when 1 then true else false end, i / 4.0, case when i % 5 > 0 then array['t' || i % 3, 'u' || i % 2, 't' || i % 7] end, jsonb_build_object('n', i, 'list', jsonb_build_array(i, i % 3, null), 'deep', jsonb_build_object('k', 'v' || i % 4)) from generate_series(1, 30) i

insert into entry select a, n, (a * n % 13) * 2.5 - 4, (array['in', 'out', 'fee'])[(a + n) % 3 + 1], timestamp '2021-03-01 10:00' + (a * 7 + n) * interval '5 hours' from generate_series(1, 22) a, generate_series(1, 4) n where (a + n) % 5 > 0

insert into event select (array['aa', 'b', 'Bb', 'côte', 'd d'])[p], n, timestamptz '2022-06-01 12:00+02' + (p * 31 + n * 11) * interval '1 hour', p + n / 8.0, make_interval(days => p, hours => n * 7) from generate_series(1, 5) p, generate_series(1, 7) n

insert into many select i, i % 2, i % 10, i % 100, i % 2 = 1, chr(97 + i % 26) || chr(97 + i / 26 % 26) from generate_series(0, 399) i

insert into sparse values (1, 1, 'x', true), (2, 1, null, null), (3, null, 'x', false), (4, null, null, null), (5, 2, 'y', true), (6, 2, 'y', false), (7, 0, '', true), (8, -1, 'é', null)

insert into note select i, i * 2, (array['first', 'second', null])[i % 3 + 1] || ' ' || i from generate_series(1, 14) i

insert into digit select generate_series(0, 9)
