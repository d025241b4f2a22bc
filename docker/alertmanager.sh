#!/usr/bin/env bash
# Links this system's installed Alertmanager to the given path, for the tests. It installs nothing.
set -euo pipefail

target=$1
test -x "$target" && exit 0
installed=$(command -v prometheus-alertmanager || command -v alertmanager || true)
if test -z "$installed"; then
	echo "Alertmanager is missing: install it (on Debian: prometheus-alertmanager), or name one in CASSIA_TEST_ALERTMANAGER" >&2
	exit 1
fi
mkdir -p "$(dirname "$target")"
ln -sf "$installed" "$target"
