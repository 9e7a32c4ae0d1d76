#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the archive and the deb, rpm and apk packages of one program. All files in them have the time SOURCE_DATE_EPOCH, so the same program produces the
# same files.
# Usage: scripts/release/package.sh VERSION ARCH PROGRAM SHELL OUTPUT
# ARCH is amd64 or arm64; SHELL is the output directory of "gendocs shell"; OUTPUT is a directory.
# Environment variables: RPM_KEY, a file with a PGP secret key, and APK_KEY, a file with an RSA private key in PEM, sign the packages. Their passphrases are
# NFPM_RPM_PASSPHRASE and NFPM_APK_PASSPHRASE. Without a key a package is not signed. A PGP signature contains its time, so signed rpm packages are not
# reproducible.
set -euo pipefail
[ $# = 5 ] || { echo "usage: package.sh VERSION ARCH PROGRAM SHELL OUTPUT" >&2; exit 2; }
export VERSION=$1 ARCH=$2 SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:?the time of every file}
program=$(realpath "$3") shell=$(realpath "$4")
for key in RPM_KEY APK_KEY; do
	file=${!key:-}
	if [ -n "$file" ]; then
		[ -r "$file" ] || { echo "package: $key: $file cannot be read" >&2; exit 1; }
		file=$(realpath "$file")
	else
		echo "package: $key is not set, so that package is not signed" >&2
	fi
	export "$key=$file"
done
mkdir -p "$5"
output=$(realpath "$5")
cd "$(dirname "$0")/../.."
nfpm=$(scripts/tool.sh release nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm)

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
name=ocadm-$VERSION-linux-$ARCH
dir=$stage/$name
install -d -m 0755 "$dir"
install -m 0755 "$program" "$dir/ocadm"
install -m 0644 LICENSE CHANGELOG.md "$dir"
cp -R "$shell/man" "$shell/completion" "$dir"
gzip --best --no-name "$dir"/man/*
find "$dir" -type d -exec chmod 0755 {} + -o -type f ! -name ocadm -exec chmod 0644 {} +
find "$dir" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

tar --create --directory "$stage" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu "$name" | gzip --no-name >"$output/$name.tar.gz"
for packager in deb rpm apk; do
	(cd "$dir" && "$nfpm" package --config "$OLDPWD/scripts/release/nfpm.yaml" --packager "$packager" --target "$output" >&2)
done
