// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
)

func TestMayLeave(t *testing.T) {
	for members, want := range map[string]string{ // the first member leaves; each is up, down or a learner
		"u":   "",
		"uu":  "",
		"uuu": "",
		"ul":  "", // the last voter: reset asks about that
		"lu":  "",
		"duu": "",
		"ud":  "1 of 2",
		"uud": "that would remain",
		"udd": "1 of 3",
		"ddd": "0 of 3", // it sees no leader: the others may be lost
	} {
		var all []etcd.Observed
		for i, kind := range members {
			all = append(all, etcd.Observed{ID: fmt.Sprint(i), Name: fmt.Sprint("m", i), Peer: fmt.Sprint("https://", i), Answers: kind == 'u', Learner: kind == 'l', Problem: "x"})
		}
		found := finding.Of(mayLeave(all, "https://0"))
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || !strings.Contains(found[0].Cause, want) || len(found[0].Evidence) != len(members)) {
			t.Errorf("%s: %+v", members, found)
		}
	}
	if err := mayLeave([]etcd.Observed{{Peer: "https://1"}}, "https://0"); err != nil {
		t.Errorf("one that is no member: %v", err)
	}
}

// TestMayLeaveWithoutMajority checks that the member has the time that it needs to answer without a majority, and that one that runs and gives no answer
// stays: it may be the last one that has the data.
func TestMayLeaveWithoutMajority(t *testing.T) {
	last := []etcd.Observed{{ID: "0", Peer: "https://0", Problem: "no leader"}, {ID: "1", Peer: "https://1"}, {ID: "2", Peer: "https://2"}}
	for name, c := range map[string]struct {
		took time.Duration
		err  error
		runs bool
		want string // in the cause
	}{
		"it answers late":      {2 * etcd.ObserveTimeout, nil, true, "0 of 3"},
		"it never answers":     {time.Hour, nil, true, "cannot be determined"},
		"it refuses to answer": {0, errors.New("certificate has expired"), true, "cannot be determined"},
		"it does not run":      {0, etcd.ErrUnreachable, false, ""},
		"it ends meanwhile":    {time.Hour, nil, false, ""},
		"it is a learner":      {0, fmt.Errorf("listing: %w", rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answer := func(ctx context.Context, after time.Duration, err error) ([]etcd.Observed, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(after):
						return last, err
					}
				}
				of := leaving{
					peer:    "https://0",
					cluster: func(ctx context.Context) ([]etcd.Observed, error) { return answer(ctx, time.Hour, nil) },
					member:  func(ctx context.Context) ([]etcd.Observed, error) { return answer(ctx, c.took, c.err) },
					runs:    func(context.Context) bool { return c.runs },
				}
				found := finding.Of(of.may(t.Context()))
				if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Code != "OCA-4155" || !strings.Contains(found[0].Cause, c.want)) {
					t.Errorf("%+v, want %q", found, c.want)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ends := func(ctx context.Context) ([]etcd.Observed, error) { return nil, ctx.Err() }
	of := leaving{cluster: ends, member: ends, runs: func(context.Context) bool { return false }}
	if err := of.may(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
