-- TRUNCATE.

create table tru (k bigint primary key, n int)

create table tru_line (k bigint not null, n int, primary key (k, n), foreign key (k) references tru (k))

create table tru_ref (id int primary key)

create table tru_home (id int)

create table tru_other (place text primary key)

-- router
select cleave.shard_tables('{schema}.tru(k), {schema}.tru_line(k)', keyspace => 'ground_bigint')

-- router
select cleave.reference_table('{schema}.tru_ref')

-- router
select cleave.shard_tables('{schema}.tru_other(place)', keyspace => 'ground_text')

insert into tru select i, i from generate_series(1, 20) i

insert into tru_line select i, 1 from generate_series(1, 20) i

insert into tru_ref select i from generate_series(1, 5) i

insert into tru_home select i from generate_series(1, 5) i

insert into tru_other values ('a'), ('b'), ('c')

-- fails: 0A000
truncate tru

select count(*) from tru

truncate tru_line

select count(*) from tru_line

insert into tru_line select i, 2 from generate_series(1, 10) i

truncate tru, tru_line

select (select count(*) from tru), (select count(*) from tru_line)

insert into tru select i, i from generate_series(1, 8) i

insert into tru_line select i, 3 from generate_series(1, 8) i

truncate tru cascade

select count(*) from tru_line

insert into tru values (1, 1), (2, 2), (3, 3)

begin

truncate tru, tru_line

select count(*) from tru

rollback

select count(*) from tru

begin

insert into tru values (50, 50)

savepoint s

truncate tru_line, tru

rollback to s

select count(*), max(k) from tru

commit

truncate table only tru_line restrict

truncate tru_line restart identity

truncate tru_line continue identity

truncate tru_ref

select count(*) from tru_ref

truncate tru_home

select count(*) from tru_home

truncate tru_other

select count(*) from tru_other

insert into tru_ref values (1)

insert into tru_home values (1)

-- expect: refused: TRUNCATE TABLE over things on several shards is not supported yet
truncate tru_ref, tru_home, tru_line

select (select count(*) from tru_ref) + (select count(*) from tru_home)

-- fails: 42P01
truncate nothing

-- expect: different: refused before the table is found missing (42P01)
-- fails: 42P01
truncate tru_line, nothing

-- fails: 0A000
truncate tru, tru_ref
