// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/test/require"
)

// operatorOnly updates the operator and leaves the cloud unchanged.
func operatorOnly(t *testing.T, c client.WithWatch, key client.ObjectKey) {
	u := cluster.Update{
		Key: key, OperatorVersion: "v1.1", OperatorOnly: true, Report: func(string, string) {},
		Manifests: func(image string) ([]*unstructured.Unstructured, error) { return operator.Objects(image) },
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cr := &v1alpha1.OnecloudCluster{}
	require.NoError(t, c.Get(ctx, key, cr))
	before := cr.ResourceVersion
	done, err := u.Apply(ctx, c)
	if err != nil || len(done.Changes) != 1 || done.Operation != "" {
		t.Errorf("update of the operator alone: %+v, %v", done, err)
	}
	d := &appsv1.Deployment{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.OperatorName}, d))
	if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1.1") {
		t.Errorf("the operator runs %s", image)
	}
	if err := c.Get(ctx, key, cr); err != nil || cr.ResourceVersion != before {
		t.Errorf("the cloud was changed: %v", err)
	}
}

func update(t *testing.T, c client.WithWatch, key client.ObjectKey) {
	u := cluster.Update{
		Key: key, Version: "v4.0.5", OperatorVersion: "v2", Report: func(string, string) {},
		Manifests: func(image string) ([]*unstructured.Unstructured, error) { return operator.Objects(image) },
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done, err := u.Apply(ctx, c)
	if err != nil || len(done.Changes) != 2 || !strings.Contains(done.Changes[1], "v4.0.4 → v4.0.5") {
		t.Errorf("Update: %q, %v", done.Changes, err)
	}
	if done, err := u.Apply(ctx, c); err != nil || len(done.Changes) != 0 {
		t.Errorf("second Update: %q, %v", done.Changes, err)
	}
	if s, err := cluster.Get(ctx, c, key); err != nil || s.Ready || s.Version != "v4.0.5" {
		t.Errorf("a cloud whose change nobody has seen: %+v, %v", s, err)
	}
}
