#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pins everything that depends on the version of k8s.io/kubernetes: its staging modules in go.mod and in the lab's module, the constant in
# internal/version and the linker flags in the Makefile. It is idempotent.
# Usage: scripts/pin-k8s.sh [--check] [VERSION]
# VERSION, such as v1.36.3, defaults to the version in go.mod. --check changes nothing and fails if anything differs.
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { echo "usage: scripts/pin-k8s.sh [--check] [VERSION]" >&2; exit 2; }
check=false
if [ "${1:-}" = --check ]; then check=true; shift; fi
[ $# -le 1 ] || usage
version=${1:-$(sed -n 's/^\tk8s\.io\/kubernetes \(v[^ ]*\).*/\1/p' go.mod)}
[[ $version =~ ^v1\.([0-9]+)\.([0-9]+)$ ]] || usage
minor=${BASH_REMATCH[1]} staging=v0.${BASH_REMATCH[1]}.${BASH_REMATCH[2]}

modules="go.mod test/lab/modules/kubernetes/go.mod"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The staging modules are those that k8s.io/kubernetes itself requires at v0.0.0.
mod=$(go env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/$version.mod
[ -f "$mod" ] || mod=$(cd "$tmp" && go list -m -f '{{.GoMod}}' "k8s.io/kubernetes@$version")
names=$(awk '$1 ~ /^k8s\.io\// && $2 == "v0.0.0" {print $1}' "$mod")
[ -n "$names" ] || { echo "pin-k8s: $mod requires no module at v0.0.0" >&2; exit 1; }

pin_module() { # FILE
	local name edits=("-require=k8s.io/kubernetes@$version")
	for name in $names $(sed -n 's/^\t\(k8s\.io\/[a-z-]*\) => .*/\1/p' "$1"); do
		edits+=("-replace=$name=$name@$staging")
		if grep -qE "^	$name v0\.[1-9]" "$1"; then edits+=("-require=$name@$staging"); fi
	done
	go mod edit "${edits[@]}" "$1"
}

files="$modules internal/version/version.go Makefile"
for f in $files; do
	mkdir -p "$tmp/$(dirname "$f")"
	cp "$f" "$tmp/$f"
done
for f in $modules; do pin_module "$tmp/$f"; done
sed -i "s/^const Kubernetes = .*/const Kubernetes = \"$version\"/" "$tmp/internal/version/version.go"
sed -i "s/\(version\.gitVersion=\)v[0-9.]*/\1$version/; s/\(version\.gitMajor=\)[0-9]*/\11/; s/\(version\.gitMinor=\)[0-9]*/\1$minor/" "$tmp/Makefile"

changed=
for f in $files; do
	if cmp -s "$f" "$tmp/$f"; then continue; fi
	changed="$changed $f"
	if $check; then
		diff -u "$f" "$tmp/$f" || true
	else
		cat "$tmp/$f" >"$f"
	fi
done
if [ -z "$changed" ]; then
	echo "pin-k8s: everything already matches $version" >&2
elif $check; then
	echo "pin-k8s: these files do not match $version:$changed; run scripts/pin-k8s.sh" >&2
	exit 1
else
	echo "pin-k8s: set to $version:$changed" >&2
	echo "Next: go mod tidy, here and in test/lab/modules/kubernetes; version and digests of kubelet and kubectl in internal/artifacts/artifacts.yaml;" \
		"UPDATE=1 go test ./phases/... ./cmd; make generate" >&2
fi
