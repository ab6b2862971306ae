#!/usr/bin/env bash
# Runs pgx's own tests, as a mirror held up to the router: against a plain PostgreSQL, started for it, and against the
# router, if the connection string of one is given. Prints how many pass there, how many here, and which fail only here.
#
#   test/clients/pgx-suite.sh
#   test/clients/pgx-suite.sh postgres://cleave@127.0.0.1:6432/cleave
#
# The suite needs the extensions hstore and ltree, a domain, and the role postgres. Where those cannot be made through the router, name the
# shards' connection strings, separated by blanks, in SETUP_DSNS. PGX_PACKAGES limits what is run (default ./...).
set -euo pipefail

version=v5.11.0
router=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

bin=${CLEAVE_PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)}
work=$(mktemp -d "${TMPDIR:-/tmp}/cleave-pgx-suite-XXXXXX")
chmod 711 "$work"
as_server=()
if [ "$(id -u)" -eq 0 ]; then as_server=(setpriv --reuid=postgres --regid=postgres --clear-groups); fi

clean_up() {
  if [ -f "$work/server/data/postmaster.pid" ]; then
    (cd / && "${as_server[@]}" "$bin/pg_ctl" -D "$work/server/data" -m immediate -w stop >/dev/null)
  fi
  rm -rf "$work"
}
trap clean_up EXIT

# A port that nobody listens on now.
free_port() {
  local port
  for port in $(shuf -i 20000-32000 -n 50); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  return 1
}

start_plain() {
  mkdir "$work/server"
  if [ "$(id -u)" -eq 0 ]; then chown postgres: "$work/server"; fi
  port=$(free_port)
  (
    cd /
    "${as_server[@]}" "$bin/initdb" -D "$work/server/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$work/initdb.log"
    "${as_server[@]}" "$bin/pg_ctl" -D "$work/server/data" -l "$work/server/log" -w start \
      -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_prepared_transactions=20 -c wal_level=logical" >/dev/null
  )
  psql -qX -d "postgres://postgres@127.0.0.1:$port/postgres" -c "CREATE DATABASE pgx_test"
}

set_up() {
  local dsn statement
  for dsn in "$@"; do
    for statement in "CREATE EXTENSION hstore" "CREATE EXTENSION ltree" "CREATE DOMAIN uint64 AS numeric(20,0)" "CREATE ROLE postgres SUPERUSER LOGIN"; do
      if ! psql -qX -d "$dsn" -c "$statement" >/dev/null 2>"$work/setup.log" && ! grep -q "already exists" "$work/setup.log"; then
        echo "set-up, $statement: $(cat "$work/setup.log")" >&2
      fi
    done
  done
}

# The tests' failures are the result, not a failure of this script.
run_suite() {
  (cd "$work/pgx" && PGX_TEST_DATABASE="$1" go test -count=1 -timeout 10m -json "${PGX_PACKAGES:-./...}" 2>"$work/errors.log") >"$2" || true
  if [ ! -s "$2" ]; then
    cat "$work/errors.log" >&2
    exit 1
  fi
}

sources=$(go mod download -json "github.com/jackc/pgx/v5@$version" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
cp -r "$sources" "$work/pgx"
chmod -R u+w "$work/pgx"
go build -o "$work/suitediff" ./cmd/suitediff

start_plain
plain="postgres://postgres@127.0.0.1:$port/pgx_test"
set_up "$plain"
echo "pgx $version against plain PostgreSQL (there)" >&2
run_suite "$plain" "$work/there.json"
if [ -z "$router" ]; then
  "$work/suitediff" "$work/there.json"
  exit
fi
# shellcheck disable=SC2086 # several connection strings are several words
set_up ${SETUP_DSNS:-$router}
echo "pgx $version against the router (here)" >&2
run_suite "$router" "$work/here.json"
"$work/suitediff" "$work/there.json" "$work/here.json"
