// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
)

// A step that reads a file a second time counts from the beginning again: its rate is not negative.
func TestRateStartsAnew(t *testing.T) {
	l := &lines{first: map[string]workflow.Event{}}
	for _, c := range []struct {
		second, done int64
		want         string
	}{{0, 1 << 20, ""}, {2, 3 << 20, ", 1.0 MiB/s"}, {3, 0, ""}, {5, 4 << 20, ", 2.0 MiB/s"}} {
		e := workflow.Event{Time: time.Unix(c.second, 0), Phase: "check", Done: c.done, Total: 4 << 20, Unit: "B"}
		if got := l.rate(e); got != c.want {
			t.Errorf("after %d s: %q, want %q", c.second, got, c.want)
		}
	}
}
