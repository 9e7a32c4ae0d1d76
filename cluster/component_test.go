// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

func TestComponentPatch(t *testing.T) {
	// A user set the image and the tag of keystone; region's image is the operator's default.
	live := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"keystone":     map[string]any{"image": "r.io/keystone:hotfix", "tag": "v1"},
		"regionServer": map[string]any{"image": "r.io/region:v4.0.3", "disable": false},
		"hostagent":    map[string]any{"SdnAgent": map[string]any{"image": "r.io/sdnagent:v4.0.3"}},
	}}}
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "kubectl-edit", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:keystone":{"f:image":{},"f:tag":{}},"f:regionServer":{"f:disable":{}}}}`)},
		{Manager: "ocadm-operator-defaults", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:regionServer":{"f:image":{}},"f:hostagent":{"f:SdnAgent":{"f:image":{}}}}}`)},
	})
	key := client.ObjectKey{Namespace: "onecloud", Name: "default"}
	for name, c := range map[string]struct {
		block  []string
		change ComponentChange
		patch  string
		lines  []string
	}{
		"a version": {
			[]string{"regionServer"}, ComponentChange{"tag": "v4.0.2"}, `{"tag":"v4.0.2"}`,
			[]string{"spec.regionServer.tag: (none) → v4.0.2"},
		},
		"a version where an image was pinned": {
			[]string{"keystone"}, ComponentChange{"tag": "v2"}, `{"image":null,"tag":"v2"}`,
			[]string{"spec.keystone.tag: v1 → v2", "spec.keystone.image: r.io/keystone:hotfix → (none)"},
		},
		"a nested block": {
			[]string{"hostagent", "SdnAgent"}, ComponentChange{"repository": "r.io/mine"}, `{"repository":"r.io/mine"}`,
			[]string{"spec.hostagent.SdnAgent.repository: (none) → r.io/mine"},
		},
		"a component without a block of its own": {
			[]string{"components", "cronjob-test"}, ComponentChange{"disable": true}, `{"disable":true}`,
			[]string{"spec.components.cronjob-test.disable: (none) → true"},
		},
		"follow": {
			[]string{"keystone"}, Follow(), `{"image":null,"tag":null}`,
			[]string{"spec.keystone.tag: v1 → (none)", "spec.keystone.image: r.io/keystone:hotfix → (none)"},
		},
		"follow what follows":     {[]string{"regionServer"}, Follow(), `{}`, nil},
		"the same again":          {[]string{"keystone"}, ComponentChange{"image": "r.io/keystone:hotfix"}, `{}`, nil},
		"enable what is enabled":  {[]string{"regionServer"}, ComponentChange{"disable": false}, `{}`, nil},
		"enable what is optional": {[]string{"backup"}, ComponentChange{"disable": false}, `{"disable":false}`, []string{"spec.backup.disable: (none) → false"}},
	} {
		patch, _, lines := ComponentRef{Cloud: key, Name: "x", Block: c.block}.patch(live, c.change)
		text, err := json.Marshal(patch)
		require.NoError(t, err)
		if string(text) != c.patch || !slices.Equal(lines, c.lines) {
			t.Errorf("%s: %s %q\nwant %s %q", name, text, lines, c.patch, c.lines)
		}
	}
}

// The earlier operator labelled the workloads and pods of a cloud with a random instance, which they keep when the cloud is adopted. There is also
// another cloud whose name has the same prefix.
func TestComponentOfAdoptedCloud(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "onecloud", Name: name, Labels: map[string]string{
			v1alpha1.LabelComponent: "glance", v1alpha1.LabelInstance: v1alpha1.InstancePrefix + "x7f2"}}
	}
	c := fake.NewClientBuilder().WithObjects(&appsv1.Deployment{ObjectMeta: meta("default-glance")}, &appsv1.Deployment{ObjectMeta: meta("default-b-glance")},
		&corev1.Pod{ObjectMeta: meta("default-glance-1")}, &corev1.Pod{ObjectMeta: meta("default-b-glance-1")}).Build()
	ref := ComponentRef{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Name: "glance"}
	if lines, _, err := ref.Restart(t.Context(), c, time.Now()); err != nil || !slices.Equal(lines, []string{"deployment/default-glance restarted"}) {
		t.Errorf("%q %v", lines, err)
	}
	if pod, err := ref.Pod(t.Context(), c, "", false); err != nil || pod.Name != "default-glance-1" {
		t.Errorf("%v %v", pod, err)
	}
}

// Of several pods, the ready one is of use, then one that runs, then the newest record of a run.
func TestPodOfComponent(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := func(name string, minute int, phase corev1.PodPhase, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance-" + name, Labels: map[string]string{v1alpha1.LabelComponent: "glance"},
			CreationTimestamp: metav1.NewTime(at.Add(time.Duration(minute) * time.Minute))},
			Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	ref := ComponentRef{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Name: "glance"}
	all := []client.Object{pod("a", 1, corev1.PodFailed, "False"), pod("b", 3, corev1.PodFailed, "False"), pod("c", 2, corev1.PodRunning, "False"), pod("d", 0, corev1.PodRunning, "True")}
	for n, want := range []string{2: "default-glance-b", 3: "default-glance-c", 4: "default-glance-d"} {
		if want == "" {
			continue
		}
		c := fake.NewClientBuilder().WithObjects(all[:n]...).Build()
		if p, err := ref.Pod(t.Context(), c, "", false); err != nil || p.Name != want {
			t.Errorf("%v %v, want %s", p, err, want)
		}
	}
	all[2].(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 4}}
	if p, err := ref.Pod(t.Context(), fake.NewClientBuilder().WithObjects(all...).Build(), "", true); err != nil || p.Name != "default-glance-c" {
		t.Errorf("of a crash: %v %v", p, err)
	}
}

// In a stopped cloud, a service has no pods to restart or to read a log from. Its agents run.
func TestComponentOfStoppedCloud(t *testing.T) {
	key := client.ObjectKey{Namespace: "onecloud", Name: "default"}
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Annotations: map[string]string{
		v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: ""}}}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: key.Namespace, Name: "default-" + name, Labels: map[string]string{v1alpha1.LabelComponent: name}}
	}
	d := &appsv1.Deployment{ObjectMeta: meta("region")}
	d.Spec.Replicas = new(int32(0))
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, d, &appsv1.DaemonSet{ObjectMeta: meta("host")}).Build()
	region, host := ComponentRef{Cloud: key, Name: "region"}, ComponentRef{Cloud: key, Name: "host"}
	_, _, restart := region.Restart(t.Context(), c, time.Now())
	_, logs := region.Pod(t.Context(), c, "", false)
	for _, err := range []error{restart, logs} {
		if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7015" || l[0].Cause != "the cloud is stopped" || l[0].Remedy != "ocadm cluster start" {
			t.Errorf("%+v", l)
		}
	}
	if lines, _, err := host.Restart(t.Context(), c, time.Now()); err != nil || len(lines) != 1 {
		t.Errorf("%q %v", lines, err)
	}
}

// Until the operator has seen the restart, the status is the old one: a wait must not mistake that for the end.
func TestRestartIsSeen(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance", Generation: 3, Labels: map[string]string{v1alpha1.LabelComponent: "glance"}}
	c := fake.NewClientBuilder().WithObjects(&appsv1.Deployment{ObjectMeta: meta}).Build()
	ref := ComponentRef{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Name: "glance"}
	_, seen, err := ref.Restart(t.Context(), c, time.Now())
	require.NoError(t, err)
	d := &appsv1.Deployment{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(&appsv1.Deployment{ObjectMeta: meta}), d))
	of := func(generation int64) Status {
		return Status{Components: []v1alpha1.ComponentStatus{{Name: "keystone"}, {Name: "glance", ObservedGeneration: generation}}}
	}
	if seen(of(d.Generation-1)) || !seen(of(d.Generation)) || !seen(of(d.Generation+1)) {
		t.Errorf("generation %d", d.Generation)
	}
	// It was paused and then disabled: no status will ever report on its workload.
	if !seen(Status{Components: []v1alpha1.ComponentStatus{{Name: "glance", State: v1alpha1.Disabled}}}) {
		t.Error("a wait for a component that is disabled would not end")
	}
}

// Read-only replicas are pods of the component, too. They are workloads of their own, with another label.
func TestRestartIncludesReadReplicas(t *testing.T) {
	of := func(name, label string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, Labels: map[string]string{v1alpha1.LabelComponent: label}}}
	}
	c := fake.NewClientBuilder().WithObjects(of("default-keystone", "keystone"), of("default-keystone-slave", "keystone-slave"), of("default-glance", "glance"),
		of("another-keystone-slave", "keystone-slave")).Build()
	ref := ComponentRef{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Name: "keystone"}
	lines, _, err := ref.Restart(t.Context(), c, time.Now())
	if want := []string{"deployment/default-keystone restarted", "deployment/default-keystone-slave restarted"}; err != nil || !slices.Equal(lines, want) {
		t.Errorf("%q %v", lines, err)
	}
}

// A change of options is seen when the operator has changed the workload.
func TestChangeOfOptionsIsSeen(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance", Generation: 3, Labels: map[string]string{v1alpha1.LabelComponent: "glance"}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(theCloud("db"), &appsv1.Deployment{ObjectMeta: meta}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance"}}).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			d := &appsv1.Deployment{} // as the operator does
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), d); err != nil {
				return err
			}
			d.Generation++
			return c.Update(ctx, d)
		}}).Build()
	ref := ComponentRef{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Name: "glance"}
	lines, seen, err := ref.ChangeOptions(t.Context(), c, map[string]*string{"log_level": new("debug")})
	if err != nil || len(lines) != 1 {
		t.Fatalf("%q %v", lines, err)
	}
	of := func(generation int64) Status {
		return Status{Components: []v1alpha1.ComponentStatus{{Name: "glance", ObservedGeneration: generation}}}
	}
	if seen(of(3)) || !seen(of(4)) {
		t.Error("the old status counts as the new one, or the new one does not count")
	}
}

// Options are set although the operator does not change the workload before the timeout: the wait that follows reports what it waited for.
func TestTimeoutOfAChangeOfOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		meta := metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance", Generation: 3, Labels: map[string]string{v1alpha1.LabelComponent: "glance"}}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).
			WithObjects(theCloud("db"), &appsv1.Deployment{ObjectMeta: meta}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-glance"}}).Build()
		ref := ComponentRef{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Name: "glance"}
		ctx, cancel := context.WithTimeout(t.Context(), optionsPatience/2)
		defer cancel()
		lines, _, err := ref.ChangeOptions(ctx, c, map[string]*string{"log_level": new("debug")})
		if err != nil || len(lines) != 1 {
			t.Fatalf("%q %v", lines, err)
		}
		f := finding.Of(notReady(ctx, c, ref.Cloud, Status{}, ctx.Err()))
		if len(f) != 1 || f[0].Code != "OCA-7004" || f[0].Cause == "" {
			t.Errorf("%+v", f)
		}
	})
}

func TestWaitSeen(t *testing.T) {
	cloud := resource(t, head+`}
status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}], components: [{name: glance, state: Available, observedGeneration: 3}]}`)
	named := func(o client.Object) []string { return []string{o.GetName()} }
	api := fake.NewClientBuilder().WithObjects(cloud).WithIndex(cloud, "metadata.name", named).Build()
	c := interceptor.NewClient(api, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) (watch.Interface, error) {
			w, err := c.Watch(ctx, list, o...)
			if err == nil {
				err = c.Patch(ctx, cloud.DeepCopy(), client.RawPatch(types.MergePatchType,
					[]byte(`{"status":{"components":[{"name":"glance","state":"Available","observedGeneration":4}]}}`)))
			}
			return w, err
		},
	})
	last := int64(0)
	err := WaitSeen(t.Context(), c, client.ObjectKeyFromObject(cloud), func(s Status) bool { return s.Components[0].ObservedGeneration > 3 }, func(s Status) {
		last = s.Components[0].ObservedGeneration
	})
	if err != nil || last != 4 {
		t.Errorf("it ended at generation %d: %v", last, err)
	}
}
