#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a release in two checkouts of HEAD in different directories, each with its own build cache, and fails if the files differ.
# Usage: LDFLAGS=... scripts/release/twice.sh VERSION
# Environment variables: ARCHS, see release.sh. SHARED_CACHE=1 uses the user's build cache, so that only linking and packaging are compared.
set -euo pipefail
[ $# = 1 ] || { echo "usage: twice.sh VERSION" >&2; exit 2; }
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"; git worktree prune' EXIT
for n in one two/deeper; do
	git worktree add --quiet --detach "$work/$n" HEAD
	[ -n "${SHARED_CACHE:-}" ] || export GOCACHE=$work/cache-${n%/*}
	"$work/$n/scripts/release/release.sh" "$1" "$work/$n/dist/release"
done
diff "$work/one/dist/release/SHA256SUMS" "$work/two/deeper/dist/release/SHA256SUMS"
echo "twice: the same $(wc -l <"$work/one/dist/release/SHA256SUMS") files in both" >&2
