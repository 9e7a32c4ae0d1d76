// SPDX-License-Identifier: Apache-2.0

// Package engine applies rendered objects to the cluster: order, exact comparison, parallel apply, prune.
// It knows objects, not services.
package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Order sorts names so that each comes after those that it depends on; otherwise it keeps the given order. It fails on a cycle and on a dependency
// that is not in the list.
func Order(names []string, after func(name string) []string) ([]string, error) {
	out := make([]string, 0, len(names))
	var visit func(n string, path []string) error
	visit = func(n string, path []string) error {
		switch {
		case slices.Contains(out, n):
			return nil
		case slices.Contains(path, n):
			return fmt.Errorf("%s depend on each other", strings.Join(append(path[slices.Index(path, n):], n), " → "))
		case !slices.Contains(names, n):
			return fmt.Errorf("%q depends on %q, which does not exist", path[len(path)-1], n)
		}
		for _, a := range after(n) {
			if err := visit(a, append(path, n)); err != nil {
				return err
			}
		}
		out = append(out, n)
		return nil
	}
	for _, n := range names {
		if err := visit(n, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}
