#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the files of a release in OUTPUT, which it replaces: archives, packages, bills of materials, install.sh and SHA256SUMS. The same commit produces
# the same files on every machine with the same Go release.
# Usage: LDFLAGS=... scripts/release/release.sh VERSION OUTPUT
# Environment variables: RPM_KEY and APK_KEY, see package.sh; LDFLAGS as in the Makefile; ARCHS (amd64 arm64); RELEASE_URL, the base URL of VERSION/FILE.
# A VERSION that is not a development version must match the file VERSION, have a section in CHANGELOG.md, and have no uncommitted changes.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# = 2 ] || { echo "usage: release.sh VERSION OUTPUT" >&2; exit 2; }
version=$1 output=$2
refuse() { echo "release: $*" >&2; exit 1; }

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || refuse "$version is not a version such as v0.1.0"
if [[ $version != *-dev* ]]; then
	[ "$version" = "$(cat VERSION)" ] || refuse "the file VERSION contains $(cat VERSION), not $version: change and commit it first"
	grep -qxF "## $version" CHANGELOG.md || refuse "CHANGELOG.md has no section \"## $version\""
	[ -z "$(git status --porcelain)" ] || refuse "there are uncommitted changes: git status"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$output"
mkdir -p "$output"
echo "release: manual pages and shell completion" >&2
go run -ldflags "$LDFLAGS" ./scripts/gendocs shell "$work/shell"
for arch in ${ARCHS:-amd64 arm64}; do
	program=$work/ocadm-$arch
	GOARCH=$arch scripts/gobuild.sh "$program" ./cmd/ocadm -ldflags "$LDFLAGS"
	go run ./scripts/sbom "$program" "$version" "$SOURCE_DATE_EPOCH" >"$output/ocadm-$version-linux-$arch.spdx.json"
	scripts/release/package.sh "$version" "$arch" "$program" "$work/shell" "$output"
	rm "$program"
done
sed -e "s|^version=.*|version=\${OCADM_VERSION:-$version}|" -e "s|^url=.*|url=\${OCADM_URL:-${RELEASE_URL:-}}|" scripts/install.sh >"$output/install.sh"
chmod 0755 "$output/install.sh"
(cd "$output" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS && chmod 0644 SHA256SUMS)
echo "release: $(find "$output" -type f | wc -l) files in $output" >&2
