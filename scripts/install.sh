#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Downloads ocadm, verifies it against the checksums of its release, and installs it. Nothing is installed unless all of that succeeds.
#   sh install.sh
# Environment variables:
#   OCADM_VERSION      the release, such as v0.1.0
#   OCADM_URL          base URL of the releases: OCADM_URL/VERSION/FILE
#   OCADM_ALLOW_HTTP   1 accepts an OCADM_URL without TLS; an attacker on the network path can then replace the program and its checksums
#   OCADM_INSTALL_DIR  directory for the program (default /usr/local/bin)
set -eu
{ # the shell runs nothing if the end is missing
version=${OCADM_VERSION:-}
url=${OCADM_URL:-}
dir=${OCADM_INSTALL_DIR:-/usr/local/bin}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

[ -n "$version" ] || fail "set OCADM_VERSION to a release, such as v0.1.0"
[ -n "$url" ] || fail "set OCADM_URL to the base URL of the releases"
redirects='=http,https'
case $url in
[hH][tT][tT][pP][sS]://*) redirects='=https' ;; # a redirect must not lead to a server without TLS either
http://127.0.0.1[:/]* | http://localhost[:/]*) ;;
*) [ "${OCADM_ALLOW_HTTP:-}" = 1 ] || fail "OCADM_URL has no TLS, so the program could be replaced in transit: give an https address, or set OCADM_ALLOW_HTTP=1" ;;
esac
case $(uname -s) in
Linux) ;;
*) fail "ocadm runs on Linux, but this is $(uname -s)" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "ocadm does not support $(uname -m), only x86_64 and aarch64" ;;
esac
for program in awk gzip sha256sum tar; do
	command -v "$program" >/dev/null || fail "$program is missing"
done
if command -v curl >/dev/null; then
	fetch() { curl --fail --silent --show-error --location --proto-redir "$redirects" --retry 3 --connect-timeout 30 --output "$2" "$1"; }
elif command -v wget >/dev/null; then
	# wget follows redirects to servers without TLS: where that is not allowed, they lead to a proxy that does not exist.
	[ "$redirects" != '=https' ] || export http_proxy=http://127.0.0.1:9
	fetch() { wget -q -T 30 -O "$2" "$1"; }
else
	fail "curl or wget is needed"
fi
mkdir -p "$dir" 2>/dev/null || fail "$dir cannot be created: run this as root, or set OCADM_INSTALL_DIR"
[ -w "$dir" ] || fail "$dir is not writable: run this as root, or set OCADM_INSTALL_DIR"

tmp=$(mktemp -d)
new=
trap 'rm -rf "$tmp" ${new:+"$new"}' EXIT
trap 'exit 130' HUP INT TERM
name=ocadm-$version-linux-$arch
echo "Downloading $name.tar.gz" >&2
for file in SHA256SUMS "$name.tar.gz"; do
	fetch "$url/$version/$file" "$tmp/$file" || fail "$url/$version/$file cannot be downloaded"
done
awk -v file="$name.tar.gz" '$2 == file' "$tmp/SHA256SUMS" >"$tmp/sum"
[ -s "$tmp/sum" ] || fail "SHA256SUMS does not list $name.tar.gz"
(cd "$tmp" && sha256sum -c sum >/dev/null 2>&1) || fail "$name.tar.gz is not the file from the release: its SHA-256 differs. Nothing was installed; try again"
gzip -dc "$tmp/$name.tar.gz" | tar -x -f - -C "$tmp" "$name/ocadm" || fail "$name.tar.gz does not contain ocadm"

# A rename can replace a running program; writing to it would fail.
new=$dir/.ocadm.$$
if ! { cp "$tmp/$name/ocadm" "$new" && chmod 0755 "$new"; }; then
	fail "$dir/ocadm cannot be written"
fi
installed=$("$new" version -o short) || fail "programs in $dir do not run: is it mounted noexec? Set OCADM_INSTALL_DIR to another directory"
mv -f "$new" "$dir/ocadm" || fail "$dir/ocadm cannot be written"
new=
echo "Installed $installed as $dir/ocadm" >&2
}
