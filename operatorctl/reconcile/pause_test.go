// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

func TestPausedAnnotation(t *testing.T) {
	for text, want := range map[string]struct {
		all           bool
		left, unknown []string
	}{
		"":                              {},
		"false":                         {},
		"true":                          {all: true},
		"glance":                        {left: []string{"glance"}},
		"regionServer, glance,glnace x": {left: []string{"glance", "region"}, unknown: []string{"glnace", "x"}},
	} {
		p := pausedBy(text, catalog.All())
		if p.all != want.all || !slices.Equal(slices.Sorted(maps.Keys(p.components)), want.left) || !slices.Equal(p.unknown, want.unknown) {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

// Manual changes in a paused component are kept; everything else is still corrected.
func TestPausedComponentIsNotChanged(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	annotate := func(value string) {
		t.Helper()
		require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"metadata":{"annotations":{"onecloud.yunion.io/paused":"`+value+`"}}}`)(b.api))
	}
	meddle := func(name string) {
		t.Helper()
		s := &corev1.Service{}
		b.get(s, name)
		require.NoError(t, b.api.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"selector":{"app":"mine"}}}`))))
	}
	app := func(name string) string {
		t.Helper()
		s := &corev1.Service{}
		b.get(s, name)
		return s.Spec.Selector["app"]
	}
	annotate("logger, regionServer")
	for _, name := range []string{"default-logger", "default-region", "default-glance"} {
		meddle(name)
	}
	b.reconcile()
	if app("default-logger") != "mine" || app("default-region") != "mine" || app("default-glance") != "glance" {
		t.Errorf("logger %s, region %s, glance %s", app("default-logger"), app("default-region"), app("default-glance"))
	}
	if s := b.component("logger"); s.Reason != "Paused" || !strings.Contains(s.Message, "paused by annotation") {
		t.Errorf("%+v", s)
	}
	// It also stays when disabled, until it is no longer paused.
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"logger":{"disable":true}}}`)(b.api))
	b.reconcile()
	if s := b.component("logger"); app("default-logger") != "mine" || s.State != v1alpha1.Disabled || s.Reason != "Paused" {
		t.Errorf("%+v", s)
	}
	annotate("false")
	b.reconcile()
	if err := b.api.Get(t.Context(), types.NamespacedName{Namespace: "onecloud", Name: "default-logger"}, &corev1.Service{}); err == nil {
		t.Error("the Service of a component that is switched off is still there")
	}
	if app("default-region") != "region" {
		t.Error("region is not set right")
	}
}

// The conditions of a paused cloud go on: its backups may fail meanwhile, and its database may lose its redundancy.
func TestConditionsOfPausedCloud(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	b.edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":"true"}}}`)
	proven := func() string {
		t.Helper()
		if again := b.reconcile(); again.RequeueAfter == 0 {
			t.Error("the condition would not change with time")
		}
		return meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionBackupProven).Reason
	}
	b.reported()
	if is := proven(); is != status.ReasonNoBackup {
		t.Error(is)
	}
	available := func() metav1.ConditionStatus {
		return meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionUpdateAvailable).Status
	}
	if meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionHighlyAvailable) != nil {
		t.Error("a cloud of one copy has a condition for two")
	}
	if is := available(); is != metav1.ConditionUnknown { // nothing is rendered that could differ
		t.Error(is)
	}
	require.NoError(t, archive.AddRecord(t.Context(), b.api, "ocadm", b.cloud(), backup.Record{Time: b.clock.Add(-time.Hour), Error: "no room"}))
	if is, said := proven(), b.reported(); is != status.ReasonFailed || len(said) != 1 {
		t.Error(is, said)
	}
	b.edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":null}}}`)
	if b.reconcile(); available() != metav1.ConditionFalse {
		t.Error(available())
	}
}

// The update of a paused cloud is refused: its condition says so at once, until the operation is deleted.
func TestUpdateOfPausedCloudIsRefused(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.r.reads.operations = true
	b.edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":"true"}}}`)
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: v1alpha1.ActionUpdate}}
	o.Namespace, o.Name, o.Status.Phase = cloudKey.Namespace, "update-1", v1alpha1.OperationFailed
	o.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-7022", What: "The cloud is paused", Remedy: "ocadm cluster start"}}
	require.NoError(t, b.api.Create(t.Context(), o))
	b.reconcile()
	if says := status.Message(b.cloud().Status.Conditions, v1alpha1.ConditionUpdateFailed); !strings.Contains(says, "OCA-7022") {
		t.Errorf("%q", says)
	}
	require.NoError(t, b.api.Delete(t.Context(), o))
	b.reconcile()
	if says := status.Message(b.cloud().Status.Conditions, v1alpha1.ConditionUpdateFailed); says != "" {
		t.Error(says)
	}
}

// A workload that is deleted while its cloud is paused does not run, although nothing creates it again.
func TestWorkloadDeletedWhilePaused(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.settle()
	d := &appsv1.Deployment{}
	b.get(d, "default-glance")
	d.Generation = 1
	require.NoError(t, b.api.Update(t.Context(), d))
	d.Status.ObservedGeneration = 1
	require.NoError(t, b.api.Status().Update(t.Context(), d))
	b.edit(`{"metadata":{"annotations":{"onecloud.yunion.io/paused":"true"}}}`)
	b.reconcile()
	if s := b.component("glance"); s.State != v1alpha1.Available || s.Ready != 1 {
		t.Fatalf("%+v", s)
	}
	require.NoError(t, b.api.Delete(t.Context(), d))
	for range 2 {
		b.reconcile()
		if s := b.component("glance"); s.State != v1alpha1.Waiting || s.Ready != 0 {
			t.Errorf("%+v", s)
		}
	}
}
