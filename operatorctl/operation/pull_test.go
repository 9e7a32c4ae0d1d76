// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// podsOn returns pods of one image on nodes with a label.
func podsOn(image, label string, everywhere bool) runs {
	r := runs{everywhere: everywhere}
	r.spec.NodeSelector = map[string]string{label: "enable"}
	r.spec.Containers = []corev1.Container{{Image: image, ImagePullPolicy: corev1.PullIfNotPresent}}
	return r
}

func node(name string, ready bool, labels ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		n.Labels[l] = "enable"
	}
	status := corev1.ConditionTrue
	if !ready {
		status = corev1.ConditionUnknown
		n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoSchedule}}
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: "kubelet stopped posting node status."}}
	return n
}

func TestDemand(t *testing.T) {
	host := podsOn("r/host:v2", "host", true)
	host.spec.InitContainers = []corev1.Container{{Image: "r/init:v2", ImagePullPolicy: corev1.PullIfNotPresent}}
	host.spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}}
	always := podsOn("r/always:v2", "controller", false)
	always.spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	always.spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	all := []runs{podsOn("r/region:v2", "controller", false), podsOn("r/region:v2", "controller", false), host, always}

	tainted := node("tainted", true, "controller")
	tainted.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	cordoned := node("cordoned", true, "controller", "host")
	cordoned.Spec.Unschedulable = true
	has := node("has", true, "controller")
	has.Status.Images = []corev1.ContainerImage{{Names: []string{"r/region@sha256:1", "r/region:v2"}}, {Names: []string{"r/always:v2"}}}
	d := demandOf(all, []corev1.Node{node("both", true, "controller", "host"), tainted, cordoned, has, node("gone", false, "host"), node("other", true)})

	want := map[string][]string{
		"both": {"r/always:v2", "r/host:v2", "r/init:v2", "r/region:v2"}, "tainted": {"r/always:v2"}, "cordoned": {"r/host:v2", "r/init:v2"}, "has": {"r/always:v2"},
	}
	if diff := cmp.Diff(want, d.missing); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"gone": "kubelet stopped posting node status"}, d.lost); diff != "" {
		t.Error(diff)
	}
	if d.images != 4 || d.nodes != 4 || d.present != 1 || !slices.Equal(d.secrets, []corev1.LocalObjectReference{{Name: "login"}}) {
		t.Errorf("%+v", d)
	}
}

func TestPodsOfRelease(t *testing.T) {
	object := func(kind string, replicas any) release.Object {
		pod := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": kind}}}}
		spec := map[string]any{"template": pod}
		if kind == "CronJob" {
			spec = map[string]any{"jobTemplate": map[string]any{"spec": spec}}
		}
		if replicas != nil {
			spec["replicas"] = replicas
		}
		return release.Object{Kind: kind, Name: "x", Content: map[string]any{"spec": spec}}
	}
	all, err := podsOf(&release.Release{Contents: release.Contents{Objects: []release.Object{
		object("Deployment", nil), object("Deployment", int64(0)), object("StatefulSet", int64(1)), object("StatefulSet", int64(0)), object("DaemonSet", nil),
		object("CronJob", nil), {Kind: "Secret"},
	}}})
	var got []string
	for _, r := range all {
		got = append(got, fmt.Sprint(r.spec.Containers[0].Image, r.everywhere))
	}
	if want := []string{"Deploymentfalse", "StatefulSetfalse", "DaemonSettrue", "CronJobfalse"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestBatches(t *testing.T) {
	d := demand{missing: map[string][]string{"a": {"1", "2", "3", "4", "5", "6"}, "b": {"1"}}, policies: map[string]corev1.PullPolicy{"1": corev1.PullNever}, secrets: []corev1.LocalObjectReference{{Name: "s"}}}
	var got []string
	for _, b := range d.batches() {
		got = append(got, b.node+strings.Join(b.images, ""))
	}
	if want := []string{"a12345", "b1", "a6"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	b := d.batches()[0]
	b.answers["2"] = answer{state: pulled}
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "c"}}
	o.Name = "update-1"
	p := b.pod(o, d)
	if len(p.Spec.Containers) != 4 || p.Spec.NodeName != "a" || p.Spec.Containers[0].ImagePullPolicy != corev1.PullNever || p.GenerateName != "update-1-pull-" || p.Name != "" ||
		*p.Spec.AutomountServiceAccountToken || p.Spec.ImagePullSecrets[0].Name != "s" || len(p.OwnerReferences) != 1 {
		t.Errorf("%+v", p)
	}
	for _, c := range p.Spec.Containers {
		if c.Command != nil || *p.Spec.SecurityContext.RunAsUser != 0 || !*p.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("it could start: %+v", c)
		}
	}
}

// The texts come from kubelets and container runtimes.
func TestJudgePull(t *testing.T) {
	now := time.Now()
	const missing = `rpc error: code = NotFound desc = failed to pull and unpack image "r/x:v9": failed to resolve reference "r/x:v9": r/x:v9: not found`
	for _, one := range []struct {
		reason, message string
		was             answer
		want            pullState
		text            string
	}{
		{"", "", answer{}, pullPending, ""},
		{"ContainerCreating", "", answer{}, pullPending, ""},
		{"CreateContainerConfigError", "container's runAsUser breaks non-root policy", answer{state: pullFails, text: "x"}, pulled, ""},
		{"ErrImagePull", missing, answer{}, pullRefused, "ErrImagePull: " + missing},
		{"ErrImagePull", `failed to do request: Head "https://r/v2/x/manifests/v9": dial tcp 10.0.0.1:443: i/o timeout`, answer{}, pullFails,
			`ErrImagePull: failed to do request: Head "https://r/v2/x/manifests/v9": dial tcp 10.0.0.1:443: i/o timeout`},
		{"ImagePullBackOff", `Back-off pulling image "r/x:v9"`, answer{state: pullFails, text: "ErrImagePull: i/o timeout"}, pullFails, "ErrImagePull: i/o timeout"},
		{"ImagePullBackOff", `Back-off pulling image "r/x:v9": ErrImagePull: ` + missing, answer{}, pullRefused,
			`ImagePullBackOff: Back-off pulling image "r/x:v9": ErrImagePull: ` + missing},
		{"ErrImageNeverPull", `Container image "r/x:v9" is not present with pull policy of Never`, answer{}, pullRefused,
			`ErrImageNeverPull: Container image "r/x:v9" is not present with pull policy of Never`},
		{"InvalidImageName", "", answer{}, pullRefused, "InvalidImageName"},
		{"ErrImagePull", "failed to extract layer: write /x: no space left on device", answer{}, pullFull,
			"ErrImagePull: failed to extract layer: write /x: no space left on device"},
	} {
		s := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: one.reason, Message: one.message}}}
		if got := judgePull(s, one.was, now); got.state != one.want || got.text != one.text {
			t.Errorf("%s %s: got %+v, want %d %q", one.reason, one.message, got, one.want, one.text)
		}
	}
}

func TestFailingImageIsAbandoned(t *testing.T) {
	now := time.Now()
	b := &batch{images: []string{"x"}, answers: map[string]answer{}}
	fails := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "i/o timeout"}}}
	b.answers["x"] = judgePull(fails, judgePull(fails, answer{}, now), now.Add(pullAgain))
	if b.tire(now.Add(pullAgain)); b.over() {
		t.Error("given up early")
	}
	if b.tire(now.Add(pullAgain + time.Second)); !b.over() || b.answers["x"].state != pullRefused {
		t.Errorf("%+v", b.answers)
	}
}

// TestRefused checks that images that cannot be had are grouped by answer and node, and that all of them are named.
func TestRefused(t *testing.T) {
	missing := func(image string) answer {
		return answer{state: pullRefused, text: fmt.Sprintf("failed to resolve reference %q: %s: not found", image, image)}
	}
	all := []*batch{
		{node: "n2", answers: map[string]answer{"r/p/a:v9": missing("r/p/a:v9"), "r/p/b:v9": missing("r/p/b:v9"), "r/p/c:v9": {state: pulled}}},
		{node: "n1", answers: map[string]answer{"r/p/a:v9": missing("r/p/a:v9"), "r/p/b:v9": missing("r/p/b:v9"), "r/p/d:v9": {state: pullFull, text: "no space left on device"}}},
		{node: "n1", answers: map[string]answer{"r/p/e:v9": {state: pullRefused, text: `Head "https://r/v2/p/e/manifests/v9": 401 Unauthorized`}, "r/p/f:v9": {state: pullLeft}}},
	}
	got := map[string]string{}
	for _, f := range refused(all, "do that") {
		got[f.Cause] = f.Code + " " + f.Remedy
	}
	want := map[string]string{
		"2 images of r/p: a:v9, b:v9 on nodes n1, n2: not found":                      "OCA-7068 do that",
		`r/p/e:v9 on node n1: Head "https://r/v2/p/e/manifests/v9": 401 Unauthorized`: "OCA-7068 do that",
		"r/p/d:v9 on node n1: no space left on device":                                "OCA-7069 make room on its disk: ocadm node doctor; then try again",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for want, names := range map[string][]string{
		"r/p/a:v9": {"r/p/a:v9"}, "busybox": {"busybox"}, "2 images of r/p: a:1, b:1; q:5000/c:1": {"r/p/a:1", "r/p/b:1", "q:5000/c:1"},
		"2 images of r/p: a:1, b:1; 2 images of s: x, y": {"r/p/a:1", "r/p/b:1", "s/x", "s/y"},
	} {
		if got := imagesNamed(names); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	const long = `rpc error: code = NotFound desc = failed to pull and unpack image "r/p/a:v9": failed to resolve image: r/p/a:v9: not found`
	if got := plainAnswer(`Back-off pulling image "r/p/a:v9": ErrImagePull: `+long, "r/p/a:v9"); got != "ErrImagePull: not found" {
		t.Error(got)
	}
	if list := refused(nil, ""); list.Err() != nil {
		t.Error(list)
	}
	if text := named(slices.Sorted(maps.Keys(map[string]bool{"1": true, "2": true, "3": true, "4": true, "5": true, "6": true, "7": true, "8": true, "9": true, "a": true, "b": true, "c": true}))); !strings.HasSuffix(text,
		"9, a, and 2 more") {
		t.Error(text)
	}
}

// An API server that is being replaced does not end the operation, one that refuses the pods does.
func TestPullThroughARestart(t *testing.T) {
	for name, one := range map[string]struct {
		answer error
		fails  bool
	}{
		"restart": {apierrors.NewServiceUnavailable("the server is currently unable to handle the request"), false},
		"quota":   {apierrors.NewForbidden(corev1.Resource("pods"), "", nil), true},
	} {
		asked := 0
		api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if asked++; asked == 1 {
					return one.answer
				}
				return c.Create(ctx, o, opts...)
			},
		})
		b := &batch{node: "a", images: []string{"x"}, answers: map[string]answer{}}
		p := &puller{Run: &Run{Operation: op("u", 1, "", ""), Means: Means{Pods: api}}, waiting: []*batch{b}, open: map[types.UID]*batch{}}
		if err := p.fill(t.Context()); (err != nil) != one.fails || len(p.open) != 1 && !one.fails {
			t.Errorf("%s: %v, %d pods", name, err, len(p.open))
		}
	}
}

// TestPullsOfAKilledOperator: the pods never end by themselves, so they go when an operation is cancelled while no operator runs.
func TestPullsOfAKilledOperator(t *testing.T) {
	for _, a := range Actions(nil) {
		if !slices.ContainsFunc(a.Steps, func(s Step) bool { return s.Name == "pull" }) {
			continue
		}
		fx := newFixture(t, func(*fixture) []Action { return []Action{a} })
		fx.stop()
		fx.create("u", func(o *v1alpha1.OnecloudOperation) { o.Spec.Action = a.Name })
		o := fx.get("u")
		o.Status.Phase, o.Status.Start = v1alpha1.OperationPlanning, metav1.Now()
		o.Status.Steps = []v1alpha1.OperationStep{{Name: "pull", State: v1alpha1.StepRunning, Start: metav1.Now()}}
		p := (&batch{node: "a", images: []string{"x"}}).pod(o, demand{})
		p.Name = "u-pull-1"
		require.NoError(t, errors.Join(fx.client.Status().Update(t.Context(), o), fx.client.Create(t.Context(), p)))
		fx.control("u", v1alpha1.OperationCancel)
		fx.start()
		fx.until("u", v1alpha1.OperationCancelled)
		if err := fx.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
			t.Errorf("%s: its pod is still there: %v", a.Name, err)
		}
	}
}
