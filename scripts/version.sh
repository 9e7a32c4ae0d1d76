#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints the version of a build from this checkout: the content of VERSION on a commit with that tag, otherwise VERSION-dev.gCOMMIT, plus .dirty with
# uncommitted changes. It is a valid image tag and sorts before the release. "version.sh --commit" prints the full commit ID.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(cat VERSION)
commit=$(git rev-parse HEAD 2>/dev/null) || commit=
dirty=
[ -z "$commit" ] || git diff --quiet HEAD -- || dirty=dirty
if [ "${1:-}" = --commit ]; then
	echo "$commit${dirty:+-$dirty}"
elif [ -z "$dirty" ] && [ -n "$commit" ] && git tag --points-at HEAD | grep -qxF "$version"; then
	echo "$version"
else
	echo "$version-dev${commit:+.g${commit:0:10}}${dirty:+.$dirty}"
fi
