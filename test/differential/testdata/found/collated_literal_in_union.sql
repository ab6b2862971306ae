-- Found with -seed 31 -only 1000001/306 -shards 3: another error.

create table s1a (k text not null, vtxt varchar(20), id integer, primary key (k, id))

create table r2 (id integer, vtxt varchar(20), primary key (id))

-- keyspace: {"name":"{schema}_1","strategy":"range","key":["text"],"split_at":["A","a","it's","p","q","ü","日本語"]}

-- router
select cleave.shard_tables('{schema}.s1a(k)', keyspace => '{schema}_1')

-- router
select cleave.reference_tables('{schema}.r2')

-- unordered
(select ('b' collate "C") as c2 from s1a as t1) union all (select distinct vtxt as c2 from r2 as t2)

