// SPDX-License-Identifier: Apache-2.0

// Package services holds the configuration files of components that do not consist of options: one template over component.Inputs each. Directory options
// holds the options that the services support: one file for each component, and those that many share in options/shared.
package services

import "embed"

// FS holds the templates, the tables of options, and the standard policies and roles.
//
//go:embed *.tmpl policies.yaml options
var FS embed.FS
