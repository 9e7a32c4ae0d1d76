#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs "go build -o OUTPUT FLAGS... PACKAGE" and reports its progress on standard error from the first second on.
# Usage: scripts/gobuild.sh OUTPUT PACKAGE [FLAGS...]
set -uo pipefail
output=$1 package=$2
shift 2
began=$SECONDS
say() { printf '%s: %s\n' "$output" "$*" >&2; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say "building $package; the first build takes minutes, later ones seconds"
go build -v -o "$output" "$@" "$package" 2>"$log" &
build=$!
trap 'kill "$build" 2>/dev/null; exit 130' INT TERM
interval=2
while kill -0 "$build" 2>/dev/null; do
	for _ in $(seq $((interval * 5))); do
		kill -0 "$build" 2>/dev/null || break
		sleep 0.2
	done
	kill -0 "$build" 2>/dev/null || break
	modules=$(grep -c '^go: downloading' "$log")
	packages=$(grep -vc '^go: ' "$log")
	say "$modules modules downloaded, $packages packages compiled in $((SECONDS - began)) s"
	interval=10
done
wait "$build"
status=$?
if [ "$status" -ne 0 ]; then
	# Lines from -v are bare package paths. Everything else is part of the error.
	grep -vE '^(go: downloading .*|[A-Za-z0-9_./~-]+)$' "$log" >&2
	say "go build failed after $((SECONDS - began)) s"
	exit "$status"
fi
say "built in $((SECONDS - began)) s"
