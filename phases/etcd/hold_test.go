// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// store is an in-memory etcd.
type store struct {
	values  map[string][]byte
	writes  int
	failing int // the first write that fails; 0 means none
}

func (s *store) Entries(_ context.Context, prefix string) ([]etcd.Entry, error) {
	var out []etcd.Entry
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, etcd.Entry{Key: key, Value: s.values[key]})
		}
	}
	return out, nil
}

func (s *store) Put(_ context.Context, e etcd.Entry, value []byte) error {
	return s.write(func() { s.values[e.Key] = value })
}

func (s *store) Delete(_ context.Context, e etcd.Entry) error {
	return s.write(func() { delete(s.values, e.Key) })
}

func (s *store) write(do func()) error {
	if s.writes++; s.failing > 0 && s.writes >= s.failing {
		return context.DeadlineExceeded
	}
	do()
	return nil
}

// stored returns an object in the API server's protobuf format.
func stored(t *testing.T, gv schema.GroupVersion, kind string, o runtime.Object) []byte {
	t.Helper()
	o.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
	raw, err := encode(o, protobufPrefix)
	if err != nil || !bytes.HasPrefix(raw, protobufPrefix) {
		t.Fatalf("%q, %v", raw, err)
	}
	return raw
}

func cloudJSON(annotations, version string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"onecloud.yunion.io/v1alpha1","kind":"OnecloudCluster","metadata":{"name":"default","namespace":"onecloud","generation":12,%s"uid":"u"},`+
		`"spec":{"version":%q,"large":9007199254740993,"text":"a<b"},"status":{"release":{"revision":7,"version":%q}}}`, annotations, version, version)
}

func operationJSON(name, action, phase, metadata string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"onecloud.yunion.io/v1alpha1","kind":"OnecloudOperation","metadata":{"name":%q,"namespace":"onecloud"%s},`+
		`"spec":{"cloud":"default","action":%q},"status":{"phase":%q}}`, name, metadata, action, phase)
}

// snapshotOf returns the values of an etcd with a cloud that has unfinished work.
func snapshotOf(t *testing.T) map[string][]byte {
	t.Helper()
	lease := func(name string, r dbpair.Record) []byte {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "onecloud", UID: "lease"}}
		r.Write(l)
		return stored(t, coordinationv1.SchemeGroupVersion, "Lease", l)
	}
	work := func(of string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "work-" + of, Namespace: "onecloud", Labels: map[string]string{v1alpha1.LabelOperation: of}}
	}
	job := func(of string) []byte {
		return stored(t, batchv1.SchemeGroupVersion, "Job", &batchv1.Job{ObjectMeta: work(of)})
	}
	return map[string][]byte{
		clouds + "onecloud/default":            cloudJSON("", "v1"),
		operations + "onecloud/update":         operationJSON("update", "Update", "Running", ""),
		operations + "onecloud/restore":        operationJSON("restore", "Restore", "Pending", ""),
		operations + "onecloud/old":            operationJSON("old", "Backup", "Succeeded", ""),
		operations + "onecloud/cancelled":      operationJSON("cancelled", "Update", "Running", `,"annotations":{"onecloud.yunion.io/control":"cancel","x":"y"}`),
		operations + "onecloud/deleted":        operationJSON("deleted", "Update", "Running", `,"deletionTimestamp":"2026-11-26T00:00:00Z","deletionGracePeriodSeconds":0,"finalizers":["f"]`),
		leases + "onecloud/ocadm-mysql":        lease("ocadm-mysql", dbpair.Record{Primary: dbpair.First, InSync: dbpair.Second, Term: 3, Promote: dbpair.Second, Force: true}),
		leases + "onecloud/ocadm-mysql-server": []byte("not read"),
		jobs + "onecloud/work-update":          job("update"),
		jobs + "onecloud/work-old":             job("old"),
		pods + "onecloud/work-update": stored(t, corev1.SchemeGroupVersion, "Pod",
			&corev1.Pod{ObjectMeta: work("update"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}),
		pods + "onecloud/glance": stored(t, corev1.SchemeGroupVersion, "Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "glance", Namespace: "onecloud"}}),
		pods + "other/encrypted": []byte("k8s:enc:aescbc:v1:key1:xxxx"),
	}
}

// Restored objects do nothing: the cloud and the unfinished operations are paused, and their pods do not start.
func TestHold(t *testing.T) {
	s := &store{values: snapshotOf(t)}
	if _, err := holdAll(t.Context(), s, workflow.Discard{}); err != nil {
		t.Fatal(err)
	}
	now := contentsOf(s.values)
	var cloud v1alpha1.OnecloudCluster
	require.NoError(t, json.Unmarshal(s.values[clouds+"onecloud/default"], &cloud))
	if before, there := cloud.Annotations[v1alpha1.AnnotationPausedBefore]; cloud.Annotations[v1alpha1.AnnotationPaused] != "true" || !there || before != "" ||
		cloud.Annotations[v1alpha1.AnnotationStoppedBy] != v1alpha1.StoppedByRestore {
		t.Errorf("the cloud: %v", cloud.Annotations)
	}
	if text := string(s.values[clouds+"onecloud/default"]); !strings.Contains(text, "9007199254740993") || !strings.Contains(text, "a<b") || !strings.Contains(text, `"generation":12`) {
		t.Errorf("a field that nobody asked for has changed: %s", text)
	}
	if len(now.operations) != 4 {
		t.Errorf("operations: %v", now.operations)
	}
	for key, o := range now.operations {
		if o.Annotations[v1alpha1.AnnotationControl] != v1alpha1.OperationPause || o.DeletionTimestamp != nil {
			t.Errorf("%s: %+v", key, o.ObjectMeta)
		}
	}
	if o := now.operations[operations+"onecloud/cancelled"]; o.Annotations["x"] != "y" {
		t.Errorf("%v", o.Annotations)
	}
	if !bytes.Equal(s.values[operations+"onecloud/old"], snapshotOf(t)[operations+"onecloud/old"]) {
		t.Error("an operation that has ended was changed")
	}
	if r := now.records["onecloud"]; r != (dbpair.Record{Primary: dbpair.First, InSync: dbpair.Second, Term: 3, Unsettled: dbpair.Restored}) {
		t.Errorf("the record: %+v", r)
	}
	l, err := leaseOf(s.values[leases+"onecloud/ocadm-mysql"])
	if err != nil || l.UID != "lease" {
		t.Errorf("%+v, %v", l, err)
	}
	for key, there := range map[string]bool{
		jobs + "onecloud/work-update": false, pods + "onecloud/work-update": false, jobs + "onecloud/work-old": true, pods + "onecloud/glance": true, pods + "other/encrypted": true,
	} {
		if (s.values[key] != nil) != there {
			t.Errorf("%s: there %t", key, !there)
		}
	}
}

// Interrupted after any write, it continues to the same end. A second run changes nothing.
func TestHoldCutOff(t *testing.T) {
	whole := &store{values: snapshotOf(t)}
	if _, err := holdAll(t.Context(), whole, workflow.Discard{}); err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut <= whole.writes; cut++ {
		s := &store{values: snapshotOf(t), failing: cut}
		if _, err := holdAll(t.Context(), s, workflow.Discard{}); err == nil {
			t.Fatalf("write %d does not fail", cut)
		}
		s.failing = 0
		if _, err := holdAll(t.Context(), s, workflow.Discard{}); err != nil {
			t.Fatal(err)
		}
		if !maps.EqualFunc(s.values, whole.values, bytes.Equal) {
			t.Errorf("cut off at write %d: another end", cut)
		}
	}
	before := whole.writes
	if held, err := holdAll(t.Context(), whole, workflow.Discard{}); err != nil || held != 0 || whole.writes != before {
		t.Errorf("again: %d changes, %v", held, err)
	}
}

// A cloud's own pause returns when the user ends this one.
func TestPauseCloud(t *testing.T) {
	for name, c := range map[string]struct {
		annotations    string
		changes        bool
		paused, before string
		noted          bool
		asks           string
	}{
		"none":              {"", true, "true", "", true, ""},
		"some components":   {`"onecloud.yunion.io/paused":"glance,region"`, true, "true", "glance,region", true, ""},
		"all":               {`"onecloud.yunion.io/paused":"true"`, false, "", "", false, ""},
		"stopped":           {`"onecloud.yunion.io/paused":"true","onecloud.yunion.io/paused-before":"glance"`, false, "", "", false, ""},
		"by an operation":   {`"onecloud.yunion.io/paused":"true","onecloud.yunion.io/paused-before":"glance","onecloud.yunion.io/stopped-by":"r"`, true, "true", "glance", true, ""},
		"by a restore":      {`"onecloud.yunion.io/paused":"true","onecloud.yunion.io/paused-before":"","onecloud.yunion.io/stopped-by":"etcd restore"`, false, "", "", false, ""},
		"an action":         {`"onecloud.yunion.io/operation":"Update update-1"`, true, "true", "", true, ""},
		"paused, an action": {`"onecloud.yunion.io/paused":"true","onecloud.yunion.io/operation":"Backup"`, true, "true", "", false, ""},
		"no action":         {`"onecloud.yunion.io/operation":"create-finished"`, true, "true", "", true, "create-finished"},
	} {
		if c.annotations != "" {
			c.annotations = `"annotations":{` + c.annotations + `},`
		}
		d, err := pauseCloud(cloudJSON(c.annotations, "v1"))
		if err != nil || (d.what != "") != c.changes {
			t.Errorf("%s: %+v, %v", name, d, err)
			continue
		}
		if !c.changes {
			continue
		}
		var got v1alpha1.OnecloudCluster
		require.NoError(t, json.Unmarshal(d.value, &got))
		before, noted := got.Annotations[v1alpha1.AnnotationPausedBefore]
		if got.Annotations[v1alpha1.AnnotationPaused] != c.paused || before != c.before || noted != c.noted || got.Annotations[v1alpha1.AnnotationOperation] != c.asks {
			t.Errorf("%s: %v", name, got.Annotations)
		}
		if by := got.Annotations[v1alpha1.AnnotationStoppedBy]; by != v1alpha1.StoppedByRestore && name != "paused, an action" {
			t.Errorf("%s: stopped by %q", name, by)
		}
	}
}

// The step belongs to the restore of an earlier state, between etcd and the API server, and is not repeated once clouds may have been started again.
func TestHoldStep(t *testing.T) {
	steps := RestoreSteps()
	at := slices.IndexFunc(steps, func(s RestoreStep) bool { return s.Name == "clouds" })
	if at < 1 || steps[at-1].Name != "etcd" || steps[at+1].Name != "control-plane" {
		t.Fatalf("it is step %d", at)
	}
	h := machine(t)
	r := &Restore{Host: h, Member: own(t, h)}
	for _, fresh := range []bool{false, true} {
		require.NoError(t, (record{Source: r.source(), Prepared: true, Fresh: fresh}).save(h, restoreName))
		if skipped := steps[at].Skip(r) != ""; skipped != fresh {
			t.Errorf("with --from-data of data that is fresh (%t), it is skipped (%t)", fresh, skipped)
		}
	}
	r.File, r.Info.Digest = "x.db", "sha256:x"
	if why := steps[at].Skip(r); why != "" {
		t.Error(why)
	}
	for _, held := range []bool{false, true} {
		require.NoError(t, (record{Source: r.source(), Prepared: true, Swapped: true, Held: held, Before: beforeDir + time.Now().Format(beforeTime)}).save(h, restoreName))
		if done, err := steps[at].Check(t.Context(), r); err != nil || done != held {
			t.Errorf("held %t: done %t, %v", held, done, err)
		}
	}
}
