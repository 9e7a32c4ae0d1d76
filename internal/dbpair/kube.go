// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readRecord reads the record, and notes when it changed.
func (a *Agent) readRecord(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l := &coordinationv1.Lease{}
	if err := a.Kube.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: RecordName}, l); err != nil {
		a.Log.Debug("the record cannot be read", "error", err)
		return false
	}
	a.take(l)
	return true
}

func (a *Agent) take(l *coordinationv1.Lease) {
	if a.lease == nil || a.lease.ResourceVersion != l.ResourceVersion {
		a.changed = time.Now()
	}
	a.lease, a.record = l, ReadRecord(l)
	a.unkept = a.remember()
}

// writeRecord writes the record, unless it has changed since it was read. One that cannot be kept on the volume is not acted on.
func (a *Agent) writeRecord(ctx context.Context, r Record) error {
	if a.lease == nil {
		return fmt.Errorf("the record was never read")
	}
	l := a.lease.DeepCopy()
	r.Write(l)
	now := metav1.NowMicro()
	l.Spec.RenewTime = &now
	if err := a.Kube.Update(ctx, l); err != nil {
		return err
	}
	a.take(l)
	return a.unkept
}

// hear reads what the other agent reports. A report counts while it is renewed, by the clock of this agent.
func (a *Agent) hear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l := &coordinationv1.Lease{}
	if err := a.Kube.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: MemberName(Peer(a.Me))}, l); err != nil {
		return
	}
	m, err := ReadMember(l)
	if err != nil || l.ResourceVersion == a.peerVersion {
		return
	}
	a.peer, a.peerVersion, a.peerHeard = m, l.ResourceVersion, time.Now()
}

// report writes what the server does, when it has changed and now and then.
func (a *Agent) report(ctx context.Context, v View, d Decision) {
	m := Member{
		Node: a.Node, Mode: a.mode, Doing: d.Why, Last: v.Server.Binlog, Complete: a.complete(), Connected: v.Server.Connected, Applying: v.Server.Applying,
		Error: v.Server.Error,
	}
	if a.mode == Replica {
		m.Last, m.Applied = v.Server.Received, v.Server.Applied
	}
	if m.Error == "" {
		m.Error = a.problem
	}
	a.confess(&m)
	if a.lacking != "" { // then the primary goes on alone before the copy is replaced
		m.Applying, m.Error = false, a.lacking
	}
	if a.copyError != "" && !m.Complete {
		m.Error = a.copyError
	}
	if exists(a.Files.kept()) {
		m.Kept = a.Files.kept()
	}
	if a.reached {
		a.publish(ctx)
	}
	if m == a.reported && time.Since(a.reportedAt) < reportEvery || !a.reached {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l := &coordinationv1.Lease{}
	if err := a.Kube.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: MemberName(a.Me)}, l); err != nil {
		a.Log.Debug("the state cannot be reported", "error", err)
		return
	}
	if err := m.Write(l); err != nil {
		a.Log.Warn("the state cannot be reported", "error", err)
		return
	}
	now := metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.RenewTime = &a.Node, &now
	if err := a.Kube.Update(ctx, l); err != nil {
		a.Log.Debug("the state cannot be reported", "error", err)
		return
	}
	a.reported, a.reportedAt = m, time.Now()
	a.label(ctx)
}

// confess says what the server remembers, in answer to a record that is unsettled. An answer that it cannot keep is none.
func (a *Agent) confess(m *Member) {
	if a.unkept != nil {
		m.Error = a.unkept.Error()
		return
	}
	if a.lease != nil && a.record.Unsettled != "" {
		m.Known, m.Seen = a.memory.of(a.lease.UID), a.lease.ResourceVersion
	}
}

// label makes the Service lead to the primary. The pod of the other server loses the label first: its node may be lost.
func (a *Agent) label(ctx context.Context) {
	want := RoleReplica
	if a.record.Primary == a.Me {
		want = RolePrimary
	}
	if a.record.Unsettled != "" { // the labels went back with the record, too
		a.labelled = ""
		return
	}
	if a.labelled == want {
		return
	}
	if want == RolePrimary {
		if err := a.labelPod(ctx, PodName(Peer(a.Me)), RoleReplica); client.IgnoreNotFound(err) != nil {
			a.Log.Warn("the other pod cannot be labelled", "error", err)
		}
	}
	if err := a.labelPod(ctx, PodName(a.Me), want); err != nil {
		a.Log.Warn("the pod cannot be labelled", "error", err)
		return
	}
	a.labelled = want
}

func (a *Agent) labelPod(ctx context.Context, name, role string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+RoleLabel+`":"`+role+`"}}}`))
	return a.Kube.Patch(ctx, pod, patch)
}
