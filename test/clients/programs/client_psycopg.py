"""psycopg, the third: server-side binding, pipelines, binary and text."""

import datetime
import decimal
import threading
import uuid

import psycopg
from psycopg.types.json import Jsonb

from suite import FAILURES, MANY, NOTICE, NOTICE_TEXT, ORDERS, case, equal, fails, run, sharded


def connect(**options):
    options.setdefault("autocommit", True)
    return psycopg.connect("", **options)


def table(connection, name, columns):
    connection.execute(f"DROP TABLE IF EXISTS {name}")
    connection.execute(f"CREATE TABLE {name} ({columns})")


def wants(state, function):
    fails(psycopg.Error, lambda error: error.sqlstate, state, function)


@case
def connect_():
    with connect(application_name="psycopg client") as c:
        equal(c.execute("SELECT current_setting('application_name')").fetchone(), ("psycopg client",))
        equal(c.info.encoding, "utf-8")
        assert c.info.server_version >= 140000
    try:
        connect(dbname="no_such_database").close()
    except psycopg.OperationalError as error:
        assert "no_such_database" in str(error), error
    else:
        raise AssertionError("connected to a database that is not there")


connect_.__name__ = "connect"


@case
def types():
    row = (
        7, 1 << 60, decimal.Decimal("12345.67890"), 0.1, "grüße \\ ' \"", b"\x00\x01\xff", True,
        datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=datetime.timezone.utc),
        uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"), [1, 2, 3], None,
    )
    with connect() as c:
        table(c, "psycopg_types", "a integer, b bigint, c numeric(20,5), d float8, e text, f bytea, g boolean, h date, i timestamptz, j uuid, k integer[], l text, m jsonb")
        marks = ", ".join(["%s"] * (len(row) + 1))
        for binary in (False, True):
            c.execute("TRUNCATE psycopg_types")
            c.execute(f"INSERT INTO psycopg_types VALUES ({marks})", (*row, Jsonb({"a": 1})), binary=binary)
            equal(c.execute("SELECT * FROM psycopg_types", binary=binary).fetchone(), (*row, {"a": 1}))
        c.execute("DROP TABLE psycopg_types")


@case
def transaction():
    with connect() as c:
        table(c, "psycopg_transaction", "n integer")
        with c.transaction():
            c.execute("INSERT INTO psycopg_transaction VALUES (1)")
        with c.transaction(force_rollback=True):
            c.execute("INSERT INTO psycopg_transaction VALUES (2)")
        equal(c.execute("SELECT n FROM psycopg_transaction").fetchall(), [(1,)])
    with connect(autocommit=False) as c:
        c.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        c.read_only = True
        wants("25006", lambda: c.execute("INSERT INTO psycopg_transaction VALUES (3)"))
        wants("25P02", lambda: c.execute("SELECT 1"))
        c.rollback()
        c.read_only = False
        c.execute("DROP TABLE psycopg_transaction")


@case
def savepoint():
    with connect() as c:
        table(c, "psycopg_savepoint", "n integer PRIMARY KEY")
        with c.transaction():
            c.execute("INSERT INTO psycopg_savepoint VALUES (1)")

            def twice():
                with c.transaction():
                    c.execute("INSERT INTO psycopg_savepoint VALUES (1)")

            wants("23505", twice)
            c.execute("INSERT INTO psycopg_savepoint VALUES (2)")
        equal(c.execute("SELECT sum(n) FROM psycopg_savepoint").fetchone(), (3,))
        c.execute("DROP TABLE psycopg_savepoint")


@case
def error():
    with connect() as c:
        for statement, state in FAILURES.items():
            wants(state, lambda: c.execute(statement))
            equal(c.execute("SELECT 1").fetchone(), (1,))
        table(c, "psycopg_error", "n integer CONSTRAINT psycopg_error_key PRIMARY KEY")
        c.execute("INSERT INTO psycopg_error VALUES (1)")
        try:
            c.execute("INSERT INTO psycopg_error VALUES (1)")
        except psycopg.errors.UniqueViolation as why:
            equal((why.diag.constraint_name, why.diag.table_name), ("psycopg_error_key", "psycopg_error"))
        c.execute("DROP TABLE psycopg_error")


@case
def prepared():
    with connect() as c:
        for n in range(20):  # from the sixth on it is prepared by itself
            equal(c.execute("SELECT %s::integer * 2", (n,)).fetchone(), (2 * n,))
        for n in range(5):
            equal(c.execute("SELECT %s::integer * 3", (n,), prepare=True).fetchone(), (3 * n,))


@case
def pipeline():
    with connect() as c, c.pipeline():
        cursors = [c.execute("SELECT %s::integer * 2", (n,)) for n in range(50)]
        equal([cursor.fetchone()[0] for cursor in cursors], [2 * n for n in range(50)])


@case
def cursor():
    with connect(autocommit=False) as c:
        with c.cursor(name="server_side") as rows:
            rows.itersize = 100
            rows.execute("SELECT n FROM generate_series(1, 1000) n")
            equal(sum(n for (n,) in rows), 500500)
        with c.cursor(name="scrolling", scrollable=True) as rows:
            rows.execute("SELECT n FROM generate_series(1, 10) n")
            rows.scroll(5)
            equal(rows.fetchmany(2), [(6,), (7,)])
    with connect() as c:
        equal(sum(n for (n,) in c.cursor().stream("SELECT n FROM generate_series(1, 1000) n")), 500500)


@case
def copy():
    with connect() as c:
        table(c, "psycopg_copy", "n integer, word text")
        with c.cursor() as cursor:
            with cursor.copy("COPY psycopg_copy FROM STDIN") as into:
                for n in range(10000):
                    into.write_row((n, f"word {n}"))
            with cursor.copy("COPY (SELECT * FROM psycopg_copy ORDER BY n) TO STDOUT") as out:
                rows = list(out.rows())
        equal((len(rows), rows[-1]), (10000, ("9999", "word 9999")))

        def broken():
            with c.cursor().copy("COPY psycopg_copy FROM STDIN") as into:
                into.write("no number\tword\n")

        wants("22P02", broken)
        equal(c.execute("SELECT count(*) FROM psycopg_copy").fetchone(), (10000,))
        c.execute("DROP TABLE psycopg_copy")


@case
def cancel():
    with connect() as c:
        timer = threading.Timer(0.3, c.cancel)
        timer.start()
        wants("57014", lambda: c.execute("SELECT pg_sleep(60)"))
        timer.join()
        equal(c.execute("SELECT 1").fetchone(), (1,))


@case
def notice():
    heard = []
    with connect() as c:
        c.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))
        c.execute(NOTICE)
    equal(heard, [NOTICE_TEXT])


@case
def big():
    with connect() as c:
        rows = c.execute("SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n").fetchall()
        equal((sum(n for n, _ in rows), len(rows[-1][1])), (1250025000, 200))
        equal(len(c.execute("SELECT %s::text", ("y" * (5 << 20),)).fetchone()[0]), 5 << 20)


@case
def many():
    connections = [connect() for _ in range(MANY)]
    for i, c in enumerate(connections):
        equal(c.execute("SELECT %s::integer", (i,)).fetchone(), (i,))
    for c in connections:
        c.close()


@sharded
def sharded():
    with connect() as c:
        for user in range(20):
            for number in range(3):
                c.execute(f"INSERT INTO {ORDERS} (user_id, id, note) VALUES (%s, %s, %s)", (user, number, "order"))
            equal(c.execute(f"SELECT count(*) FROM {ORDERS} WHERE user_id = %s", (user,)).fetchone(), (3,))
            with c.transaction():
                equal(c.execute(f"UPDATE {ORDERS} SET note = %s WHERE user_id = %s", ("changed", user)).rowcount, 3)
                equal(c.execute(f"DELETE FROM {ORDERS} WHERE user_id = %s AND id = %s", (user, 2)).rowcount, 1)
            for binary in (False, True):
                found = c.execute(f"SELECT id, note FROM {ORDERS} WHERE user_id = %s ORDER BY id", (user,), binary=binary).fetchall()
                equal(found, [(0, "changed"), (1, "changed")])
        wants("23505", lambda: c.execute(f"INSERT INTO {ORDERS} VALUES (%s, %s, %s)", (1, 0, "twice")))


run()
