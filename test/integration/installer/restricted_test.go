// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/test/require"
)

// restricted checks that the API server accepts the operator's pod in a namespace for restricted pods, and that the pod writes nowhere.
func restricted(t *testing.T, c client.WithWatch) {
	const name = "restricted"
	d := &appsv1.Deployment{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: operator.Namespace, Name: operator.Name}, d))
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest",
		}}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: d.Spec.Template.Spec.ServiceAccountName}},
	} {
		require.NoError(t, c.Create(t.Context(), o))
	}
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "operator"}, Spec: *d.Spec.Template.Spec.DeepCopy()}
	}
	if err := c.Create(t.Context(), pod(), client.DryRunAll); err != nil {
		t.Errorf("the pod is refused: %v", err)
	}
	for what, weaken := range map[string]func(*corev1.PodSpec){
		"seccomp":      func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"root":         func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"capabilities": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
	} {
		p := pod()
		weaken(&p.Spec)
		if err := c.Create(t.Context(), p, client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("without %s it is let in, so nothing is shown: %v", what, err)
		}
	}
	for _, one := range d.Spec.Template.Spec.Containers {
		if ro := one.SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
			t.Errorf("container %s may write to its image", one.Name)
		}
	}
	if len(d.Spec.Template.Spec.Volumes) > 0 {
		t.Errorf("the operator has volumes: %v", d.Spec.Template.Spec.Volumes)
	}
}
