#!/usr/bin/env bash
# Puts an Alertmanager at the path given, for the tests: the one that is installed, or else Debian's package, which is
# installed where this runs as root.
set -euo pipefail

target=$1
test -x "$target" && exit 0
mkdir -p "$(dirname "$target")"
target=$(realpath -m "$target")

installed=$(command -v prometheus-alertmanager || command -v alertmanager || true)
if test -n "$installed"; then
	ln -sf "$installed" "$target"
	exit 0
fi

# It reads a template below /usr/share, so unpacking it elsewhere wouldn't do.
from_debian() {
	command -v apt-get >/dev/null && test "$(id -u)" = 0 || return 1
	local get="apt-get -q -y install --no-install-recommends prometheus-alertmanager"
	$get >/dev/null || { apt-get -q update >/dev/null && $get >/dev/null; } || return 1
	ln -sf "$(command -v prometheus-alertmanager)" "$target"
}

from_debian || {
	echo "no Alertmanager could be had: install one, or name it in CASSIA_TEST_ALERTMANAGER" >&2
	exit 1
}
"$target" --version
