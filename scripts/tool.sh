#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a tool once, at the version pinned in scripts/tools/SET/go.mod, into the user's cache, and prints its path.
# Usage: scripts/tool.sh SET NAME PACKAGE
set -euo pipefail
cd "$(dirname "$0")/tools/$1"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ocadm/tools
key=$({ cat go.sum; find . -name '*.go' -print0 | sort -z | xargs -0r cat; go version; } | sha256sum | cut -c1-16)
tool=$cache/$2-$key
if [ ! -x "$tool" ]; then
	echo "building $2 (only once; this can take a few minutes)" >&2
	mkdir -p "$cache"
	go build -o "$tool.$$" "$3"
	mv "$tool.$$" "$tool"
fi
echo "$tool"
