// SPDX-License-Identifier: Apache-2.0

// Package installer applies the installer's objects to a real API server: every addon, the operator, a cloud.
package installer
