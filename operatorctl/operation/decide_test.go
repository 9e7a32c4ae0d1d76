// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
)

func op(name string, at int, phase v1alpha1.OperationPhase, control string) *v1alpha1.OnecloudOperation {
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "c", Action: v1alpha1.ActionCheck}}
	o.Namespace, o.Name, o.CreationTimestamp = "n", name, metav1.NewTime(time.Unix(int64(at), 0))
	o.Status.Phase = phase
	if control != "" {
		o.Annotations = map[string]string{v1alpha1.AnnotationControl: control}
	}
	return o
}

// backupOp returns a backup; by is the program that runs it, "" before it has announced itself.
func backupOp(name string, at int, phase v1alpha1.OperationPhase, by string) *v1alpha1.OnecloudOperation {
	o := op(name, at, phase, "")
	o.Spec.Action, o.Spec.Backup = v1alpha1.ActionBackup, &v1alpha1.BackupParameters{Place: "/backup"}
	if by != "" {
		o.Status.Runner = &v1alpha1.OperationRunner{Name: by}
	}
	return o
}

// askedOp returns a request for the scheduled backup.
func askedOp(name string, at int) *v1alpha1.OnecloudOperation {
	o := backupOp(name, at, "", "")
	o.Spec.Backup = nil
	return o
}

// updateOp returns an update to a version. Each has another requester.
func updateOp(name string, at int, phase v1alpha1.OperationPhase, version string) *v1alpha1.OnecloudOperation {
	o := op(name, at, phase, "")
	o.Spec.Action, o.Spec.Update, o.Spec.Requester = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: version}, name
	return o
}

func TestDecide(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	deleting := cloud.DeepCopy()
	deleting.DeletionTimestamp = new(metav1.Now())
	unknown := op("u", 1, "", "")
	unknown.Spec.Action = "Dance"
	former := op("f", 1, "Paused", "pause")
	former.OwnerReferences = []metav1.OwnerReference{OwnerOf(&v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{UID: "former"}})}
	for name, c := range map[string]struct {
		all     []*v1alpha1.OnecloudOperation
		cloud   *v1alpha1.OnecloudCluster
		run     string
		pending map[string]string
		end     map[string]ending
	}{
		"the first that was asked for runs": {
			all: []*v1alpha1.OnecloudOperation{op("b", 2, "", ""), op("a", 3, "", ""), op("c", 1, "Succeeded", "")}, cloud: cloud,
			run: "b", pending: map[string]string{"a": "waiting for operation b"},
		},
		"a backup that the operator is asked for needs no program": {
			all: []*v1alpha1.OnecloudOperation{askedOp("a", 2), backupOp("b", 1, "", "")}, cloud: cloud,
			run: "a", pending: map[string]string{"b": "waiting for the program that runs it"},
		},
		"what runs goes first, and each waits for the one before": {
			all: []*v1alpha1.OnecloudOperation{op("a", 1, "", ""), op("b", 2, "Pending", ""), op("r", 3, "Running", "")}, cloud: cloud,
			run: "r", pending: map[string]string{"a": "waiting for operation r", "b": "waiting for operation a"},
		},
		"a second update does nothing, and one to another version waits": {
			all:   []*v1alpha1.OnecloudOperation{updateOp("a", 1, "Running", "v2"), updateOp("again", 2, "", "v2"), updateOp("v3", 3, "", "v3"), updateOp("v3-again", 4, "Pending", "v3")},
			cloud: cloud, run: "a", pending: map[string]string{"v3": "waiting for operation a"},
			end: map[string]ending{
				"again": {"Cancelled", "it repeats operation a, which has not ended"}, "v3-again": {"Cancelled", "it repeats operation v3, which has not ended"},
			},
		},
		"an update is repeated after another one": {
			all:   []*v1alpha1.OnecloudOperation{updateOp("a", 1, "Running", "v2"), updateOp("back", 2, "", "v1"), updateOp("again", 3, "", "v2")},
			cloud: cloud, run: "a", pending: map[string]string{"back": "waiting for operation a", "again": "waiting for operation back"},
		},
		"an update that goes back can be asked for again": {
			all: []*v1alpha1.OnecloudOperation{updateOp("a", 1, "Reverting", "v2"), updateOp("again", 2, "", "v2")}, cloud: cloud,
			run: "a", pending: map[string]string{"again": "waiting for operation a"},
		},
		"a paused one keeps its place": {
			all: []*v1alpha1.OnecloudOperation{op("a", 1, "", ""), op("p", 2, "Paused", "pause")}, cloud: cloud,
			run: "p", pending: map[string]string{"a": "waiting for operation p"},
		},
		"paused before it started": {
			all: []*v1alpha1.OnecloudOperation{op("a", 1, "", "pause"), op("b", 2, "", "")}, cloud: cloud,
			run: "b", pending: map[string]string{"a": "paused before it started"},
		},
		"cancelled before it started": {
			all: []*v1alpha1.OnecloudOperation{op("a", 1, "Pending", "cancel")}, cloud: cloud,
			end: map[string]ending{"a": {"Cancelled", "cancelled before it started"}},
		},
		"no such cloud": {
			all: []*v1alpha1.OnecloudOperation{op("a", 1, "", "")},
			end: map[string]ending{"a": {"Failed", "cloud n/c does not exist"}},
		},
		"the cloud goes": {
			all: []*v1alpha1.OnecloudOperation{op("a", 1, "", ""), op("r", 2, "Running", "")}, cloud: deleting,
			end: map[string]ending{"a": {"Cancelled", "the cloud was deleted"}, "r": {"Cancelled", "the cloud was deleted"}},
		},
		"the cloud was replaced": {
			all: []*v1alpha1.OnecloudOperation{former, op("a", 2, "", "")}, cloud: cloud,
			run: "a", end: map[string]ending{"f": {"Cancelled", "the cloud was deleted"}},
		},
		"a backup waits for an update": {
			all: []*v1alpha1.OnecloudOperation{op("u", 1, "Running", ""), backupOp("b", 2, "", "host")}, cloud: cloud,
			run: "u", pending: map[string]string{"b": "waiting for operation u"},
		},
		"an update waits for a backup": {
			all: []*v1alpha1.OnecloudOperation{backupOp("b", 1, "Running", "host"), op("u", 2, "", "")}, cloud: cloud,
			run: "b", pending: map[string]string{"u": "waiting for operation b"},
		},
		"a backup without a program takes no turn": {
			all: []*v1alpha1.OnecloudOperation{backupOp("b", 1, "", ""), op("u", 2, "", ""), op("v", 3, "", "")}, cloud: cloud,
			run: "u", pending: map[string]string{"b": "waiting for the program that runs it", "v": "waiting for operation u"},
		},
		"no such action": {
			all: []*v1alpha1.OnecloudOperation{unknown}, cloud: cloud,
			end: map[string]ending{"u": {"Failed", `this operator does not support action "Dance"`}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(c.all, c.cloud, Actions(catalog.All()), 2)
			run := ""
			if d.run != nil {
				run = d.run.Name
			}
			if run != c.run {
				t.Errorf("runs %q, want %q", run, c.run)
			}
			if c.pending == nil {
				c.pending = map[string]string{}
			}
			if c.end == nil {
				c.end = map[string]ending{}
			}
			if diff := cmp.Diff(c.pending, d.pending) + cmp.Diff(c.end, d.end, cmp.AllowUnexported(ending{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestInTurn: the order of operations does not change when they begin within one second, and those of an earlier operator have no numbers.
func TestInTurn(t *testing.T) {
	began := func(name string, at int, turn int64) *v1alpha1.OnecloudOperation {
		o := op(name, at, v1alpha1.OperationFailed, "")
		o.Status.Turn = turn
		return o
	}
	all := []*v1alpha1.OnecloudOperation{
		op("pending", 5, "", ""), began("default-update-1", 5, 9), began("rehearse-x", 5, 7), began("check-x", 5, 8), began("b-earlier-operator", 4, 0),
		began("later", 6, 10), began("a-earlier-operator", 4, 0),
	}
	slices.SortFunc(all, InTurn)
	var got []string
	for _, o := range all {
		got = append(got, o.Name)
	}
	want := []string{"a-earlier-operator", "b-earlier-operator", "rehearse-x", "check-x", "default-update-1", "pending", "later"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var all []*v1alpha1.OnecloudOperation
	for i := range Keep + 3 {
		all = append(all, op(fmt.Sprintf("o%02d", i), i, v1alpha1.OperationFailed, ""))
	}
	for i := range KeepOfBackups + 1 { // nightly backups push nothing out
		all = append(all, backupOp(fmt.Sprintf("p%02d", i), 100+i, v1alpha1.OperationSucceeded, "host"))
	}
	for i := range KeepOfBackups + 1 { // neither do updates to an earlier version, which a tool requests again and again
		o := op(fmt.Sprintf("r%02d", i), 200+i, v1alpha1.OperationFailed, "")
		o.Spec.Action = v1alpha1.ActionUpdate
		all = append(all, o)
	}
	d := decide(all, &v1alpha1.OnecloudCluster{}, Actions(catalog.All()), 2)
	var pruned []string
	for _, o := range d.prune {
		pruned = append(pruned, o.Name)
	}
	if diff := cmp.Diff([]string{"r00", "p00", "o02", "o01", "o00"}, pruned); diff != "" {
		t.Error(diff)
	}
}

// TestJoinIsKept checks that checks of a machine do not push out its last join: without it, a machine whose join a user has cancelled would join again.
func TestJoinIsKept(t *testing.T) {
	ofMachine := func(name string, at int, action string, phase v1alpha1.OperationPhase) *v1alpha1.OnecloudOperation {
		o := op(name, at, phase, "")
		o.Spec.Action, o.Spec.Machine = action, &v1alpha1.MachineParameters{Name: "node1"}
		return o
	}
	all := []*v1alpha1.OnecloudOperation{ofMachine("join-node1-1", 1, v1alpha1.ActionJoinMachine, v1alpha1.OperationCancelled)}
	for i := range KeepOfMachine + 1 {
		all = append(all, ofMachine(fmt.Sprintf("check-%d", i), 2+i, v1alpha1.ActionPrecheckMachine, v1alpha1.OperationSucceeded))
	}
	d := decide(all, &v1alpha1.OnecloudCluster{}, Actions(catalog.All()), 2)
	if len(d.prune) != 1 || d.prune[0].Name != "check-0" {
		t.Errorf("%v", d.prune)
	}
}
