// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

type silent struct{ workflow.Reporter }

func (silent) Waiting(string, string) {}

// If a node cannot get the image, the step fails before its patience ends.
func TestPodWithoutImage(t *testing.T) {
	k := fake.NewClientBuilder().
		WithIndex(&corev1.Pod{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if p, ok := o.(*corev1.Pod); ok {
				p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
					State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}}
			}
			return c.Create(ctx, o, opts...)
		}}).Build()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := runPod(ctx, k, silent{}, pod("example.org/ocadm:v1", member{name: "node2"}, Sign, "1"))
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4175" || !strings.Contains(f[0].What, "example.org/ocadm:v1") {
		t.Errorf("%v", err)
	}
}

// Kubeconfigs on removed nodes do not block the end of a rotation.
func TestRefuseLeft(t *testing.T) {
	left := map[string][]string{"gone": {"/root/.kube/config"}, "node2": {"/home/a/.kube/config"}}
	if err := refuseLeft(left, []member{{name: "node1"}}); err != nil {
		t.Errorf("of a removed node: %v", err)
	}
	f := finding.Of(refuseLeft(left, []member{{name: "node1"}, {name: "node2"}}))
	if len(f) != 1 || f[0].Code != "OCA-4417" || strings.Join(f[0].Evidence, " ") != "node2: /home/a/.kube/config" {
		t.Errorf("%+v", f)
	}
}
