#!/usr/bin/env bash
# Installs from the distribution's packages the applications that test/apps moves in, and that this machine lacks.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
"$here/install.sh"
. "$here/packages.sh"

# They are the distribution's Python's, and no other's that may come first in PATH.
has_python() { /usr/bin/python3 -c "import $1" 2>/dev/null; }

missing=()
has_python psycopg2 || missing+=(python3-psycopg2)
has_python hyperkitty || missing+=(python3-django-hyperkitty)
has_python postorius || missing+=(python3-django-postorius)
install_packages "Install them; the suite leaves out the applications that it does not find." "${missing[@]}"
