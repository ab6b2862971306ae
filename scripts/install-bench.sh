#!/usr/bin/env bash
# Installs from the distribution's packages what the router's benchmarks need and this machine lacks: pgbench, which comes
# with PostgreSQL's server, and pgbouncer, the peer to be measured beside.
set -euo pipefail

"$(dirname "$0")/install.sh"

# The distribution puts some servers where only root's PATH looks.
PATH="$PATH:/usr/sbin"
if command -v pgbouncer >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
  echo "missing: pgbouncer. Install it, or leave it out with -targets." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
echo "installing pgbouncer from the distribution's packages" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q

# The package would start a service on port 6432, which is the router's; the benchmarks start their own elsewhere.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
  "${as_root[@]}" chmod 755 $policy
  trap '"${as_root[@]}" rm -f $policy' EXIT
fi
"${as_root[@]}" apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold pgbouncer
if command -v systemctl >/dev/null; then
  "${as_root[@]}" systemctl disable pgbouncer.service >/dev/null 2>&1 || true
fi
