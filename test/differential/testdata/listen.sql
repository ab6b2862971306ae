-- LISTEN and NOTIFY.

listen news

notify news

notify news, 'with a payload'

select pg_notify('news', 'by function')

-- session: other

notify news, 'from another'

-- session: main

-- wait

begin

notify news, 'at commit'

select 1

commit

begin

notify news, 'never'

rollback

select 1

-- Equal ones are told once.

begin

notify news, 'twice'

notify news, 'twice'

notify news, 'once'

commit

select * from pg_listening_channels()

unlisten news

notify news, 'not heard'

select 1

listen a

listen "Odd ""name"""

select * from pg_listening_channels() order by 1

notify "Odd ""name""", 'it''s'

unlisten *

select * from pg_listening_channels()

listen a

discard all

select * from pg_listening_channels()

begin

listen rolled_back

rollback

select * from pg_listening_channels()

-- Not everything can be said.

select pg_notify('', 'x')

select pg_notify('a', repeat('x', 8000))

-- The other has heard nothing, since it did not listen.

-- session: other

select 1
