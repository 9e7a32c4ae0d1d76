// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// After a power failure, new pods also fail until the others run: that does not end an update.
func TestForbearance(t *testing.T) {
	taken, settle := time.Unix(1000, 0), 30*time.Second
	r := &Run{Settle: settle}
	for _, c := range []struct {
		resumed time.Time
		after   time.Duration
		over    bool
	}{
		{time.Time{}, settle, true}, {time.Time{}, settle - 1, false},
		{taken, settle, false}, {taken, resumeSettles*settle - 1, false}, {taken, resumeSettles * settle, true},
	} {
		r.resumed = c.resumed
		if got := r.forbearance(taken.Add(c.after)).over(taken); got != c.over {
			t.Errorf("taken up %v, %s later: %v", !c.resumed.IsZero(), c.after, got)
		}
	}
}

// After a resume, and only then, reach waits for a database server that is not up yet; other errors are returned immediately.
func TestReach(t *testing.T) {
	down, denied := &mysql.Error{Class: mysql.Unreachable}, &mysql.Error{Class: mysql.AccessDenied}
	for name, c := range map[string]struct {
		resumed time.Time
		answers []error
		want    error
		asked   int
	}{
		"it begins here":         {time.Time{}, []error{down, nil}, down, 1},
		"it is up again":         {time.Now(), []error{down, down, nil}, nil, 3},
		"it refuses":             {time.Now(), []error{denied, nil}, denied, 1},
		"it stays away for long": {time.Now().Add(-time.Hour), []error{down, nil}, down, 1},
	} {
		r, asked := &Run{Settle: time.Minute, resumed: c.resumed}, 0
		err := r.reach(t.Context(), func() error { asked++; return c.answers[asked-1] })
		if !errors.Is(err, c.want) || asked != c.asked {
			t.Errorf("%s: asked %d times, %v", name, asked, err)
		}
	}
}
