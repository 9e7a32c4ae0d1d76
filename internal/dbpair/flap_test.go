// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/require"
)

// The node of the replica loses power: its connection does not end, and its last report, that all is well, counts for a while. Writes wait once. When it
// reports again, they wait for it again.
func TestLostReplicaHoldsWritesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := agentOn(t, Record{Primary: First, InSync: Second, Term: 1}, func() error { return nil })
		well := Member{Mode: Replica, Last: "0-1-9000", Connected: true, Applying: true, Complete: true}
		other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: MemberName(Second)}}
		report := func() {
			require.NoError(t, well.Write(other))
			now := metav1.NowMicro()
			other.Spec.RenewTime = &now
			require.NoError(t, a.keeper.kube.Update(t.Context(), other))
		}
		require.NoError(t, a.keeper.kube.Create(t.Context(), other))
		report()
		server, since := mysql.Replication{Binlog: "0-1-9000", SemiSync: true, Clients: 1}, time.Now()
		waited, syncFrom := time.Duration(0), ""
		// step makes one look and does what it decides, with a server that is not there.
		step := func() Act {
			v := a.look(t.Context())
			v.Mode, v.Complete, v.Answers, v.Answered, v.Server, v.SemiSyncFrom = Primary, true, true, true, server, syncFrom
			if server.SemiSync {
				v.Unacknowledged = time.Since(since)
				waited += a.limits.Every
			}
			d := Decide(v)
			switch d.Act {
			case GoOnAlone, WaitForPeer:
				_ = a.follow(t.Context(), server, d) // the server does not answer
				server.SemiSync, syncFrom, since = d.Act == WaitForPeer, server.Binlog, time.Now()
			default:
				if d.Write != nil {
					_ = a.keeper.write(t.Context(), *d.Write)
				}
			}
			time.Sleep(a.limits.Every)
			return d.Act
		}
		for range 60 {
			step()
		}
		if limit := a.limits.Silence + 2*a.limits.Every; waited > limit || a.keeper.record.InSync != "" {
			t.Errorf("writes waited for %s of a minute, want at most %s; record %+v", waited, limit, a.keeper.record)
		}
		report()
		if act := step(); act != WaitForPeer {
			t.Errorf("it has reported again: %s", act)
		}
		if step(); a.keeper.record.InSync != Second {
			t.Errorf("it has reported again: %+v", a.keeper.record)
		}
	})
}
