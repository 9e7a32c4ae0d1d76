#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs golangci-lint at the version pinned in scripts/tools/lint/go.mod, built once into the user's cache, and shellcheck if it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
lint=$(scripts/tool.sh lint golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
if command -v shellcheck >/dev/null; then shellcheck --severity=warning scripts/*.sh scripts/*/*.sh .ci/run; fi
exec "$lint" run "$@"
