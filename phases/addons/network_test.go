// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// flannel runs before it has written the file that its CNI plugin needs, so NetworkReady waits for that file too.
func TestNetworkReady(t *testing.T) {
	labels := map[string]string{"app": "flannel"}
	ds := &appsv1.DaemonSet{ObjectMeta: named("kube-flannel", "kube-flannel-ds"), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	h, err := host.Fake(t.Context(), t.TempDir(), plainConfig(), &host.Recorder{})
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-flannel", Name: "f", Labels: labels}, Spec: corev1.PodSpec{NodeName: h.Config.Node.Name},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	s := kube.Scheme()
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(ds, pod).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	p := NetworkReady()
	if done, err := p.Check(t.Context(), h); done || err != nil {
		t.Errorf("done without %s: %v, %v", flannelSubnet, done, err)
	}
	r := &subnetWriter{t: t, h: h}
	if err := awaitSubnet(t.Context(), h, r); err != nil || !r.waited {
		t.Errorf("waited: %v, %v", r.waited, err)
	}
	if done, err := p.Check(t.Context(), h); !done || err != nil {
		t.Errorf("done: %v, %v", done, err)
	}
	for reason, change := range map[string]func(){
		"--skip-phases": func() { h.Config.Run.SkipPhases = []string{"cni"} },
		"--cni is none": func() { h.Config.Run.SkipPhases, h.Config.Addons.CNI = nil, "none" },
	} {
		skipping := *h.Config
		change()
		if got := p.Skip(h); got != reason {
			t.Errorf("skipped because %q, want %q", got, reason)
		}
		*h.Config = skipping
	}
	if got := p.Skip(h); got != "" {
		t.Errorf("skipped because %q", got)
	}
}

// subnetWriter writes the file as soon as something waits for it.
type subnetWriter struct {
	workflow.Reporter
	t      *testing.T
	h      *host.Host
	once   sync.Once
	waited bool
}

func (w *subnetWriter) Waiting(what, why string) {
	if why != flannelSubnet+" does not exist yet" {
		return
	}
	w.once.Do(func() {
		w.waited = true
		if err := w.h.Files.WriteFile(flannelSubnet, []byte("FLANNEL_SUBNET=10.40.0.1/24\n"), 0o644); err != nil {
			w.t.Error(err)
		}
	})
}
