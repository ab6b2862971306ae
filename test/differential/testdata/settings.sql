-- What a session sets, and what becomes of it.

select 1

-- Plain SET, SHOW and RESET.

set work_mem = '5MB'

show work_mem

select current_setting('work_mem')

set session work_mem to '6MB'

show work_mem

reset work_mem

show work_mem

set work_mem to default

-- Settings that the server tells the client about.

set timezone = 'America/New_York'

select '2024-07-01 12:00:00+00'::timestamptz

set time zone 'Europe/Paris'

select '2024-07-01 12:00:00+00'::timestamptz

set time zone -3

show timezone

set time zone local

-- expect: refused: this form of SET TIMEZONE
set time zone interval '+02:30' hour to minute

select '2024-07-01 12:00:00+00'::timestamptz

reset timezone

set datestyle = 'German, DMY'

select '2024-07-01'::date, '01.02.2024'::date

set datestyle to iso, mdy

select '2024-07-01'::date, '01/02/2024'::date

reset datestyle

set intervalstyle = 'iso_8601'

select interval '1 year 2 days 3 hours'

reset intervalstyle

set application_name = 'one'

show application_name

set application_name to 'with ''quotes'' and "more"'

select current_setting('application_name')

reset application_name

show application_name

set client_encoding = 'UTF8'

show client_encoding

set standard_conforming_strings = on

set names 'UTF8'

-- Lists and quoted names.

set search_path to "$user", public, "Odd ""schema"""

show search_path

set search_path to nowhere, public, "Odd ""schema""", pg_catalog

select current_schemas(false)

set search_path = public

show search_path

set search_path to ''

show search_path

select current_schemas(true)

reset search_path

show search_path

set schema 'public'

show search_path

reset search_path

-- SET LOCAL lives until the end of the transaction.

begin

set local work_mem = '7MB'

show work_mem

commit

show work_mem

begin

set work_mem = '8MB'

savepoint a

set work_mem = '9MB'

set local enable_seqscan = off

show work_mem

rollback to a

show work_mem

show enable_seqscan

commit

show work_mem

begin

set work_mem = '10MB'

set timezone = 'Asia/Tokyo'

rollback

show work_mem

show timezone

begin

set local timezone = 'Asia/Tokyo'

show timezone

commit

show timezone

-- Outside of a transaction it does nothing but warn.

set local work_mem = '11MB'

show work_mem

-- A setting in a transaction that fails.

begin

set work_mem = '12MB'

select 1/0

show work_mem

commit

show work_mem

-- By function.

select set_config('work_mem', '13MB', false)

show work_mem

begin

select set_config('work_mem', '14MB', true)

show work_mem

commit

show work_mem

select set_config('work_mem', null, false)

-- Parameters of one's own.

set my.own = 'x'

show my.own

select current_setting('my.own'), current_setting('my.missing', true)

select current_setting('my.missing')

reset my.own

show my.own

-- Everything at once.

set work_mem = '15MB'

set timezone = 'Asia/Tokyo'

reset all

show work_mem

show timezone

set work_mem = '16MB'

discard all

show work_mem

show search_path

begin

discard all

rollback

discard plans

discard sequences

discard temp

-- What cannot be set.

set nothing = 1

set work_mem = 'much'

set work_mem = -5

set work_mem = 1, 2

set timezone = 'Nowhere/Land'

set server_version = '1'

set block_size = 1

set shared_buffers = '1GB'

show nothing

reset nothing

set transaction_isolation = 'nonsense'

-- Transactions have settings too.

show transaction_isolation

set default_transaction_isolation = 'repeatable read'

show transaction_isolation

begin

show transaction_isolation

commit

reset default_transaction_isolation

set session characteristics as transaction isolation level serializable

show default_transaction_isolation

set session characteristics as transaction isolation level read committed

set default_transaction_read_only = on

create table not_made (a int)

reset default_transaction_read_only

-- Who one is.

select current_user, session_user, current_database(), current_schema

create role {schema}_role

set role {schema}_role

select current_user = session_user

reset role

select current_user = session_user

begin

set local role {schema}_role

select current_user = session_user

rollback

select current_user = session_user

set session authorization {schema}_role

select current_user = session_user

reset session authorization

set role none

set role no_such_role_at_all

drop role {schema}_role

-- Settings of one session are not another's.

set work_mem = '17MB'

-- session: other

show work_mem

set work_mem = '18MB'

-- session: main

show work_mem

-- session: other

show work_mem
