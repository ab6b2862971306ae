#!/usr/bin/env bash
# Installs from the distribution's packages the applications that test/apps moves in, and that this machine lacks.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
"$here/install.sh"

# They are the distribution's Python's, and no other's that may come first in PATH.
has_python() { /usr/bin/python3 -c "import $1" 2>/dev/null; }

missing=()
has_python psycopg2 || missing+=(python3-psycopg2)
has_python hyperkitty || missing+=(python3-django-hyperkitty)
has_python postorius || missing+=(python3-django-postorius)
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}. Install them; the suite leaves out the applications that it does not find." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
echo "installing ${missing[*]} from the distribution's packages" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
