// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the whole life of lab machines: bad input first, while the machines are still fresh, then init, join, cloud, login, the same
// again, delete, reset. It is one test with ordered steps, each of which needs the one before it.
package e2e
