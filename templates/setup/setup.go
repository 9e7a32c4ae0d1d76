// SPDX-License-Identifier: Apache-2.0

// Package setup holds the initial records of a new cloud.
package setup

import _ "embed"

// Alerts holds rules of the monitor service.
//
//go:embed alerts.yaml
var Alerts []byte

// Devtool holds templates of devtool.
//
//go:embed devtool.yaml
var Devtool []byte
