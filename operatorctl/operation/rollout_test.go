// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// Every component is in one wave, and none is in an earlier wave than one that it comes after.
func TestWaves(t *testing.T) {
	of := map[string]int{}
	for i, w := range waves(catalog.All()) {
		for _, name := range w.Components {
			if was, twice := of[name]; twice {
				t.Errorf("%s is in waves %d and %d", name, was, i)
			}
			of[name] = i
		}
	}
	for _, c := range catalog.All() {
		wave, there := of[c.Name]
		if !there {
			t.Errorf("%s is in no wave", c.Name)
		}
		for _, before := range c.After {
			if of[before] > wave {
				t.Errorf("%s is in wave %d, and %s, which it comes after, in wave %d", c.Name, wave, before, of[before])
			}
		}
	}
	for name, want := range map[string]int{"keystone": 0, "region": 1, "glance": 2, "apigateway": 2, "host": 3, "host-ovs-vswitchd": 3} {
		if of[name] != want {
			t.Errorf("%s is in wave %d, want %d", name, of[name], want)
		}
	}
}

func TestJudge(t *testing.T) {
	now, settle := time.Unix(1000, 0), 30*time.Second
	at := func(since time.Time, state v1alpha1.State, outdated bool, reason string) *v1alpha1.OnecloudCluster {
		return &v1alpha1.OnecloudCluster{Status: v1alpha1.OnecloudClusterStatus{Components: []v1alpha1.ComponentStatus{
			{Name: "region", State: state, Outdated: outdated, Reason: reason, Message: "m", Since: metav1.NewTime(since)},
			{Name: "glance", State: v1alpha1.Degraded}, // in another wave
			{Name: "llm", State: v1alpha1.Disabled},
		}}}
	}
	one := func(state v1alpha1.State, outdated bool, reason string) *v1alpha1.OnecloudCluster {
		return at(now.Add(-settle), state, outdated, reason)
	}
	members := []string{"region", "llm"}
	for _, c := range []struct {
		cloud  *v1alpha1.OnecloudCluster
		ready  bool
		failed string
		back   bool
	}{
		{one(v1alpha1.Available, false, ""), true, "", true},
		{one(v1alpha1.Available, true, v1alpha1.ReasonWave), false, "", true},
		{one(v1alpha1.Available, true, "WaitingForComponents"), false, "", false},
		{one(v1alpha1.Progressing, false, ""), false, "", false},
		{one(v1alpha1.Degraded, false, ""), false, "region: m", false},
		{at(now.Add(-settle+time.Second), v1alpha1.Degraded, false, ""), false, "", false}, // a busy node may refuse to start a container once
		{one(v1alpha1.Idle, false, ""), true, "", true},
	} {
		v := judge(c.cloud, members, v1alpha1.ComponentStatus.Settled, forbearance{now: now, settle: settle})
		if v.ready != c.ready || v.failed != c.failed || v.want != 1 {
			t.Errorf("%+v: %+v", c.cloud.Status.Components[0], v)
		}
		if b := judge(c.cloud, members, settledBefore, forbearance{now: now, settle: settle}); b.ready != c.back {
			t.Errorf("back, %+v: %+v", c.cloud.Status.Components[0], b)
		}
	}
}

func TestWanted(t *testing.T) {
	cloud := func(change func(*v1alpha1.OnecloudCluster)) *v1alpha1.OnecloudCluster {
		c := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", ResourceVersion: "7", Generation: 9, Annotations: map[string]string{}}}
		c.Spec.Version, c.Status.Version = "v4.0.4", "v4.0.4"
		c.Status.Release = v1alpha1.ReleaseStatus{Revision: 3, Version: "v4.0.4"}
		change(c)
		return c
	}
	moved := func(c *v1alpha1.OnecloudCluster) { c.Spec.Version = "v4.0.5" }
	running, done := op("r", 1, "Running", ""), op("c-update-3-9-v4-0-5", 1, "Failed", "")
	running.Spec.Action = v1alpha1.ActionUpdate
	for _, c := range []struct {
		name  string
		cloud *v1alpha1.OnecloudCluster
		all   []*v1alpha1.OnecloudOperation
		want  string
	}{
		{"nothing", cloud(func(*v1alpha1.OnecloudCluster) {}), nil, ""},
		{"another version", cloud(moved), nil, "c-update-3-9-v4-0-5 v4.0.5"},
		{"asked for and failed", cloud(moved), []*v1alpha1.OnecloudOperation{done}, ""},
		{"another one runs", cloud(moved), []*v1alpha1.OnecloudOperation{running}, ""},
		{"never ran", cloud(func(c *v1alpha1.OnecloudCluster) { moved(c); c.Status.Version = "" }), nil, ""},
		{"never complete", cloud(func(c *v1alpha1.OnecloudCluster) {
			moved(c)
			c.Status.Version, c.Status.Effects = "", map[string]string{v1alpha1.EffectServed: "h"}
		}), nil, "c-update-3-9-v4-0-5 v4.0.5"},
		{"at once", cloud(func(c *v1alpha1.OnecloudCluster) { moved(c); c.Annotations[v1alpha1.AnnotationAtOnce] = "3" }), nil, ""},
		{"at once, from an earlier release", cloud(func(c *v1alpha1.OnecloudCluster) { moved(c); c.Annotations[v1alpha1.AnnotationAtOnce] = "2" }), nil,
			"c-update-3-9-v4-0-5 v4.0.5"},
		{"what is rendered now", cloud(func(c *v1alpha1.OnecloudCluster) { c.Annotations[v1alpha1.AnnotationUpdateFrom] = "3" }), nil, "c-update-3"},
		{"what was rendered", cloud(func(c *v1alpha1.OnecloudCluster) { c.Annotations[v1alpha1.AnnotationUpdateFrom] = "2" }), nil, ""},
		{"the annotation", cloud(func(c *v1alpha1.OnecloudCluster) { c.Annotations[v1alpha1.AnnotationOperation] = "Check c-check-5" }), nil, "c-check-5"},
		{"the annotation, again", cloud(func(c *v1alpha1.OnecloudCluster) {
			moved(c)
			c.Annotations[v1alpha1.AnnotationOperation] = "Update c-update-7"
		}),
			[]*v1alpha1.OnecloudOperation{done}, "c-update-7 v4.0.5"},
	} {
		got := ""
		if o := wanted(c.cloud, c.all); o != nil {
			if got = o.Name; o.Spec.Update != nil {
				got += " " + o.Spec.Update.Version
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestUnmoved(t *testing.T) {
	for _, c := range []struct {
		phase      string
		generation int64
		version    string
		want       bool
	}{
		{"Failed", 9, "v4.0.5", true}, {"Cancelled", 9, "v4.0.5", true}, {"Reverted", 9, "v4.0.5", true}, {"Succeeded", 9, "v4.0.5", false},
		{"Running", 9, "v4.0.5", false}, {"Failed", 10, "v4.0.5", false}, {"Failed", 9, "v4.0.4", false}, {"Failed", 9, "v4.0.6", false},
	} {
		cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: c.generation}}
		cloud.Spec.Version, cloud.Status.Release = c.version, v1alpha1.ReleaseStatus{Revision: 3, Version: "v4.0.4"}
		if got := unmoved(cloud, []*v1alpha1.OnecloudOperation{op("c-update-3-9-v4-0-5", 1, v1alpha1.OperationPhase(c.phase), "")}); (got != nil) != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestDifferences(t *testing.T) {
	now := map[string]any{"version": "v2", "web": map[string]any{"disable": true}, "same": "x"}
	then := map[string]any{"version": "v1", "glance": map[string]any{"tag": "t"}, "same": "x"}
	there, back, err := differences(now, then)
	require.NoError(t, err)
	if len(there) != 3 || there["web"] != nil || there["version"] != "v1" || back["glance"] != nil || back["version"] != "v2" {
		t.Errorf("%v, %v", there, back)
	}
}

// A status from before a release was allowed does not count after it.
func TestFollowed(t *testing.T) {
	held := v1alpha1.Rollout{Hold: true, Steer: 3}
	for _, c := range []struct {
		name string
		seen *v1alpha1.RolloutStatus
		want bool
	}{
		{"nothing", nil, false},
		{"of another operation", &v1alpha1.RolloutStatus{Operation: "other", Hold: true, Steer: 3}, false},
		{"of before", &v1alpha1.RolloutStatus{Operation: "u", Hold: true, Steer: 1}, false},
		{"of now", &v1alpha1.RolloutStatus{Operation: "u", Hold: true, Steer: 3}, true},
		{"of something else", &v1alpha1.RolloutStatus{Operation: "u", Steer: 3}, false},
		{"older definitions", &v1alpha1.RolloutStatus{Operation: "u", Hold: true}, true},
	} {
		cloud := &v1alpha1.OnecloudCluster{}
		cloud.Status.Rollout = c.seen
		if got := followed(cloud, "u", held); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// If a killed operator has recorded the next release, its successor does not wait for another one, which nothing makes.
func TestReleaseIsMadeOnce(t *testing.T) {
	o := op("u", 1, v1alpha1.OperationRunning, "")
	o.Status.Rollout = &v1alpha1.Rollout{From: 4, To: 5}
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	cloud.Status.Release.Revision = 5
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, o).WithStatusSubresource(cloud, o).Build()
	r := &Run{Operation: o, Means: Means{Client: c}, record: newRecord(c, nil, o)}
	step := next(func(context.Context, *Run, *v1alpha1.OnecloudCluster) (patch, undo map[string]any, of int, err error) {
		t.Error("the cloud is changed again")
		return nil, nil, 0, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // there is nothing to wait for
	if err := step.Run(ctx, r, nil); err != nil {
		t.Error(err)
	}
}

// TestChangeIsRead checks that the next release waits until the cache has the change that it is rendered from, also if only the edition changes.
func TestChangeIsRead(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name, cloud.Generation = "n", "c", 1
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(cloud), cloud))
	late, restarts := 0, 1
	cached := interceptor.NewClient(k, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if restarts--; restarts >= 0 { // an API server that is being replaced must not revert the operation
			return &url.Error{Op: "Patch", URL: "https://10.96.0.1:443", Err: syscall.ECONNREFUSED}
		}
		return c.Patch(ctx, o, p, opts...)
	}, Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if late++; late <= 2 {
			cloud.DeepCopyInto(o.(*v1alpha1.OnecloudCluster))
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}})
	m := mover{&Run{Operation: op("u", 1, "", ""), Means: Means{Client: cached}, record: &record{}}, workflow.Discard{}}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationEdition: "ee"}}}
	require.NoError(t, m.patchCloud(t.Context(), patch))
	if now, err := m.Cloud(t.Context()); err != nil || late < 4 || now.Annotations[v1alpha1.AnnotationEdition] != "ee" {
		t.Errorf("after %d reads: %v %v", late, now.Annotations, err)
	}
}

// A wave of agents may take as long as nodes move, but does not wait for one that never does.
func TestAgentsMayTakeLong(t *testing.T) {
	const nodes, perNode = 150, time.Minute
	for stuck, want := range map[int32]string{nodes: "", 3: "giving up after 30m0s without progress"} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			moved := func() int32 { return min(stuck, int32(time.Since(began)/perNode)) }
			yes := true
			k := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					c := v1alpha1.ComponentStatus{Name: "host", State: v1alpha1.Progressing, Message: fmt.Sprintf("%d of %d pods moved", moved(), nodes)}
					if moved() == nodes {
						c.State = v1alpha1.Available
					}
					o.(*v1alpha1.OnecloudCluster).Status.Components = []v1alpha1.ComponentStatus{c}
					return nil
				},
				List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
					d := appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: nodes, UpdatedNumberScheduled: moved()}}
					d.Name, d.OwnerReferences = key.Name+"-host", []metav1.OwnerReference{{Kind: v1alpha1.Kind, Name: key.Name, Controller: &yes}}
					l.(*appsv1.DaemonSetList).Items = []appsv1.DaemonSet{d}
					return nil
				},
			})
			o := op("a", 1, v1alpha1.OperationRunning, "")
			o.Namespace, o.Spec.Cloud = key.Namespace, key.Name
			wave := waveNames[len(waveNames)-1]
			step := limited(Step{Name: "wave", Short: "Move", Run: moving(func(ctx context.Context, m mover) error {
				return m.untilBack(ctx, wave, []string{"host"})
			})}, wave)
			_, err := workflow.Runner[*Run]{Plan: "a", Phases: []Step{step}, Sink: ui.Quiet()}.Run(t.Context(), &Run{Operation: o, Means: Means{Client: k}}, workflow.Options{})
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("stuck at %d: %v after %s", stuck, err, time.Since(began))
			}
		})
	}
}

// A wait for the reconciler says why that cannot follow: its error is nowhere else in the operation.
func TestWaitForABlockedReconciler(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	out := status.Of(cloud, time.Now())
	out.Blocked("release 3 no longer exists")
	cloud.Status = out.OnecloudClusterStatus
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).WithStatusSubresource(cloud).Build()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := op("u", 1, v1alpha1.OperationRunning, "")
	o.Namespace, o.Spec.Cloud = key.Namespace, key.Name
	r := &Run{Operation: o, Means: Means{Client: c}, record: newRecord(nil, nil, o.DeepCopy())}
	err := mover{r, workflow.Discard{}}.steer(ctx, func(*v1alpha1.Rollout) {})
	if err == nil || !strings.Contains(err.Error(), "cannot reconcile the cloud: release 3 no longer exists") {
		t.Error(err)
	}
}
