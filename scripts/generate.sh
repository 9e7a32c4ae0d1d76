#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes the deepcopy code and the CRDs from the types in api/, the executor's protocol from its .proto file, and docs/reference from the commands and types.
# The generators are pinned in scripts/tools/gen/go.mod and built once into the user's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
gen=$(scripts/tool.sh gen controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen)
protoc=$(scripts/tool.sh gen protoc ./protoc)
protoc_go=$(scripts/tool.sh gen protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go)
protoc_grpc=$(scripts/tool.sh gen protoc-gen-go-grpc google.golang.org/grpc/cmd/protoc-gen-go-grpc)
"$protoc" internal/executor/apis/executor.proto "$protoc_go" "$protoc_grpc"
"$gen" object paths=./api/... output:object:dir=api/v1alpha1
# Descriptions are for readers of the Go code. In the CRD they would take more space than the schema itself.
crds=templates/operator/crds
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
"$gen" crd:crdVersions=v1,maxDescLen=0 paths=./api/... output:crd:dir="$tmp"
mkdir -p "$crds"
for made in "$tmp"/*.yaml; do
	go run ./scripts/crdpack "$crds/$(basename "$made")" <"$made" >"$made.packed"
	mv "$made.packed" "$crds/$(basename "$made")"
	chmod 0644 "$crds/$(basename "$made")"
done
go run ./scripts/gendocs docs
