// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The time during which a replica cannot read the record does not count as the primary's silence, and every second during which it can does.
func TestOutageIsNoSilence(t *testing.T) {
	for name, c := range map[string]struct {
		connected bool
		readable  func(second int) bool
		want      int // second of the takeover, 0 for none
	}{
		"no outage, disconnected":         {false, func(int) bool { return true }, 16},
		"no outage, connected":            {true, func(int) bool { return true }, 61},
		"a long outage, connected":        {true, func(s int) bool { return s < 3 || s >= 103 }, 161},
		"a long outage, disconnected":     {false, func(s int) bool { return s < 3 || s >= 103 }, 116},
		"every second read fails at once": {false, func(s int) bool { return s%2 == 0 }, 32},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := agentOn(t, Record{Primary: First, InSync: Second, Term: 3}, func() error { return nil })
				second := 0
				a.me = Second
				a.keeper.kube = interceptor.NewClient(a.keeper.kube.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, w client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if !c.readable(second) {
							return errors.New("connection refused")
						}
						return w.Get(ctx, k, o, opts...)
					},
				})
				for ; second < 300; second++ {
					v := a.look(t.Context())
					v.Mode, v.Complete, v.Answers, v.Answered, v.Following, v.CaughtUp = Replica, true, true, true, true, true
					v.Server.Connected, v.Server.Applying = c.connected, true
					if Decide(v).Act == TakeOver {
						break
					}
					time.Sleep(a.limits.Every)
				}
				if second != c.want {
					t.Errorf("it takes over after %d s, want %d", second, c.want)
				}
			})
		})
	}
}
