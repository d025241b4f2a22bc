#!/usr/bin/env bash
# Creates a node exporter at the given path, for the tests: the installed one, or else the one in Debian's package, or else
# one built from its Go module. It installs nothing: a package is only downloaded and unpacked into a temporary folder.
set -euo pipefail

target=$1
test -x "$target" && exit 0
mkdir -p "$(dirname "$target")"
target=$(realpath -m "$target")

installed=$(command -v prometheus-node-exporter || command -v node_exporter || true)
if test -n "$installed"; then
	ln -sf "$installed" "$target"
	exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

from_debian() {
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
	apt-get -q download prometheus-node-exporter 2>/dev/null || return 1
	dpkg-deb -x prometheus-node-exporter_*.deb . &&
		install -m 755 usr/bin/prometheus-node-exporter "$target"
}

from_module() {
	GOBIN="$scratch" "${GO:-go}" install github.com/prometheus/node_exporter@v1.10.2 &&
		install -m 755 node_exporter "$target"
}

from_debian || from_module || {
	echo "a node exporter is missing and can't be built: install one, or name it in CASSIA_TEST_NODE_EXPORTER" >&2
	exit 1
}
"$target" --version
