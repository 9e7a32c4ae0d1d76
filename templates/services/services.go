// SPDX-License-Identifier: Apache-2.0

// Package services holds the configuration files of components that are not made of options: one template over component.Inputs each.
// Directory options has the options that the services know: a file for each component, those that many share in options/shared.
package services

import "embed"

// FS holds the templates, the tables of options, and the standard policies and roles.
//
//go:embed *.tmpl policies.yaml options
var FS embed.FS
