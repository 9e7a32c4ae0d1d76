// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// TestChooseDatabase checks that after a restore of etcd a user can only choose a running server with a complete copy that answers, and only with
// --force.
func TestChooseDatabase(t *testing.T) {
	const version = "999" // as the fake sets it
	answer := dbpair.Member{Mode: dbpair.Stopped, Complete: true, Doing: "it waits", Seen: version}
	silent, empty := answer, answer
	silent.Seen, empty.Complete = "12", false
	for name, c := range map[string]struct {
		members map[string]dbpair.Member
		p       Promotion
		want    string // the requested server
		says    string
	}{
		"not forced":           {map[string]dbpair.Member{dbpair.First: answer}, Promotion{}, "", "it is not settled which server is the primary: etcd was restored"},
		"one answers":          {map[string]dbpair.Member{dbpair.First: answer, dbpair.Second: silent}, Promotion{Force: true}, dbpair.First, ""},
		"one, with the other":  {map[string]dbpair.Member{dbpair.First: answer, dbpair.Second: silent}, Promotion{Force: true, Server: dbpair.Second}, "", "does not answer"},
		"none answers":         {map[string]dbpair.Member{dbpair.Second: silent}, Promotion{Force: true}, "", "does not answer"},
		"one without a copy":   {map[string]dbpair.Member{dbpair.First: empty}, Promotion{Force: true}, "", "has no complete copy"},
		"both answer":          {map[string]dbpair.Member{dbpair.First: answer, dbpair.Second: answer}, Promotion{Force: true}, "", "both servers answer"},
		"both, and one chosen": {map[string]dbpair.Member{dbpair.First: answer, dbpair.Second: answer}, Promotion{Force: true, Server: dbpair.Second}, dbpair.Second, ""},
	} {
		k := databaseClient(t, databaseObjects(t, inSyncRecord.Doubted(dbpair.Restored), c.members, bothReady)...)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // no agent acts
		asked := ""
		c.p.Confirm, c.p.Waiting = func(q string) error { asked = q; return nil }, func(string, string) {}
		_, err := PromoteDatabase(ctx, k, DefaultNamespace, c.p)
		cancel()
		code := map[bool]string{true: "OCA-7434", false: "OCA-7432"}[c.want != ""]
		if f := finding.Of(err); len(f) != 1 || f[0].Code != code || !strings.Contains(f[0].Cause, c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if (asked != "") != (c.want != "") || !strings.Contains(asked, c.want) {
			t.Errorf("%s: asked %q", name, asked)
		}
		l := &coordinationv1.Lease{}
		require.NoError(t, k.Get(t.Context(), client.ObjectKey{Namespace: DefaultNamespace, Name: dbpair.RecordName}, l))
		if r := dbpair.ReadRecord(l); r.Promote != c.want || r.Force != (c.want != "") || r.Unsettled == "" {
			t.Errorf("%s: the record: %+v", name, r)
		}
	}
}
