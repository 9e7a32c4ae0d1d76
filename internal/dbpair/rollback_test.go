// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/test/require"
)

// snapshot returns the objects of the pair in etcd.
func (p *pair) snapshot() []client.Object {
	p.t.Helper()
	var out []client.Object
	take := func(o client.Object, name string) {
		require.NoError(p.t, p.kube.Get(p.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o))
		out = append(out, o)
	}
	take(&coordinationv1.Lease{}, dbpair.RecordName)
	for _, s := range dbpair.Servers() {
		take(&coordinationv1.Lease{}, dbpair.MemberName(s))
		take(&corev1.Pod{}, dbpair.PodName(s))
	}
	return out
}

// restore restores the objects. mark is true if ocadm does it.
func (p *pair) restore(objs []client.Object, mark bool) {
	p.t.Helper()
	for _, o := range objs {
		o, _ = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		if l, ok := o.(*coordinationv1.Lease); ok && mark && l.Name == dbpair.RecordName {
			dbpair.ReadRecord(l).Doubted(dbpair.Restored).Write(l)
		}
		for {
			now, _ := o.DeepCopyObject().(client.Object)
			require.NoError(p.t, p.kube.Get(p.t.Context(), client.ObjectKeyFromObject(o), now))
			o.SetResourceVersion(now.GetResourceVersion())
			if p.kube.Update(p.t.Context(), o) == nil {
				break
			}
		}
	}
}

// TestPairWhenEtcdGoesBack restores etcd to a snapshot from before the replica took over, and from before the primary went on alone. No acknowledged row is lost.
func TestPairWhenEtcdGoesBack(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]bool{"by ocadm": true, "by another program": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPair(t).goesBack(mark)
		})
	}
}

func (p *pair) goesBack(mark bool) {
	t := p.t
	p.on(dbpair.First)
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	p.must(dbpair.First, "CREATE DATABASE t")
	p.must(dbpair.First, "CREATE TABLE t.n (i INT PRIMARY KEY)")
	before := p.snapshot()

	// The second server takes over, and etcd goes back while the first one is off.
	p.off(p.nodes[dbpair.First])
	p.await("the replica takes over", func() bool { return p.member(dbpair.Second).Mode == dbpair.Primary })
	p.must(dbpair.Second, "INSERT INTO t.n VALUES (1), (2)")
	p.restore(before, mark)
	p.await("the record is in doubt", func() bool { return p.record().Unsettled != "" })
	time.Sleep(quick().Forced) // long enough for a promotion that must not happen
	if r := p.record(); r.Unsettled == "" {
		t.Fatalf("one server alone has settled it: %+v", r)
	}
	p.on(dbpair.First)
	p.inSync(dbpair.Second)
	p.sameRows(2)

	// The first server is lost; the second one goes on alone and is lost, too; etcd goes back, and only the first one returns.
	before = p.snapshot()
	p.off(p.nodes[dbpair.First])
	p.await("the primary goes on alone", func() bool { return p.record().InSync == "" })
	alone := p.record().Term
	p.must(dbpair.Second, "INSERT INTO t.n VALUES (3)")
	p.off(p.nodes[dbpair.Second])
	p.restore(before, mark)
	p.on(dbpair.First)
	time.Sleep(quick().Forced)
	if r := p.record(); r.Primary != dbpair.Second {
		t.Fatalf("the one with less took over: %+v", r)
	}
	p.on(dbpair.Second)
	p.await("it is settled", func() bool { return p.record().Term > alone })
	p.inSync(dbpair.Second)
	p.sameRows(3)

	// Both are in sync when etcd goes back: the primary continues.
	synced := p.record().Term
	p.restore(before, mark)
	p.await("it is settled", func() bool { return p.record().Term > synced })
	p.inSync(dbpair.Second)
	p.must(dbpair.Second, "INSERT INTO t.n VALUES (4)")
	p.sameRows(4)
	for _, s := range dbpair.Servers() {
		if m := p.member(s); m.Kept != "" {
			t.Errorf("%s was copied again: %+v", s, m)
		}
	}
	p.chosen(before, mark)
}

// chosen loses the primary permanently while etcd goes back: a user chooses the other server, whatever the lost one remembers.
func (p *pair) chosen(before []client.Object, mark bool) {
	p.off(p.nodes[dbpair.Second])
	p.restore(before, mark)
	p.ask(func(r *dbpair.Record) { *r = r.Doubted(dbpair.Restored) }) // the first server may not have marked it yet
	p.ask(func(r *dbpair.Record) { r.Promote, r.Force = dbpair.First, true })
	p.await("the chosen one serves", func() bool {
		r := p.record()
		return r.Unsettled == "" && r.Primary == dbpair.First && p.member(dbpair.First).Mode == dbpair.Primary
	})
	p.must(dbpair.First, "INSERT INTO t.n VALUES (5)")
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	p.sameRows(5)
}

func (p *pair) sameRows(want int) {
	p.t.Helper()
	p.await("the rows on both", func() bool {
		return p.record().Unsettled == "" && p.count(dbpair.First) == want && p.count(dbpair.Second) == want
	})
}

// count returns the number of rows in t.n of a server, -1 if the server does not answer.
func (p *pair) count(server string) int {
	db, err := p.open(p.t.Context(), server)
	if err != nil {
		return -1
	}
	defer db.Close()
	conn, err := db.Conn(p.t.Context())
	if err != nil {
		return -1
	}
	defer conn.Close()
	n := -1
	if conn.QueryRowContext(p.t.Context(), "SELECT COUNT(*) FROM t.n").Scan(&n) != nil {
		return -1
	}
	return n
}
