// SPDX-License-Identifier: Apache-2.0

// Package e2e walks the whole way on lab machines: bad input first, while the machines are still fresh, then init, join, cloud, login,
// the same again, delete, reset. One test with ordered steps: each needs the one before it.
package e2e
