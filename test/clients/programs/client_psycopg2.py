"""psycopg2: the simple protocol alone, with values written into the text by the client."""

import datetime
import decimal
import io
import threading

import psycopg2
import psycopg2.extras

from suite import FAILURES, MANY, NOTICE, NOTICE_TEXT, ORDERS, case, equal, fails, run, sharded


def connect(autocommit=True, **options):
    connection = psycopg2.connect("", **options)
    connection.autocommit = autocommit
    return connection


def query(connection, text, values=None):
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return cursor.fetchall() if cursor.description else cursor.rowcount


def table(connection, name, columns):
    query(connection, f"DROP TABLE IF EXISTS {name}")
    query(connection, f"CREATE TABLE {name} ({columns})")


def wants(state, function):
    fails(psycopg2.Error, lambda error: error.pgcode, state, function)


@case
def connect_():
    c = connect(application_name="psycopg2 client")
    equal(query(c, "SELECT current_setting('application_name')"), [("psycopg2 client",)])
    equal((c.encoding, c.get_parameter_status("standard_conforming_strings")), ("UTF8", "on"))
    c.close()
    try:
        connect(dbname="no_such_database").close()
    except psycopg2.OperationalError as error:
        assert "no_such_database" in str(error), error
    else:
        raise AssertionError("connected to a database that is not there")


connect_.__name__ = "connect"


@case
def types():
    row = (
        7, 1 << 60, decimal.Decimal("12345.67890"), 0.1, "grüße \\ ' \"", True, datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 12, 34, 56, 789000, tzinfo=datetime.timezone.utc), [1, 2, 3], None,
    )
    c = connect()
    table(c, "psycopg2_types", "a integer, b bigint, c numeric(20,5), d float8, e text, f boolean, g date, h timestamptz, i integer[], j text, k bytea, l jsonb")
    marks = ", ".join(["%s"] * (len(row) + 2))
    query(c, f"INSERT INTO psycopg2_types VALUES ({marks})", (*row, psycopg2.Binary(b"\x00\x01\xff"), psycopg2.extras.Json({"a": 1})))
    (got,) = query(c, "SELECT * FROM psycopg2_types")
    equal((*got[:10], bytes(got[10]), got[11]), (*row, b"\x00\x01\xff", {"a": 1}))
    query(c, "DROP TABLE psycopg2_types")
    c.close()


@case
def transaction():
    c = connect(autocommit=False)
    table(c, "psycopg2_transaction", "n integer")
    c.commit()
    query(c, "INSERT INTO psycopg2_transaction VALUES (1)")
    c.rollback()
    with c:
        query(c, "INSERT INTO psycopg2_transaction VALUES (2)")
    equal(query(c, "SELECT n FROM psycopg2_transaction"), [(2,)])
    c.commit()
    c.set_session(isolation_level="SERIALIZABLE", readonly=True)
    wants("25006", lambda: query(c, "INSERT INTO psycopg2_transaction VALUES (3)"))
    wants("25P02", lambda: query(c, "SELECT 1"))
    c.rollback()
    c.set_session(readonly=False)
    query(c, "DROP TABLE psycopg2_transaction")
    c.commit()
    c.close()


@case
def savepoint():
    c = connect(autocommit=False)
    table(c, "psycopg2_savepoint", "n integer PRIMARY KEY")
    query(c, "INSERT INTO psycopg2_savepoint VALUES (1)")
    query(c, "SAVEPOINT s")
    wants("23505", lambda: query(c, "INSERT INTO psycopg2_savepoint VALUES (1)"))
    query(c, "ROLLBACK TO SAVEPOINT s")
    query(c, "INSERT INTO psycopg2_savepoint VALUES (2)")
    c.commit()
    equal(query(c, "SELECT sum(n) FROM psycopg2_savepoint"), [(3,)])
    query(c, "DROP TABLE psycopg2_savepoint")
    c.commit()
    c.close()


@case
def error():
    c = connect()
    for statement, state in FAILURES.items():
        wants(state, lambda: query(c, statement))
        equal(query(c, "SELECT 1"), [(1,)])
    c.close()


@case
def prepared():
    c = connect()
    query(c, "PREPARE twice(integer) AS SELECT $1 * 2")
    for n in range(10):
        equal(query(c, "EXECUTE twice(%s)", (n,)), [(2 * n,)])
    query(c, "DEALLOCATE twice")
    wants("26000", lambda: query(c, "EXECUTE twice(1)"))
    c.close()


@case
def batch():
    c = connect()
    table(c, "psycopg2_batch", "n integer, word text")
    rows = [(n, f"word {n}") for n in range(500)]
    with c.cursor() as cursor:
        psycopg2.extras.execute_values(cursor, "INSERT INTO psycopg2_batch VALUES %s", rows)
        psycopg2.extras.execute_batch(cursor, "UPDATE psycopg2_batch SET word = %s WHERE n = %s", [("changed", n) for n in range(250)])
    equal(query(c, "SELECT word = 'changed', count(*) FROM psycopg2_batch GROUP BY 1 ORDER BY 1"), [(False, 250), (True, 250)])
    query(c, "DROP TABLE psycopg2_batch")
    c.close()


@case
def cursor():
    c = connect(autocommit=False)
    with c.cursor("server_side") as rows:
        rows.itersize = 100
        rows.execute("SELECT n FROM generate_series(1, 1000) n")
        equal(sum(n for (n,) in rows), 500500)
    c.close()


@case
def copy():
    c = connect()
    table(c, "psycopg2_copy", "n integer, word text")
    with c.cursor() as rows:
        rows.copy_expert("COPY psycopg2_copy FROM STDIN", io.StringIO("".join(f"{n}\tword {n}\n" for n in range(10000))))
        out = io.StringIO()
        rows.copy_expert("COPY (SELECT * FROM psycopg2_copy ORDER BY n) TO STDOUT WITH CSV", out)
    lines = out.getvalue().splitlines()
    equal((len(lines), lines[-1]), (10000, "9999,word 9999"))

    def broken():
        with c.cursor() as rows:
            rows.copy_expert("COPY psycopg2_copy FROM STDIN", io.StringIO("no number\tword\n"))

    wants("22P02", broken)
    query(c, "DROP TABLE psycopg2_copy")
    c.close()


@case
def cancel():
    c = connect()
    timer = threading.Timer(0.3, c.cancel)
    timer.start()
    wants("57014", lambda: query(c, "SELECT pg_sleep(60)"))
    timer.join()
    equal(query(c, "SELECT 1"), [(1,)])
    c.close()


@case
def notice():
    c = connect()
    query(c, NOTICE)
    equal([line.strip() for line in c.notices], ["NOTICE:  " + NOTICE_TEXT])
    c.close()


@case
def big():
    c = connect()
    rows = query(c, "SELECT n, repeat('x', 200) FROM generate_series(1, 50000) n")
    equal((sum(n for n, _ in rows), len(rows[-1][1])), (1250025000, 200))
    equal(len(query(c, "SELECT %s", ("y" * (5 << 20),))[0][0]), 5 << 20)
    c.close()


@case
def many():
    connections = [connect() for _ in range(MANY)]
    for i, c in enumerate(connections):
        equal(query(c, "SELECT %s", (i,)), [(i,)])
    for c in connections:
        c.close()


@sharded
def sharded():
    c = connect(autocommit=False)
    for user in range(20):
        for number in range(3):
            query(c, f"INSERT INTO {ORDERS} (user_id, id, note) VALUES (%s, %s, %s)", (user, number, "order"))
        c.commit()
        equal(query(c, f"SELECT count(*) FROM {ORDERS} WHERE user_id = %s", (user,)), [(3,)])
        equal(query(c, f"UPDATE {ORDERS} SET note = %s WHERE user_id = %s", ("changed", user)), 3)
        equal(query(c, f"DELETE FROM {ORDERS} WHERE user_id = %s AND id = %s", (user, 2)), 1)
        c.commit()
        equal(query(c, f"SELECT id, note FROM {ORDERS} WHERE user_id = %s ORDER BY id", (user,)), [(0, "changed"), (1, "changed")])
        c.commit()
    c.close()


run()
