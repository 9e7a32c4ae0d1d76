// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// databaseObjects returns a pair whose first server is the primary.
func databaseObjects(t *testing.T, r dbpair.Record, members map[string]dbpair.Member, ready map[string]bool) []client.Object {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name} }
	record := &coordinationv1.Lease{ObjectMeta: meta(dbpair.RecordName)}
	r.Write(record)
	out := []client.Object{&appsv1.StatefulSet{ObjectMeta: meta(dbpair.First)}, record}
	for i, s := range dbpair.Servers() {
		l := &coordinationv1.Lease{ObjectMeta: meta(dbpair.MemberName(s))}
		require.NoError(t, members[s].Write(l))
		pod := &corev1.Pod{ObjectMeta: meta(dbpair.PodName(s)), Spec: corev1.PodSpec{NodeName: []string{"node1", "node2"}[i]}}
		if ready[s] {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		out = append(out, l, pod)
	}
	return out
}

func databaseClient(t *testing.T, objs ...client.Object) client.Client {
	t.Helper()
	scheme := kube.Scheme()
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
}

var (
	primaryMember = dbpair.Member{Mode: dbpair.Primary, Last: "0-1-120", Complete: true}
	replicaMember = dbpair.Member{Mode: dbpair.Replica, Last: "0-1-100", Applied: "0-1-100", Connected: true, Applying: true, Complete: true, Doing: "it replicates"}
	bothReady     = map[string]bool{dbpair.First: true, dbpair.Second: true}
	inSyncRecord  = dbpair.Record{Primary: dbpair.First, InSync: dbpair.Second, Term: 1}
	aloneRecord   = dbpair.Record{Primary: dbpair.First, Term: 1}
)

func TestDatabaseRedundancy(t *testing.T) {
	one := databaseObjects(t, inSyncRecord, nil, bothReady)
	broken := replicaMember
	broken.Error = "duplicate entry 5"
	for name, c := range map[string]struct {
		objs      []client.Object
		redundant bool
		says      string
	}{
		"one copy":    {[]client.Object{one[0], one[3]}, false, "one copy, on node node1"},
		"no pod yet":  {one[:1], false, "one copy, which runs on no node"},
		"in sync":     {databaseObjects(t, inSyncRecord, map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: replicaMember}, bothReady), true, "each of the two"},
		"replica off": {databaseObjects(t, inSyncRecord, nil, map[string]bool{dbpair.First: true}), false, "the replica is not ready"},
		"broken":      {databaseObjects(t, aloneRecord, map[string]dbpair.Member{dbpair.Second: broken}, bothReady), false, "duplicate entry 5"},
		"behind":      {databaseObjects(t, aloneRecord, map[string]dbpair.Member{dbpair.Second: replicaMember}, bothReady), false, "not in sync: it replicates"},
	} {
		s, err := EmbeddedDatabase(t.Context(), databaseClient(t, c.objs...), DefaultNamespace)
		if err != nil || s.Redundant != c.redundant || !strings.Contains(s.Message, c.says) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if s.Servers[0].Role != dbpair.RolePrimary {
			t.Errorf("%s: the first server is %q", name, s.Servers[0].Role)
		}
	}
	_, err := EmbeddedDatabase(t.Context(), databaseClient(t), DefaultNamespace)
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7430" {
		t.Errorf("no embedded database: %v", err)
	}
}

func TestPromotionIsRefused(t *testing.T) {
	members := map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: replicaMember}
	lost := map[string]bool{dbpair.Second: true}
	restarted := replicaMember
	restarted.Connected = false
	empty := map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: {Mode: dbpair.Copying, Doing: "it copies the primary"}}
	for name, c := range map[string]struct {
		objs  []client.Object
		force bool
		says  string
	}{
		"behind, the primary serves":         {databaseObjects(t, aloneRecord, members, bothReady), false, "20 events behind"},
		"behind, the primary serves, forced": {databaseObjects(t, aloneRecord, members, bothReady), true, "20 events behind"},
		"behind, the primary is lost":        {databaseObjects(t, aloneRecord, members, lost), false, "at least 20 events of the primary would be lost, from 0-1-100 to 0-1-120"},
		"in sync, restarted":                 {databaseObjects(t, inSyncRecord, map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: restarted}, lost), false, "is not verified"},
		"no copy, forced":                    {databaseObjects(t, aloneRecord, empty, lost), true, "no complete copy"},
	} {
		k := databaseClient(t, c.objs...)
		_, err := PromoteDatabase(t.Context(), k, DefaultNamespace, Promotion{Force: c.force, Confirm: func(string) error { return nil }, Waiting: func(string, string) {}})
		if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7432" || !strings.Contains(f[0].Cause, c.says) {
			t.Errorf("%s: %v", name, err)
		}
		l := &coordinationv1.Lease{}
		if err := k.Get(t.Context(), client.ObjectKey{Namespace: DefaultNamespace, Name: dbpair.RecordName}, l); err != nil || dbpair.ReadRecord(l).Promote != "" {
			t.Errorf("%s: the record was changed: %+v, %v", name, l, err)
		}
	}
}

// TestPromotionIsRepeated checks that a repeated command with the name of the server changes nothing, and that one without it names both servers.
func TestPromotionIsRepeated(t *testing.T) {
	members := map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: replicaMember}
	asked := ""
	confirm := func(q string) error { asked = q; return errors.New("no") }
	k := databaseClient(t, databaseObjects(t, inSyncRecord, members, bothReady)...)
	if s, err := PromoteDatabase(t.Context(), k, DefaultNamespace, Promotion{Server: dbpair.First, Confirm: confirm}); err != nil || asked != "" || s.Record.Primary != dbpair.First {
		t.Errorf("%+v, %v, asked %q", s, err, asked)
	}
	_, err := PromoteDatabase(t.Context(), k, DefaultNamespace, Promotion{Confirm: confirm})
	if want := "This makes ocadm-mysql-2 on node node2 the primary instead of ocadm-mysql on node node1"; err == nil || !strings.HasPrefix(asked, want) {
		t.Errorf("asked %q, %v", asked, err)
	}
	k = databaseClient(t, databaseObjects(t, inSyncRecord, members, map[string]bool{dbpair.Second: true})...)
	_, err = PromoteDatabase(t.Context(), k, DefaultNamespace, Promotion{Server: dbpair.First, Confirm: confirm})
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7432" {
		t.Errorf("of a primary that does not serve: %v", err)
	}
}

// TestDatabaseOfARunningOperation checks that no command breaks the connection of an operation that works on the databases.
func TestDatabaseOfARunningOperation(t *testing.T) {
	pair := databaseObjects(t, inSyncRecord, map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: replicaMember}, bothReady)
	for name, c := range map[string]struct {
		action  string
		phase   v1alpha1.OperationPhase
		refused bool
	}{
		"a restore": {v1alpha1.ActionRestore, v1alpha1.OperationRunning, true}, "an update that reverts": {v1alpha1.ActionUpdate, v1alpha1.OperationReverting, true},
		"a paused update": {v1alpha1.ActionUpdate, v1alpha1.OperationPaused, false}, "a backup that has ended": {v1alpha1.ActionBackup, v1alpha1.OperationSucceeded, false},
		"the removal of a machine": {v1alpha1.ActionRemoveMachine, v1alpha1.OperationRunning, false},
	} {
		o := &Operation{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: "held"}, Spec: v1alpha1.OnecloudOperationSpec{Action: c.action}}
		o.Status.Phase = c.phase
		k := databaseClient(t, append(pair, o)...)
		asked := errors.New("asked")
		_, err := PromoteDatabase(t.Context(), k, DefaultNamespace, Promotion{Confirm: func(string) error { return asked }})
		add := ReplicaFits(t.Context(), k, DatabaseStatus{Namespace: DefaultNamespace})
		for what, err := range map[string]error{"promote": err, "add-replica": add} {
			f := finding.Of(err)
			if is := len(f) == 1 && f[0].Code == "OCA-7421" && strings.Contains(f[0].Cause, "held"); is != c.refused {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
}

// TestForcedPromotionReportsLoss checks that the question names it, and that the record holds what the agents need.
func TestForcedPromotionReportsLoss(t *testing.T) {
	k := databaseClient(t, databaseObjects(t, aloneRecord, map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: replicaMember}, map[string]bool{dbpair.Second: true})...)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // no agent answers
	defer cancel()
	var asked string
	_, err := PromoteDatabase(ctx, k, DefaultNamespace, Promotion{Force: true, Confirm: func(q string) error { asked = q; return nil }, Waiting: func(string, string) {}})
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7434" || f[0].Cause == "" {
		t.Errorf("without agents: %v", err)
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := WaitReplica(interrupted, k, DefaultNamespace, func(string, string) {}); finding.ExitStatus(err) != finding.ExitInterrupted || !strings.Contains(err.Error(), "continues") {
		t.Errorf("Ctrl-C: %v", err)
	}
	if !strings.Contains(asked, "Events after 0-1-100 are lost: at least 20") {
		t.Errorf("asked: %s", asked)
	}
	l := &coordinationv1.Lease{}
	require.NoError(t, k.Get(t.Context(), client.ObjectKey{Namespace: DefaultNamespace, Name: dbpair.RecordName}, l))
	if r := dbpair.ReadRecord(l); r.Promote != dbpair.Second || !r.Force {
		t.Errorf("the record: %+v", r)
	}
}

// TestForcedPromotionInSync: a replica that the record calls in sync may have restarted since, and its primary may be lost permanently. A working
// primary always hands over.
func TestForcedPromotionInSync(t *testing.T) {
	restarted := replicaMember
	restarted.Connected = false
	for name, c := range map[string]struct {
		replica dbpair.Member
		ready   map[string]bool
		asks    string
		force   bool
	}{
		"the primary is gone, the replica was restarted": {restarted, map[string]bool{dbpair.Second: true}, "changes after 0-1-100 that were acknowledged may be lost", true},
		"the primary serves":                             {replicaMember, bothReady, "connections to the database break", false},
	} {
		k := databaseClient(t, databaseObjects(t, inSyncRecord, map[string]dbpair.Member{dbpair.First: primaryMember, dbpair.Second: c.replica}, c.ready)...)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // no agent answers
		defer cancel()
		var asked string
		_, err := PromoteDatabase(ctx, k, DefaultNamespace, Promotion{Force: true, Confirm: func(q string) error { asked = q; return nil }, Waiting: func(string, string) {}})
		if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-7434" || !strings.Contains(asked, c.asks) {
			t.Errorf("%s: asked %q, %v", name, asked, err)
		}
		l := &coordinationv1.Lease{}
		require.NoError(t, k.Get(t.Context(), client.ObjectKey{Namespace: DefaultNamespace, Name: dbpair.RecordName}, l))
		if r := dbpair.ReadRecord(l); r.Promote != dbpair.Second || r.Force != c.force {
			t.Errorf("%s: the record: %+v", name, r)
		}
	}
}
