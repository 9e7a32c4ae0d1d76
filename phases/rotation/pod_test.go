// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

type silent struct{ workflow.Reporter }

func (silent) Waiting(string, string) {}

// If a node cannot get the image, the step fails before its patience ends.
func TestPodWithoutImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := fake.NewClientBuilder().
			WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if p, ok := o.(*corev1.Pod); ok {
					p.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
						State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}}
				}
				return c.Create(ctx, o, opts...)
			}}).Build()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := runPod(ctx, k, silent{}, pod("example.org/ocadm:v1", member{name: "node2"}, Sign, "1"))
		if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4175" || !strings.Contains(f[0].What, "example.org/ocadm:v1") {
			t.Errorf("%v", err)
		}
	})
}

// The kubelet cuts off a pod's report after 4096 bytes. A node with the kubeconfigs of many users must not end a rotation.
func TestReportFits(t *testing.T) {
	var left []string
	for i := range 300 {
		left = append(left, fmt.Sprintf("/home/user%03d/.kube/config", i))
	}
	for _, n := range []int{0, 1, 100, 300} {
		raw, err := json.Marshal(NewTaken(left[:n]))
		require.NoError(t, err)
		got, err := parseTaken(string(raw[:min(len(raw), 4096)]))
		if err != nil || len(got.Left) > n || n > 0 && got.Left[0] != left[0] {
			t.Errorf("%d: %d bytes, %d files, %v", n, len(raw), len(got.Left), err)
		}
		if last := len(got.Left) - 1; n == 300 && (last < 50 || got.Left[last] != fmt.Sprintf("and %d more", n-last)) {
			t.Errorf("%d: the last of %d is %s", n, last, got.Left[last])
		}
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

// If the answer to the deletion of the record is lost, the rotation still ends: without a record, its end cannot be repeated.
func TestLostAnswerAtTheEnd(t *testing.T) {
	deletions := 0
	k := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName}}).
		WithInterceptorFuncs(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			err := c.Delete(ctx, o, opts...)
			if o.GetName() != secretName {
				return err
			}
			if deletions++; deletions == 1 {
				return errors.New("connection reset by peer")
			}
			return err
		}}).Build()
	n := &Rotation{Host: controlPlane(t, "key"), Record: &Record{Stage: Drop},
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName}}}
	if err := end(t.Context(), k, n, workflow.Discard{}); err != nil || n.Record != nil || deletions != 2 {
		t.Errorf("%d deletions, record %v, %v", deletions, n.Record, err)
	}
}
