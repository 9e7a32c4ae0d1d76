// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"strings"
	"testing"
)

// step is a part of a test. It needs the results of those before it.
type step struct {
	name string
	run  func(*testing.T)
}

// walk runs steps until one fails, and then calls explain, if given. It prints the total time.
func (s *suite) walk(t *testing.T, explain func(*testing.T), steps ...step) {
	t.Helper()
	for _, one := range steps {
		ok := t.Run(one.name, func(t *testing.T) {
			s.running.Store(t)
			one.run(t)
		})
		s.running.Store(t)
		if !ok {
			if explain != nil {
				explain(t)
			}
			break
		}
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}
