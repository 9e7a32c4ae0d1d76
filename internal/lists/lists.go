// SPDX-License-Identifier: Apache-2.0

// Package lists makes a list or a set from a list. A list is in the same order, and nil without elements.
package lists

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Map returns f of each element.
func Map[S ~[]E, E, T any](all S, f func(E) T) (out []T) {
	for _, e := range all {
		out = append(out, f(e))
	}
	return out
}

// Parallel returns f of the index and the value of each element. Up to limit calls run at the same time.
func Parallel[S ~[]E, E, T any](all S, limit int, f func(int, E) T) []T {
	out := make([]T, len(all))
	var g errgroup.Group
	g.SetLimit(limit)
	for i, e := range all {
		g.Go(func() error {
			out[i] = f(i, e)
			return nil
		})
	}
	_ = g.Wait() // the functions return nil
	return out
}

// Each calls f for each element, up to limit at the same time. The first error ends the context of the other calls, and is returned.
func Each[S ~[]E, E any](ctx context.Context, all S, limit int, f func(context.Context, E) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for _, e := range all {
		g.Go(func() error { return f(ctx, e) })
	}
	return g.Wait()
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

// Count returns the number of elements for which is returns true.
func Count[S ~[]E, E any](all S, is func(E) bool) (n int) {
	for _, e := range all {
		if is(e) {
			n++
		}
	}
	return n
}

// Sum returns the sum of f of each element.
func Sum[S ~[]E, E any, N int | int64 | float64](all S, f func(E) N) (sum N) {
	for _, e := range all {
		sum += f(e)
	}
	return sum
}

// Some returns the first texts, and how many more there are if it is not just one.
func Some(all []string, limit int) []string {
	if len(all) <= limit+1 {
		return all
	}
	return append(slices.Clone(all[:limit]), fmt.Sprintf("and %d more", len(all)-limit))
}

// Counted returns a number of things as text: "1 pod", "2 pods".
func Counted[N int | int32 | int64](n N, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Times returns how often something happened: "once", "2 times".
func Times[N int | int32](n N) string {
	if n == 1 {
		return "once"
	}
	return Counted(n, "time")
}

// First returns the first element for which is returns true, otherwise the zero value.
func First[S ~[]E, E any](all S, is func(E) bool) (first E) {
	if i := slices.IndexFunc(all, is); i >= 0 {
		first = all[i]
	}
	return first
}

// TrueFirst compares two values for sorting: what is true comes first.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// Set returns the set of f of each element.
func Set[S ~[]E, E any, K comparable](all S, f func(E) K) map[K]bool {
	out := map[K]bool{}
	for _, e := range all {
		out[f(e)] = true
	}
	return out
}

// Index returns a map with the key and the value that f returns for each element. Of elements with the same key, the last counts.
func Index[S ~[]E, E any, K comparable, V any](all S, f func(E) (K, V)) map[K]V {
	out := make(map[K]V, len(all))
	for _, e := range all {
		k, v := f(e)
		out[k] = v
	}
	return out
}

// Distinct sorts a list in place, and returns it without duplicates.
func Distinct[S ~[]E, E cmp.Ordered](all S) S {
	slices.Sort(all)
	return slices.Compact(all)
}

// Unique returns the elements without those that came before.
func Unique[S ~[]E, E comparable](all S) S {
	seen := map[E]bool{}
	return Filter(all, func(e E) bool {
		had := seen[e]
		seen[e] = true
		return !had
	})
}
