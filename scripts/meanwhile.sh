#!/usr/bin/env bash
# Runs one command in a shell of its own, which says nothing unless it fails, and the rest of the arguments as another one at the same time:
# what waits for the network beside what computes.
#   scripts/meanwhile.sh 'COMMAND' OTHER-COMMAND [ARGUMENT...]
set -euo pipefail
said=$(mktemp)
bash -euo pipefail -c "$1" >"$said" 2>&1 &
first=$!
shift
code=0
"$@" || code=$?
if ! wait "$first"; then
	cat "$said" >&2
	code=1
fi
rm -f "$said"
exit "$code"
