// SPDX-License-Identifier: Apache-2.0

// Package require ends a test whose preparation fails.
package require

// NoError ends the test if err is not nil.
func NoError(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
