// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// edit is the change of a key: a new value, or its removal. what describes it, and is "" if the key stays unchanged.
type edit struct {
	value  []byte
	remove bool
	what   string
}

// HoldStep is the name of the restore step that pauses the restored clouds and operations.
const HoldStep = "clouds"

func holdStep() RestoreStep {
	return RestoreStep{
		Name: HoldStep, Short: "Pause the restored clouds and their operations", Timeout: 5 * time.Minute,
		Skip: func(r *Restore) string {
			return map[bool]string{true: "the data of this member is only minutes old"}[r.isFresh()]
		},
		Check: did[*Restore](func(r record) bool { return r.Held }),
		Plan:  workflow.Says[*Restore]("pause each cloud, and each unfinished operation", "let the servers of an embedded database determine which one was the last primary"),
		Run:   hold,
	}
}

// hold keeps restored objects from acting on databases that were not restored: it pauses the clouds and the unfinished operations, deletes the pods
// of those operations, and makes the servers of a database with a replica settle which one was the primary. etcd runs, and the API server does not.
func hold(ctx context.Context, r *Restore, rep workflow.Reporter) error {
	c, err := kubernetes.OpenOwnEtcd(ctx, r.Host, false)
	if err != nil {
		return kubernetes.EtcdUnwell(err)
	}
	defer c.Close()
	held, err := holdAll(ctx, c, rep)
	if err != nil {
		return err
	}
	rec, err := r.record()
	if err != nil {
		return err
	}
	rec.Held = true
	if held == 0 {
		rep.Info("no cloud needs to be paused")
	}
	return rec.save(r.Host, restoreName)
}

// keys is the part of the etcd client that hold needs.
type keys interface {
	Entries(ctx context.Context, prefix string) ([]etcd.Entry, error)
	Put(ctx context.Context, e etcd.Entry, value []byte) error
	Delete(ctx context.Context, e etcd.Entry) error
}

func holdAll(ctx context.Context, c keys, rep workflow.Reporter) (held int, err error) {
	running := map[string]bool{} // the unfinished operations, by namespace and name
	for _, of := range []struct {
		prefix string
		change func(etcd.Entry) (edit, error)
	}{
		{clouds, func(e etcd.Entry) (edit, error) { return pauseCloud(e.Value) }},
		{operations, func(e etcd.Entry) (edit, error) { return holdOperation(e.Value, running) }},
		{leases, func(e etcd.Entry) (edit, error) { return doubtRecord(e) }},
		{jobs, func(e etcd.Entry) (edit, error) { return endWork(e.Value, running) }},
		{pods, func(e etcd.Entry) (edit, error) { return endWork(e.Value, running) }},
	} {
		if len(running) == 0 && (of.prefix == jobs || of.prefix == pods) {
			continue
		}
		entries, err := c.Entries(ctx, of.prefix)
		if err != nil {
			return held, err
		}
		for _, e := range entries {
			d, err := of.change(e)
			if err != nil { // encrypted, or written by a later ocadm; the preview has reported it
				rep.Info("%s cannot be read, and was not changed: %v", e.Key, err)
				continue
			}
			if d.what == "" {
				continue
			}
			if d.remove {
				err = c.Delete(ctx, e)
			} else {
				err = c.Put(ctx, e, d.value)
			}
			if err != nil {
				return held, err
			}
			held++
			rep.Changed("%s", d.what)
		}
	}
	return held, nil
}

// pauseCloud pauses a cloud as ocadm cluster stop does, so that ocadm cluster start resumes it. An operation that an annotation requests is not started.
func pauseCloud(raw []byte) (edit, error) {
	o, m, a, err := fields(raw)
	if err != nil {
		return edit{}, err
	}
	word, _ := a[v1alpha1.AnnotationOperation].(string)
	asks := word != "" && !strings.HasPrefix(word, "creat") // those words request nothing
	paused, by := a[v1alpha1.AnnotationPaused] == "true", a[v1alpha1.AnnotationStoppedBy]
	stays := paused && (by == nil || by == v1alpha1.StoppedByRestore)
	if stays && !asks {
		return edit{}, nil
	}
	if !paused {
		before, _ := a[v1alpha1.AnnotationPaused].(string)
		a[v1alpha1.AnnotationPaused], a[v1alpha1.AnnotationPausedBefore] = "true", before
	}
	if !stays { // not even the end of the operation that stopped it may start it
		a[v1alpha1.AnnotationStoppedBy] = v1alpha1.StoppedByRestore
	}
	what := fmt.Sprintf("paused cloud %s/%s", m["namespace"], m["name"])
	if asks {
		delete(a, v1alpha1.AnnotationOperation)
		what += ", and cancelled its request to begin " + word
	}
	return written(o, what)
}

// holdOperation pauses an unfinished operation. One that was being cancelled or deleted would undo its work in today's databases, so it is paused as
// well; the user may cancel or delete it again.
func holdOperation(raw []byte, running map[string]bool) (edit, error) {
	var is v1alpha1.OnecloudOperation
	if err := json.Unmarshal(raw, &is); err != nil {
		return edit{}, err
	}
	if is.Status.Phase.Final() {
		return edit{}, nil
	}
	running[is.Namespace+"/"+is.Name] = true
	o, m, a, err := fields(raw)
	if err != nil {
		return edit{}, err
	}
	was := a[v1alpha1.AnnotationControl]
	if was == v1alpha1.OperationPause && is.DeletionTimestamp == nil {
		return edit{}, nil
	}
	a[v1alpha1.AnnotationControl] = v1alpha1.OperationPause
	what := fmt.Sprintf("paused operation %s/%s (%s)", is.Namespace, is.Name, is.Spec.Action)
	if was == v1alpha1.OperationCancel || is.DeletionTimestamp != nil {
		what += ", and withdrew its cancellation"
		delete(m, "deletionTimestamp")
		delete(m, "deletionGracePeriodSeconds")
	}
	return written(o, what)
}

// doubtRecord marks the record of a database's primary as doubtful.
func doubtRecord(e etcd.Entry) (edit, error) {
	if !isRecord(e.Key) {
		return edit{}, nil
	}
	l, err := leaseOf(e.Value)
	if err != nil {
		return edit{}, err
	}
	r := dbpair.ReadRecord(l)
	if r == r.Doubted(dbpair.Restored) {
		return edit{}, nil
	}
	r.Doubted(dbpair.Restored).Write(l)
	l.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	value, err := encode(l, e.Value)
	return edit{value: value, what: "let the servers of the embedded database in namespace " + l.Namespace + " determine which one was the last primary"}, err
}

// endWork removes the Job of a paused operation and its pods, which the kubelet and the controllers would otherwise start immediately.
func endWork(raw []byte, running map[string]bool) (edit, error) {
	o, err := decode(raw)
	if err != nil {
		return edit{}, err
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return edit{}, err
	}
	of := m.GetLabels()[v1alpha1.LabelOperation]
	if of == "" || !running[m.GetNamespace()+"/"+of] {
		return edit{}, nil
	}
	return edit{remove: true, what: fmt.Sprintf("removed %s %s/%s of that operation", strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind), m.GetNamespace(), m.GetName())}, nil
}

// fields returns the fields of a resource stored as JSON, those of its metadata, and its annotations. Numbers keep their exact form.
func fields(raw []byte) (o, metadata, annotations map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return nil, nil, nil, err
	}
	metadata, ok := o["metadata"].(map[string]any)
	if !ok {
		return nil, nil, nil, fmt.Errorf("it has no metadata")
	}
	if annotations, ok = metadata["annotations"].(map[string]any); !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	return o, metadata, annotations, nil
}

func written(o map[string]any, what string) (edit, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(o)
	return edit{value: out.Bytes(), what: what}, err
}
