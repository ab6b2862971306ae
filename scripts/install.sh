#!/usr/bin/env bash
# Installs from the distribution's packages what the tests need and this machine lacks: a C compiler, for the race
# detector, and PostgreSQL's server.
set -euo pipefail

. "$(dirname "$0")/packages.sh"

has_postgres() {
  if [ -n "${CLEAVE_PG_BIN:-}" ] && [ -x "$CLEAVE_PG_BIN/initdb" ]; then return 0; fi
  if command -v initdb >/dev/null && command -v postgres >/dev/null; then return 0; fi
  for dir in /usr/lib/postgresql/*/bin; do
    if [ -x "$dir/initdb" ]; then return 0; fi
  done
  return 1
}

missing=()
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
has_postgres || missing+=(postgresql)
command -v psql >/dev/null || missing+=(postgresql-client)
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

# The package would start a server of its own on port 5432; tests and dev start theirs.
if command -v apt-get >/dev/null && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  as_root mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
install_packages "Install them, PostgreSQL 15 or newer, or set CLEAVE_PG_BIN to the folder that holds initdb." "${missing[@]}"
