// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A member that has just come back makes etcd refuse changes for a few seconds. Any other error ends it at once.
func TestWhenWell(t *testing.T) {
	other := errors.New("no such member")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"well":           {[]error{nil}, nil},
		"well in a time": {[]error{fmt.Errorf("removing: %w", rpctypes.ErrUnhealthy), nil}, nil},
		"another error":  {[]error{other, nil}, other},
	} {
		tries := 0
		err := whenWell(t.Context(), func(context.Context) error {
			tries++
			return c.answers[tries-1]
		})
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || tries != len(c.answers)) {
			t.Errorf("%s: %d tries, %v", name, tries, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := whenWell(ended, func(context.Context) error { return rpctypes.ErrUnhealthy }); !errors.Is(err, rpctypes.ErrUnhealthy) {
		t.Errorf("the context has ended: %v", err)
	}
}
