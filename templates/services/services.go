// SPDX-License-Identifier: Apache-2.0

// Package services holds the configuration files of components that are not made of options: one template over component.Inputs each.
package services

import "embed"

// FS holds the templates.
//
//go:embed *.tmpl
var FS embed.FS
