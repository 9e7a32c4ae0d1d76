// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// An unreachable server is retried while there is patience; an error from the server is final.
func TestReach(t *testing.T) {
	gone, refused := &mysql.Error{Class: mysql.Unreachable, Op: "connecting", Detail: "connection refused"}, &mysql.Error{Class: mysql.AccessDenied}
	for name, c := range map[string]struct {
		patience time.Duration
		answers  []error
		tries    int
		want     error
	}{
		"there at last":         {time.Hour, []error{gone, gone, nil}, 3, nil},
		"there, and refuses":    {time.Hour, []error{gone, refused, nil}, 2, refused},
		"no patience":           {0, []error{gone, nil}, 1, gone},
		"there at once":         {0, []error{nil}, 1, nil},
		"no patience, refused":  {0, []error{refused, nil}, 1, refused},
		"another kind of error": {time.Hour, []error{errors.ErrUnsupported, nil}, 1, errors.ErrUnsupported},
	} {
		tries, reported := 0, 0
		_, err := reach(t.Context(), c.patience, func(_, _ string) { reported++ }, func() (*mysql.Admin, error) {
			tries++
			return nil, c.answers[tries-1]
		})
		if tries != c.tries || !errors.Is(err, c.want) || c.want == nil && err != nil || errors.Is(c.answers[0], gone) != (reported == 1) {
			t.Errorf("%s: %d tries, reported %d times, %v; want %d, %v", name, tries, reported, err, c.tries, c.want)
		}
	}
}
