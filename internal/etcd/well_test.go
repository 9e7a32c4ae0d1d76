// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"yunion.io/x/ocadm/test/require"
)

// A member that has just returned makes etcd refuse changes for a few seconds, and of two concurrent changes one is never answered. Any other error is returned immediately.
func TestWhenWell(t *testing.T) {
	silent := errors.New("silence")
	other := errors.New("no such member")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"well":                            {[]error{nil}, nil},
		"well in a time":                  {[]error{fmt.Errorf("removing: %w", rpctypes.ErrUnhealthy), nil}, nil},
		"dropped":                         {[]error{silent, nil}, nil},
		"made unanswered, a member more":  {[]error{silent, rpctypes.ErrPeerURLExist}, nil},
		"made unanswered, a member fewer": {[]error{silent, rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotFound}, nil},
		"another learner first":           {[]error{silent, rpctypes.ErrTooManyLearners}, ErrOtherLearner},
		"there already":                   {[]error{rpctypes.ErrUnhealthy, rpctypes.ErrPeerURLExist}, rpctypes.ErrPeerURLExist},
		"another error":                   {[]error{other}, other},
	} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			err := whenWell(t.Context(), func(ctx context.Context) error {
				if tries++; !errors.Is(c.answers[tries-1], silent) {
					return c.answers[tries-1]
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, c.want) || tries != len(c.answers) {
				t.Errorf("%s: %d tries, %v", name, tries, err)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := whenWell(ended, func(context.Context) error { return rpctypes.ErrUnhealthy }); !errors.Is(err, rpctypes.ErrUnhealthy) {
		t.Errorf("the context has ended: %v", err)
	}
}

// If two machines join concurrently, one is added, and the other is refused in time, also when etcd drops its request.
func TestTwoLearnersAtOnce(t *testing.T) {
	e := startCluster(t, 1)
	c := e.open()
	for round := range 3 {
		peers := []string{"http://" + freeAddress(t), "http://" + freeAddress(t)}
		errs := make(chan error)
		for i, peer := range peers {
			go func() { errs <- c.AddLearner(t.Context(), fmt.Sprintf("n-%d", i), peer) }()
		}
		one, two := <-errs, <-errs
		if one != nil {
			one, two = two, one
		}
		if one != nil || !errors.Is(two, ErrOtherLearner) {
			t.Fatalf("round %d: %v, %v", round, one, two)
		}
		list, err := c.List(t.Context())
		require.NoError(t, err)
		for _, m := range list {
			if !m.Learner {
				continue
			}
			require.NoError(t, c.Remove(t.Context(), m))
		}
	}
}
