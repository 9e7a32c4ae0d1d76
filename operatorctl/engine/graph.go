// SPDX-License-Identifier: Apache-2.0

// Package engine holds the mechanisms that bring rendered objects to the cluster: order, exact comparison, parallel apply, prune.
// It knows objects, not services.
package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Order sorts names so that each comes after those it names; within that, the given order is kept. It fails on a cycle and on a name
// that is not in the list.
func Order(names []string, after func(name string) []string) ([]string, error) {
	const (
		unseen = iota
		open
		closed
	)
	state := make(map[string]int, len(names))
	for _, n := range names {
		state[n] = unseen
	}
	out := make([]string, 0, len(names))
	var visit func(n string, path []string) error
	visit = func(n string, path []string) error {
		path = append(path, n)
		switch s, known := state[n]; {
		case !known:
			return fmt.Errorf("%q comes after %q, which does not exist", path[len(path)-2], n)
		case s == open:
			return fmt.Errorf("%s wait for each other", strings.Join(path[slices.Index(path, n):], " → "))
		case s == closed:
			return nil
		}
		state[n] = open
		for _, a := range after(n) {
			if err := visit(a, path); err != nil {
				return err
			}
		}
		state[n] = closed
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
