#!/usr/bin/env bash
# Installs what the client suite needs and this machine lacks: the runtimes and client libraries of Python, Java and Node,
# from the distribution's packages where it has them. Go's libraries come with the suite's module.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
"$here/install.sh"
. "$here/packages.sh"

# The suite uses the distribution's Python, whose packages these are, and no other that may come first in PATH.
has_python() { /usr/bin/python3 -c "import $1" 2>/dev/null; }

# Node's library is the distribution's only where Node itself is; otherwise it lies with the project's other tools.
node_modules="$here/../.tools/clients/node_modules"
node_pg_version=8.16.3
has_node_pg() {
  command -v node >/dev/null && NODE_PATH="$node_modules:/usr/share/nodejs" node -e 'require("pg")' 2>/dev/null
}

missing=()
has_python psycopg || missing+=(python3-psycopg)
has_python psycopg2 || missing+=(python3-psycopg2)
has_python sqlalchemy || missing+=(python3-sqlalchemy)
has_python django || missing+=(python3-django)
command -v javac >/dev/null || missing+=(default-jdk-headless)
[ -e /usr/share/java/postgresql.jar ] || missing+=(libpostgresql-jdbc-java)
if ! command -v node >/dev/null; then missing+=(nodejs node-pg); fi

install_packages "Install them; the suite leaves out the clients that it does not find." "${missing[@]}"

if ! has_node_pg; then
  if ! command -v npm >/dev/null; then
    echo "missing: node's library pg, and npm to fetch it." >&2
    exit 1
  fi
  mkdir -p "$(dirname "$node_modules")"
  npm install --silent --no-save --no-audit --no-fund --prefix "$(dirname "$node_modules")" "pg@$node_pg_version"
fi
