// SPDX-License-Identifier: Apache-2.0

package nodepod

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

// A pod stays on its node, ends by itself, and has no service account.
func TestPod(t *testing.T) {
	p := New("ocadm-ha-test", "example.org/ocadm:v1", "node2", 165*time.Second, "ha", "fault", "cut-node", "--for", "45s")
	c := p.Spec.Containers[0]
	if p.Spec.NodeName != "node2" || *p.Spec.ActiveDeadlineSeconds != 165 || *p.Spec.AutomountServiceAccountToken || strings.Join(c.Args, " ") != "ha fault cut-node --for 45s" {
		t.Errorf("%+v", p.Spec)
	}
	p.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}
	p.Status.ContainerStatuses[0].State.Waiting.Message = "not found"
	f := finding.Of(kube.NoImage(p))
	if len(f) != 1 || f[0].Code != "OCA-4175" || !strings.Contains(f[0].What, "example.org/ocadm:v1") || !strings.Contains(f[0].Remedy, "ocadm image push example.org/ocadm:v1") ||
		strings.Contains(f[0].Remedy, "/usr/local/bin") { // a package installs ocadm elsewhere
		t.Errorf("%+v", f)
	}
	p.Status.ContainerStatuses[0].State.Waiting.Reason = "ContainerCreating"
	if err := kube.NoImage(p); err != nil {
		t.Error(err)
	}
}

var trouble = finding.New("OCA-4172", "It failed", "", "try again")

// A pod fails at once if its program did, and only after a while if the kubelet cannot start it: it tries again.
func TestAwait(t *testing.T) {
	waits := func(reason string) corev1.PodStatus {
		w := &corev1.ContainerStateWaiting{Reason: reason, Message: "reserved"}
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: w}}}}
	}
	ended := func(phase corev1.PodPhase, said string) corev1.PodStatus {
		ended := &corev1.ContainerStateTerminated{Message: said}
		return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: ended}}}}
	}
	for name, c := range map[string]struct {
		first, then corev1.PodStatus // after half a minute
		takes       time.Duration
		err, code   string
		evidence    int
	}{
		"it recovers":              {waits("CreateContainerError"), ended(corev1.PodSucceeded, "done"), 30 * time.Second, "", "", 0},
		"its image is there again": {waits("ErrImagePull"), ended(corev1.PodSucceeded, "done"), 30 * time.Second, "", "", 0},
		"it does not recover":      {waits("CreateContainerError"), waits("CreateContainerError"), time.Minute, "does not start: container : CreateContainerError: reserved", "OCA-4172", 0},
		"there is no image":        {waits("ErrImagePull"), waits("ImagePullBackOff"), time.Minute, "ImagePullBackOff: reserved", "OCA-4175", 0},
		"its program fails":        {ended(corev1.PodFailed, "no systemd\nhere"), ended(corev1.PodFailed, ""), 0, "It failed: no systemd", "OCA-4172", 2},
		"its program says nothing": {ended(corev1.PodFailed, ""), ended(corev1.PodFailed, ""), 0, "It failed: its pod failed", "OCA-4172", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := New("test", "example.org/ocadm:v1", "node2", time.Minute)
			p.Status = c.first
			k := fake.NewClientBuilder().WithObjects(p).WithStatusSubresource(p).Build()
			time.AfterFunc(30*time.Second-time.Millisecond, func() {
				p.Status = c.then
				if err := k.Status().Update(t.Context(), p); err != nil && t.Context().Err() == nil {
					t.Error(err)
				}
			})
			began := time.Now()
			said, err := Await(t.Context(), k, "test", trouble, func(string) {})
			if took := time.Since(began); took != c.takes || (err == nil) != (c.err == "") || err == nil && said != "done" || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %q, %v after %s", name, said, err, took)
			}
			if f := finding.Of(err); err != nil && (f[0].Code != c.code || len(f[0].Evidence) != c.evidence) {
				t.Errorf("%s: %+v", name, f)
			}
			time.Sleep(time.Minute)
		})
	}
}

// A pod that someone deletes does not keep the command waiting. A deletion whose answer is lost is repeated.
func TestDeleted(t *testing.T) {
	lost := false
	k := fake.NewClientBuilder().WithObjects(New("test", "example.org/ocadm:v1", "node2", time.Minute)).
		WithInterceptorFuncs(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if !lost {
				lost = true
				return errors.New("connection reset by peer")
			}
			return c.Delete(ctx, o, opts...)
		}}).Build()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Delete(ctx, k, "test", func(string) {}); err != nil {
		t.Error(err)
	}
	if _, err := Await(ctx, k, "test", trouble, func(string) {}); err == nil || err.Error() != "It failed: its pod was deleted" {
		t.Error(err)
	}
	k = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "test", nil)
	}}).Build()
	if err := Delete(ctx, k, "test", func(string) {}); !apierrors.IsForbidden(err) || ctx.Err() != nil {
		t.Errorf("a refused deletion: %v", err)
	}
}
