#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs golangci-lint at the version pinned in scripts/tools/lint/go.mod. It is built once into the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ocadm/tools
key=$(cat scripts/tools/lint/go.sum <(go version) | sha256sum | cut -c1-16)
lint=$cache/golangci-lint-$key
if [ ! -x "$lint" ]; then
	echo "lint: building golangci-lint (once; some minutes)" >&2
	mkdir -p "$cache"
	(cd scripts/tools/lint && go build -o "$lint.$$" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
	mv "$lint.$$" "$lint"
fi
exec "$lint" run "$@"
