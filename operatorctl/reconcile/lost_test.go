// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

// between runs edit just before the operator's first write of an object of that kind and name: like a person who edits it between the operator's read
// and its write.
func between(kind, name string, edit func(client.WithWatch) error) interceptor.Funcs {
	done := false
	return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if p.Type() == types.ApplyPatchType && o.GetObjectKind().GroupVersionKind().Kind == kind && o.GetName() == name && !done {
			done = true
			if err := edit(c); err != nil {
				return err
			}
		}
		return c.Patch(ctx, o, p, opts...)
	}}
}

func edit(t *testing.T, o client.Object, name, patch string) func(client.WithWatch) error {
	return func(c client.WithWatch) error {
		o.SetNamespace(cloudKey.Namespace)
		o.SetName(name)
		return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit"))
	}
}

func TestChoiceMadeWhileDefaultsAreWrittenIsKept(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile() // writes the defaults
	b.r.acts.client = interceptor.NewClient(b.api, between(v1alpha1.Kind, "default",
		edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"logger":{"replicas":3}}}`)))
	// Another choice just before makes the operator write.
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"glance":{"replicas":2}}}`)(b.api))
	b.reconcile()
	b.reconcile()
	spec := b.cloud().Spec
	if l, g := spec.Logger.Replicas, spec.Glance.Replicas; l == nil || *l != 3 || g == nil || *g != 2 {
		t.Errorf("a person's replicas are %v and %v", l, g)
	}
}

func TestOptionChangedWhileItIsWrittenIsKept(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile() // creates the ConfigMap
	b.r.acts.client = interceptor.NewClient(b.api, between("ConfigMap", "default-logger",
		edit(t, &corev1.ConfigMap{}, "default-logger", `{"data":{"request_worker_count":"32"}}`)))
	b.r.acts.applier.Writer = b.r.acts.client
	// Another option changed just before makes the operator write.
	require.NoError(t, edit(t, &corev1.ConfigMap{}, "default-logger", `{"data":{"task_worker_count":"16"}}`)(b.api))
	b.reconcile()
	b.reconcile()
	cm := &corev1.ConfigMap{}
	b.get(cm, "default-logger")
	if cm.Data["request_worker_count"] != "32" || cm.Data["task_worker_count"] != "16" {
		t.Errorf("a person's options are %q and %q", cm.Data["request_worker_count"], cm.Data["task_worker_count"])
	}
}
