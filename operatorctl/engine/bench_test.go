// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"os"
	"reflect"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// BenchmarkUnchanged compares every object of a FullStack ce cloud with its live state and finds nothing to do: "known" after an earlier comparison,
// "compared" as in the first reconcile of a new operator.
func BenchmarkUnchanged(b *testing.B) {
	objs := wholeCloud(b)
	store := &memory{live: map[engine.Key]client.Object{}}
	if _, err := engine.NewApplier(store, store).Apply(b.Context(), objs); err != nil {
		b.Fatal(err)
	}
	store.full = true
	unchanged := func(b *testing.B, a *engine.Applier) {
		changes, err := a.Apply(b.Context(), objs)
		require.NoError(b, err)
		for _, c := range changes {
			if c.Action != engine.Unchanged {
				b.Fatalf("%s %s is %s: %s", c.Kind, c.Name, c.Action, c.Where)
			}
		}
	}
	b.Run("known", func(b *testing.B) {
		a := engine.NewApplier(store, store)
		b.ReportAllocs()
		for b.Loop() {
			unchanged(b, a)
		}
		b.ReportMetric(float64(len(objs)), "objects")
	})
	b.Run("compared", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			unchanged(b, engine.NewApplier(store, store))
		}
		b.ReportMetric(float64(len(objs)), "objects")
	})
}

func wholeCloud(b *testing.B) []client.Object {
	b.Helper()
	text, err := os.ReadFile("../render/testdata/ce/cr.yaml")
	require.NoError(b, err)
	cr := &v1alpha1.OnecloudCluster{}
	require.NoError(b, yaml.UnmarshalStrict(text, cr))
	table, err := images.Load()
	require.NoError(b, err)
	cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	require.NoError(b, err)
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	var objs []client.Object
	for _, r := range cluster.Components {
		if !r.Enabled {
			continue
		}
		o, err := render.Component(r, in)
		require.NoError(b, err)
		objs = append(objs, render.List(o)...)
	}
	return objs
}

// memory is a cache that holds what was applied to it.
type memory struct {
	client.Client
	full bool
	mu   sync.Mutex
	live map[engine.Key]client.Object
}

// Get copies the cached object, as an informer's cache does.
func (m *memory) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	gvk := into.GetObjectKind().GroupVersionKind()
	live := m.live[engine.Key{GVK: gvk, Namespace: key.Namespace, Name: key.Name}]
	if !m.full || live == nil {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(live.DeepCopyObject()).Elem())
	return nil
}

// Patch stores the object in its Go type.
func (m *memory) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return apierrors.NewBadRequest("not unstructured")
	}
	u.SetResourceVersion("1")
	typed, err := clientgoscheme.Scheme.New(u.GroupVersionKind())
	if err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return err
	}
	if live, ok := typed.(client.Object); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.live[engine.KeyOf(o)] = live
	}
	return nil
}
