// SPDX-License-Identifier: Apache-2.0

// Package lists makes a list from another, in the same order. Without elements the result is nil.
package lists

// Map returns f of each element.
func Map[S ~[]E, E, T any](all S, f func(E) T) (out []T) {
	for _, e := range all {
		out = append(out, f(e))
	}
	return out
}

// Pick returns f of those elements for which it also returns true.
func Pick[S ~[]E, E, T any](all S, f func(E) (T, bool)) (out []T) {
	for _, e := range all {
		if v, ok := f(e); ok {
			out = append(out, v)
		}
	}
	return out
}

// Filter returns the elements for which keep returns true.
func Filter[S ~[]E, E any](all S, keep func(E) bool) (out S) {
	for _, e := range all {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}
