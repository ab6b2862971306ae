"""What the Python clients share: cases, and a line for each.

A case is a function with the decorator @case; run() calls them in order and prints "ok name", "not ok name: why" or
"skip name: why", which the Go test beside reads. Where a server is, libpq's variables say.
"""

import os
import sys
import traceback

_cases = []

# Statements that fail, with their SQLSTATE.
FAILURES = {
    "SELECT 1/0": "22012",
    "SELECT * FROM no_such_table": "42P01",
    "SELEC 1": "42601",
    "SELECT no_such_column": "42703",
    "SELECT 'x'::integer": "22P02",
}

# A statement that makes the server say something, and what.
NOTICE = "DROP TABLE IF EXISTS no_such_table"
NOTICE_TEXT = 'table "no_such_table" does not exist, skipping'

# The sharded table, where there is a router.
ORDERS = os.environ.get("ORDERS_TABLE")

MANY = 40


class Skip(Exception):
    """What a client cannot do, and why."""


def case(function):
    _cases.append(function)
    return function


def sharded(function):
    """A case that needs the router."""
    if ORDERS:
        _cases.append(function)
    return function


def equal(got, want):
    if got != want:
        raise AssertionError(f"got {got!r}, expected {want!r}")


def fails(error, state_of, state, function):
    """Expects the function to raise the error with the SQLSTATE."""
    try:
        function()
    except error as raised:
        equal(state_of(raised), state)
    else:
        raise AssertionError(f"nothing failed, expected SQLSTATE {state}")


def run():
    failed = False
    for function in _cases:
        name = function.__name__.rstrip("_")
        try:
            function()
            print(f"ok {name}", flush=True)
        except Skip as why:
            print(f"skip {name}: {why}", flush=True)
        except Exception as why:  # whatever it is, the other cases go on
            failed = True
            traceback.print_exc()
            print(f"not ok {name}: {type(why).__name__}: {str(why).strip().splitlines()[:1]}", flush=True)
    sys.exit(1 if failed else 0)
