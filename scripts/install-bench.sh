#!/usr/bin/env bash
# Installs from the distribution's packages what the router's benchmarks need and this machine lacks: pgbench, which comes
# with PostgreSQL's server, and pgbouncer, the peer to be measured beside.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
"$here/install.sh"
. "$here/packages.sh"

# The distribution puts some servers where only root's PATH looks.
PATH="$PATH:/usr/sbin"
if command -v pgbouncer >/dev/null; then exit 0; fi

# The package would start a service on port 6432, which is the router's; the benchmarks start their own elsewhere.
policy=/usr/sbin/policy-rc.d
if command -v apt-get >/dev/null && [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
  as_root chmod 755 $policy
  trap 'as_root rm -f $policy' EXIT
fi
install_packages "Install it, or leave it out with -targets." pgbouncer
if command -v systemctl >/dev/null; then
  as_root systemctl disable pgbouncer.service >/dev/null 2>&1 || true
fi
