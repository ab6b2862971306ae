#!/usr/bin/env bash
# Makes the golden hash vectors with a real PostgreSQL server, started for this and stopped afterwards.
#
#   generate.sh OUT [SALT]
#
# OUT is the folder for the *.tsv files. SALT changes the pseudo-random values: the committed vectors use the default,
# the tests that compare with every server at hand use others. CLEAVE_PG_BIN chooses the server's binaries.
set -euo pipefail

out=$(cd "$1" && pwd)
salt=${2:-golden}
here=$(cd "$(dirname "$0")" && pwd)

bin=${CLEAVE_PG_BIN:-}
if [ -z "$bin" ]; then
  bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
fi
if [ -z "$bin" ] && command -v initdb >/dev/null; then
  bin=$(dirname "$(readlink -f "$(command -v initdb)")")
fi
if [ ! -x "$bin/initdb" ]; then
  echo "no PostgreSQL server binaries found: install PostgreSQL 15 or newer, or set CLEAVE_PG_BIN" >&2
  exit 1
fi

work=$(mktemp -d /tmp/cleave-golden.XXXXXX)
run=()
if [ "$(id -u)" -eq 0 ]; then # PostgreSQL refuses to run as root
  chown nobody "$work"
  run=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)
fi
server=""
stop() {
  if [ -n "$server" ]; then kill -INT "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap stop EXIT

"${run[@]}" "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$work/initdb.log" 2>&1 ||
  { cat "$work/initdb.log" >&2; exit 1; }
"${run[@]}" "$bin/postgres" -D "$work/data" -k "$work" -c listen_addresses= -c fsync=off >"$work/server.log" 2>&1 &
server=$!
export PGHOST=$work PGUSER=postgres PGDATABASE=postgres PGOPTIONS='-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres' PGTZ=UTC
for _ in $(seq 100); do
  if psql -qXtc 'select 1' >/dev/null 2>&1; then break; fi
  if ! kill -0 "$server" 2>/dev/null; then cat "$work/server.log" >&2; exit 1; fi
  sleep 0.1
done

psql -qX -v ON_ERROR_STOP=1 -v salt="$salt" -f "$here/values.sql" >/dev/null

# vectors NAME EXPRESSION VALUES-COLUMNS TABLE: one file, its expression in the first line.
vectors() {
  local name=$1 expression=$2 columns=$3 table=$4
  {
    printf '# %s\n' "$expression"
    psql -qX -v ON_ERROR_STOP=1 -c "copy (select $columns, seed, $expression from $table order by n) to stdout"
  } >"$out/$name.tsv"
}

int_hash() { printf 'hashint8extended(%s, hashint8extended((%s) >> 32, %s))' "$1" "$1" "$2"; }

vectors bigint      "$(int_hash a seed)" a bigints
vectors integer     "$(int_hash '(a)::bigint' seed)" a integers
vectors smallint    "$(int_hash '(a)::bigint' seed)" a smallints
vectors text        "hashtextextended(a, seed)" "encode(convert_to(a, 'UTF8'), 'hex')" texts
vectors varchar     "hashtextextended((a)::text, seed)" "encode(convert_to(a, 'UTF8'), 'hex')" varchars
vectors uuid        "uuid_hash_extended(a, seed)" a uuids
vectors date        "hash_array_extended(ARRAY[a], seed)" a dates
vectors timestamptz "hash_array_extended(ARRAY[a], seed)" a timestamptzs
vectors bytea       "hash_array_extended(ARRAY[a], seed)" "encode(a, 'hex')" byteas
vectors bigint+integer   "$(int_hash '(b)::bigint' "$(int_hash a seed)")" "a, b" bigint_integer
vectors text+bigint      "$(int_hash b 'hashtextextended(a, seed)')" "encode(convert_to(a, 'UTF8'), 'hex'), b" text_bigint
vectors uuid+date        "hash_array_extended(ARRAY[b], uuid_hash_extended(a, seed))" "a, b" uuid_date
vectors bigint+timestamptz+text \
  "hashtextextended(c, hash_array_extended(ARRAY[b], $(int_hash a seed)))" \
  "a, b, encode(convert_to(c, 'UTF8'), 'hex')" bigint_timestamptz_text
