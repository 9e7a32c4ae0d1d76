// SPDX-License-Identifier: Apache-2.0

// Package reference holds the pages that ocadm prints, too.
package reference

import _ "embed"

// Findings explains the code of every finding.
//
//go:embed findings.md
var Findings string
