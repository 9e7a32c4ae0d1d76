// SPDX-License-Identifier: Apache-2.0

// Package setup holds records that a new cloud starts with.
package setup

import _ "embed"

// Alerts are rules of the monitor service.
//
//go:embed alerts.yaml
var Alerts []byte

// Devtool are templates of devtool.
//
//go:embed devtool.yaml
var Devtool []byte
