-- What tools ask the catalogue, without the numbers that differ.

create table t (id bigint primary key, name varchar(20) not null default 'x', amount numeric(8, 2), tags text[], made timestamptz(3), check (amount > 0))

create index t_name on t (name) where amount > 5

create view v as select id, name from t

create sequence s

create function f(a int, b text default 'x') returns int language sql immutable as 'select 1'

comment on column t.name is 'what it is called'

-- As psql's \dt, \dv, \ds, \di.

select n.nspname = '{schema}' as here, c.relname, case c.relkind when 'r' then 'table' when 'v' then 'view' when 'i' then 'index' when 'S' then 'sequence' end as kind, pg_catalog.pg_get_userbyid(c.relowner) as owner
from pg_catalog.pg_class c left join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'v', 'i', 'S') and n.nspname = '{schema}' and pg_catalog.pg_table_is_visible(c.oid) order by 2

-- As psql's \d t.

select c.relname from pg_catalog.pg_class c left join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relname operator(pg_catalog.~) '^(t)$' collate pg_catalog.default and pg_catalog.pg_table_is_visible(c.oid)

select c.relchecks, c.relkind, c.relhasindex, c.relhasrules, c.relhastriggers, c.relrowsecurity, c.relforcerowsecurity, c.relispartition, '', c.reltablespace, case when c.reloftype = 0 then '' else c.reloftype::pg_catalog.regtype::pg_catalog.text end, c.relpersistence, c.relreplident, am.amname
from pg_catalog.pg_class c left join pg_catalog.pg_am am on (c.relam = am.oid) where c.oid = 't'::regclass

select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (select pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) from pg_catalog.pg_attrdef d where d.adrelid = a.attrelid and d.adnum = a.attnum and a.atthasdef), a.attnotnull, a.attidentity, a.attgenerated
from pg_catalog.pg_attribute a where a.attrelid = 't'::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum

select c2.relname, i.indisprimary, i.indisunique, i.indisvalid, replace(pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), '{schema}', 'here'), pg_catalog.pg_get_constraintdef(con.oid, true), contype
from pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i left join pg_catalog.pg_constraint con on (con.conrelid = i.indrelid and con.conindid = i.indexrelid and con.contype in ('p', 'u', 'x'))
where c.oid = 't'::regclass and c.oid = i.indrelid and i.indexrelid = c2.oid order by i.indisprimary desc, c2.relname

select r.conname, pg_catalog.pg_get_constraintdef(r.oid, true) from pg_catalog.pg_constraint r where r.conrelid = 't'::regclass and r.contype = 'c' order by 1

select pg_catalog.pg_get_viewdef('v'::regclass, true)

select col_description('t'::regclass, 2)

-- As psql's \df, \dn, \du, \dT, \l.

select p.proname, pg_catalog.pg_get_function_result(p.oid), pg_catalog.pg_get_function_arguments(p.oid), p.prokind from pg_catalog.pg_proc p left join pg_catalog.pg_namespace n on n.oid = p.pronamespace where n.nspname = '{schema}' order by 1

select nspname from pg_catalog.pg_namespace where nspname !~ '^pg_' and nspname = '{schema}'

select datname, pg_catalog.pg_encoding_to_char(encoding) from pg_catalog.pg_database where datname = current_database()

-- As drivers and mappers ask.

select table_name, table_type from information_schema.tables where table_schema = '{schema}' order by 1

select column_name, data_type, is_nullable, column_default, character_maximum_length, numeric_precision, numeric_scale, ordinal_position from information_schema.columns where table_schema = '{schema}' and table_name = 't' order by ordinal_position

select constraint_name, constraint_type from information_schema.table_constraints where table_schema = '{schema}' and constraint_type = 'PRIMARY KEY'

select k.column_name from information_schema.key_column_usage k where k.table_schema = '{schema}' order by 1

select t.typname, t.typlen, t.typtype from pg_type t where t.oid in (16, 20, 23, 25, 1043, 1114, 1184, 1700, 2950, 3802) order by t.oid

select 't'::regclass::text, to_regclass('missing') is null, to_regtype('int8')::text, 'f(int, text)'::regprocedure::text

select has_table_privilege('t', 'select'), has_schema_privilege('{schema}', 'usage'), pg_table_is_visible('t'::regclass)

select pg_get_serial_sequence('t', 'id')

select current_setting('server_version_num')::int > 150000, version() like 'PostgreSQL%', pg_backend_pid() > 0, pg_is_in_recovery()

select count(*) > 0 from pg_stat_activity where pid = pg_backend_pid()

select pg_relation_size('t'), pg_total_relation_size('t') > 0

select setting from pg_settings where name = 'work_mem'

-- A system table beside one of ours.

select count(*) from t, pg_class c where c.oid = 't'::regclass

select relname from pg_class where relname = 't' and relnamespace = '{schema}'::regnamespace

drop function f(int, text)

drop view v

drop table t

drop sequence s

-- What was dropped is gone.

select count(*) from pg_class where relnamespace = '{schema}'::regnamespace
