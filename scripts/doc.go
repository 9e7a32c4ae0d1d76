// SPDX-License-Identifier: Apache-2.0

// Package scripts tests the shell scripts that users run.
package scripts
