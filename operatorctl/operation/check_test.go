// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/mariadb"
)

// A step that waits, or reads or migrates databases, may take longer than the default limit of a step.
func TestLimitsOfSteps(t *testing.T) {
	for _, s := range []Step{checks(), checkRollback(), rehearse().Steps[1]} {
		if s.Timeout <= max(workflow.DefaultTimeout, calmWithin*DefaultSettle) {
			t.Errorf("step %q (%s) is limited to %s", s.Name, s.Short, s.Timeout)
		}
	}
}

// A component that is still Progressing after the wait is left to the checks, which report it with everything else.
func TestChecksAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
		cloud.Status.Release.Revision, cloud.Status.Release.Version = 4, "v4.0.3"
		cloud.Status.Components = []v1alpha1.ComponentStatus{{Name: "glance", State: v1alpha1.Progressing, Message: "0 of 1 pods ready"}}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
		o := op("r", 0, "", "")
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.4"}
		r := &Run{Operation: o, Settle: DefaultSettle, Means: Means{Client: c, Direct: c}, record: newRecord(nil, nil, o.DeepCopy())}
		_, err := workflow.Runner[*Run]{Plan: "x", Phases: []Step{whenCalm(checks())}}.Run(t.Context(), r, workflow.Options{})
		if l := finding.Of(err); len(l) == 0 || l[0].Code != "OCA-7051" {
			t.Errorf("no findings: %v", err)
		}
	})
}

// A paused cloud would not follow: an update is refused before it pulls or copies anything.
func TestUpdateOfAPausedCloud(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	for value, want := range map[string]int{"true": 1, "glance": 0, "false": 0, "": 0} {
		cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: value}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud.DeepCopy()).Build()
		o := op("r", 0, "", "")
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: "v4.0.4"}
		found := findingsOf(t.Context(), &Run{Operation: o, Means: Means{Client: c, Direct: c}, record: newRecord(nil, nil, o.DeepCopy())})
		if got := len(slices.DeleteFunc(found, func(f finding.Finding) bool { return f.Code != "OCA-7022" || f.Remedy != "ocadm cluster start" })); got != want {
			t.Errorf("%q: %d findings, want %d", value, got, want)
		}
	}
}

// Tables may differ between patches, so a rollback without copies needs a decision. The copies were replaced by a later update.
func TestRollbackOfAPatchWithoutCopies(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	m := newMigrated(t, server) // has copies of release 3 only
	m.run("ALTER TABLE keystone.t ADD COLUMN more INT", "INSERT INTO keystone.t VALUES (2, 7)")
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "id-1"}}
	cloud.Spec.MySQL = v1alpha1.DatabaseServer{Host: server.Host, Port: int32(server.Port), Username: "root", Password: server.RootPassword}
	cloud.Status.Release.Revision, cloud.Status.Release.Version = 4, "v4.0.3"
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	o := op("r", 0, "", "")
	o.Spec.Action, o.Spec.Rollback = v1alpha1.ActionRollback, &v1alpha1.RollbackParameters{Revision: 2}
	r := &Run{Operation: o, Means: Means{Client: c, Direct: c}, record: newRecord(nil, nil, o.DeepCopy())}
	for version, want := range map[string]string{"v4.0.2": "OCA-7066", "v4.0.3": ""} {
		to := &release.Release{}
		to.Revision, to.Version = 2, version
		if _, list := migratedSince(t.Context(), r, cloud, to); len(list) > 0 != (want != "") || len(list) > 0 && list[0].Code != want {
			t.Errorf("to %s: %v, want %q", version, list, want)
		}
	}
}
