// SPDX-License-Identifier: Apache-2.0

package nodepod

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/finding"
)

// A pod stays on its node, ends by itself, and has no service account.
func TestPod(t *testing.T) {
	p := New("ocadm-ha-test", "example.org/ocadm:v1", "node2", 165*time.Second, "ha", "fault", "cut-node", "--for", "45s")
	c := p.Spec.Containers[0]
	if p.Spec.NodeName != "node2" || *p.Spec.ActiveDeadlineSeconds != 165 || *p.Spec.AutomountServiceAccountToken || strings.Join(c.Args, " ") != "ha fault cut-node --for 45s" {
		t.Errorf("%+v", p.Spec)
	}
	if why := stuck(p); why != "" {
		t.Error(why)
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "no systemd"}}}}}
	if why := stuck(p); why != "its pod failed" || message(p) != "no systemd" {
		t.Errorf("%q, %q", why, message(p))
	}
	p.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}
	p.Status.ContainerStatuses[0].State.Waiting.Message = "not found"
	f := finding.Of(NoImage(p))
	if len(f) != 1 || f[0].Code != "OCA-4175" || !strings.Contains(f[0].What, "example.org/ocadm:v1") || !strings.Contains(f[0].Remedy, "ocadm image push example.org/ocadm:v1") ||
		strings.Contains(f[0].Remedy, "/usr/local/bin") { // a package installs ocadm elsewhere
		t.Errorf("%+v", f)
	}
	if why := stuck(p); why != "" {
		t.Error(why)
	}
	p.Status.ContainerStatuses[0].State.Waiting.Reason = "ContainerCreating"
	if err := NoImage(p); err != nil {
		t.Error(err)
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
	if _, failed, err := Await(ctx, k, "test", func(string) {}); err != nil || failed != "its pod was deleted" {
		t.Errorf("%q, %v", failed, err)
	}
	k = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "test", nil)
	}}).Build()
	if err := Delete(ctx, k, "test", func(string) {}); !apierrors.IsForbidden(err) || ctx.Err() != nil {
		t.Errorf("a refused deletion: %v", err)
	}
}
