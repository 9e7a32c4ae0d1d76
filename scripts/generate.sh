#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the deepcopy code and the CRD from the types in api/, and docs/cli from the commands. controller-gen is pinned in
# scripts/tools/gen/go.mod and built once into the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ocadm/tools
key=$(cat scripts/tools/gen/go.sum <(go version) | sha256sum | cut -c1-16)
gen=$cache/controller-gen-$key
if [ ! -x "$gen" ]; then
	echo "generate: building controller-gen (once)" >&2
	mkdir -p "$cache"
	(cd scripts/tools/gen && go build -o "$gen.$$" sigs.k8s.io/controller-tools/cmd/controller-gen)
	mv "$gen.$$" "$gen"
fi
"$gen" object paths=./api/... output:object:dir=api/v1alpha1
# Descriptions are for the Go reader; in the CRD they would cost more than the schema itself.
crd=templates/operator/crds/onecloud.yunion.io_onecloudclusters.yaml
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$gen" crd:crdVersions=v1,maxDescLen=0 paths=./api/... output:crd:dir="$tmp"
mkdir -p "$(dirname "$crd")"
go run ./scripts/crdpack <"$tmp/$(basename "$crd")" >"$tmp/packed"
mv "$tmp/packed" "$crd"
chmod 0644 "$crd"
go run ./scripts/gendocs docs/cli
