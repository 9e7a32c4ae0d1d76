// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// api is a client of the API server for the namespace of the database.
type api struct {
	kube      client.Client
	namespace string
	log       *slog.Logger
}

func (a api) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, a.kube.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: name}, l)
}

func (a api) patch(ctx context.Context, o client.Object, name string, patch []byte) error {
	o.SetNamespace(a.namespace)
	o.SetName(name)
	return a.kube.Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch))
}

// keeper reads and writes the record, and keeps the latest one on the volume.
type keeper struct {
	api
	file string // path of the memory

	lease      *coordinationv1.Lease
	record     Record
	memory     memory
	recalled   bool      // whether the memory was read
	unkept     error     // why the record was not kept
	unanswered string    // the version of the record that the last takeover was based on
	changed    time.Time // when the record was last seen to change; later by the time during which it could not be read
	blind      time.Time // when the first of the reads began that have failed since the last one that did not; zero if none has
	renewed    time.Time // when it was last written as the primary
}

// read reads the record, and notes whether it has changed.
func (k *keeper) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	began := time.Now()
	l, err := k.get(ctx, RecordName)
	if err != nil {
		k.log.Debug("the record cannot be read", "error", err)
		if k.blind.IsZero() {
			k.blind = began
		}
		return false
	}
	if !k.blind.IsZero() { // an outage of the API server is no silence of the primary
		k.changed, k.blind = k.changed.Add(time.Since(k.blind)), time.Time{}
	}
	k.take(l)
	return true
}

func (k *keeper) take(l *coordinationv1.Lease) {
	if k.lease == nil || k.lease.ResourceVersion != l.ResourceVersion {
		k.changed = time.Now()
	}
	k.lease, k.record = l, ReadRecord(l)
	k.unkept = k.remember()
}

// remember stores the record on the volume.
func (k *keeper) remember() error {
	if !k.recalled {
		m, err := recall(k.file)
		if err != nil {
			return err
		}
		k.memory, k.recalled = m, true
	}
	next := k.memory.after(k.lease.UID, k.record)
	if next == k.memory {
		return nil
	}
	if err := next.save(k.file); err != nil {
		return err
	}
	k.memory = next
	return nil
}

// write writes the record, unless it has changed since it was read. It returns an error if the record cannot be kept on the volume.
func (k *keeper) write(ctx context.Context, r Record) error {
	if k.lease == nil {
		return fmt.Errorf("the record was never read")
	}
	l := k.lease.DeepCopy()
	r.Write(l)
	now := metav1.NowMicro()
	l.Spec.RenewTime = &now
	if err := k.kube.Update(ctx, l); err != nil {
		return err
	}
	k.take(l)
	return k.unkept
}

// preclude keeps a takeover without an answer from taking effect later, by replacing the only version of the record that it can be written over.
func (k *keeper) preclude(ctx context.Context) error {
	if k.unanswered != k.lease.ResourceVersion {
		return nil
	}
	changed := k.changed
	if err := k.write(ctx, k.record); err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	k.changed = changed // not a change by the other agent
	return nil
}

// confess reports what the server remembers, in answer to an unsettled record. It does not answer if the record cannot be kept.
func (k *keeper) confess(m *Member) {
	if k.unkept != nil {
		m.Error = k.unkept.Error()
		return
	}
	if k.lease != nil && k.record.Unsettled != "" {
		m.Known, m.Seen = k.memory.of(k.lease.UID), k.lease.ResourceVersion
	}
}

// other is the state of the other agent.
type other struct {
	api
	name    string // name of its server
	member  Member
	version string
	heard   time.Time
	// outdated is true if the primary went on alone after this report: it may be the last one of a node that is lost.
	outdated bool
}

// hear reads the report of the other agent. By the clock of this agent, a report counts while it is renewed.
func (o *other) hear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l, err := o.get(ctx, MemberName(o.name))
	if err != nil {
		return
	}
	m, err := ReadMember(l)
	if err != nil || l.ResourceVersion == o.version {
		return
	}
	o.member, o.version, o.heard, o.outdated = m, l.ResourceVersion, time.Now(), false
}

// reporter publishes the state of the server in its Lease, in the label of its pod and, for the primary, in the ConfigMap.
type reporter struct {
	api
	me, node    string
	reported    Member
	reportedAt  time.Time
	labelled    string // role of this pod, once the labels of both are right
	unlabelled  string // the last error, once reported
	published   Redundancy
	publishedAt time.Time
}

// report labels the pods, and writes the state of the server when it has changed, and at intervals.
func (r *reporter) report(ctx context.Context, m Member, record Record) {
	r.label(ctx, record)
	if m == r.reported && time.Since(r.reportedAt) < reportEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	l, err := r.get(ctx, MemberName(r.me))
	if err != nil {
		r.log.Debug("the state cannot be reported", "error", err)
		return
	}
	if err := m.Write(l); err != nil {
		r.log.Warn("the state cannot be reported", "error", err)
		return
	}
	now := metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.RenewTime = &r.node, &now
	if err := r.kube.Update(ctx, l); err != nil {
		r.log.Debug("the state cannot be reported", "error", err)
		return
	}
	r.reported, r.reportedAt = m, time.Now()
}

// label makes the Service point to the primary. The other pod is relabelled first, because its node may be lost. It repeats both until both have succeeded:
// the Service sends connections to every pod that is labelled as the primary.
func (r *reporter) label(ctx context.Context, record Record) {
	want := RoleReplica
	if record.Primary == r.me {
		want = RolePrimary
	}
	if record.Unsettled != "" { // etcd restored the labels together with the record
		r.labelled = ""
		return
	}
	if r.labelled == want {
		return
	}
	var err error
	if want == RolePrimary {
		err = client.IgnoreNotFound(r.labelPod(ctx, Peer(r.me), RoleReplica))
	}
	if err = errors.Join(err, r.labelPod(ctx, r.me, want)); err != nil {
		if said := err.Error(); said != r.unlabelled { // it is repeated every second
			r.log.Warn("the pods cannot be labelled", "error", err)
			r.unlabelled = said
		}
		return
	}
	r.labelled, r.unlabelled = want, ""
}

func (r *reporter) labelPod(ctx context.Context, server, role string) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return r.patch(ctx, &corev1.Pod{}, PodName(server), []byte(`{"metadata":{"labels":{"`+RoleLabel+`":"`+role+`"}}}`))
}

// publish writes the redundancy when it has changed, and at intervals in case another client changed it. A write without a change costs etcd nothing.
func (r *reporter) publish(ctx context.Context, record Record, mode Mode, replica Member) {
	if record.Primary != r.me || mode != Primary {
		r.published = Redundancy{}
		return
	}
	is := record.Redundancy(r.node, replica)
	if is == r.published && time.Since(r.publishedAt) < publishEvery {
		return
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{keyRedundant: strconv.FormatBool(is.Redundant), keyMessage: is.Message}})
	if err != nil {
		r.log.Warn("the redundancy cannot be reported", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := r.patch(ctx, &corev1.ConfigMap{}, StateName, patch); err != nil {
		r.log.Debug("the redundancy cannot be reported", "error", err)
		return
	}
	r.published, r.publishedAt = is, time.Now()
}
