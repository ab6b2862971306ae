#!/usr/bin/env bash
# Makes sure PostgreSQL's server binaries are on this machine: installs the distribution's package if none is found.
set -euo pipefail

if [ -n "${CLEAVE_PG_BIN:-}" ] && [ -x "$CLEAVE_PG_BIN/initdb" ]; then exit 0; fi
if command -v initdb >/dev/null && command -v postgres >/dev/null; then exit 0; fi
for dir in /usr/lib/postgresql/*/bin; do
  if [ -x "$dir/initdb" ]; then exit 0; fi
done

if ! command -v apt-get >/dev/null; then
  echo "PostgreSQL 15 or newer is needed: install its server package, or set CLEAVE_PG_BIN to the folder that holds initdb" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then as_root="sudo"; fi
echo "installing PostgreSQL from the distribution's packages" >&2
# The package would start a server of its own on port 5432; tests and dev start theirs.
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
$as_root mkdir -p /etc/postgresql-common
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  echo "create_main_cluster = false" | $as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
$as_root apt-get install -y -q --no-install-recommends postgresql
