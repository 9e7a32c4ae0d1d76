// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// liveMachine returns a machine with a secret in an annotation, and with the hidden annotations.
func liveMachine() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "w", "labels": map[string]any{"rack": "r1"},
		"annotations": map[string]any{
			"example.org/note": "n", "example.org/password": "swordfish", "example.org/url": "mysql://root:swordfish@db/x",
			corev1.LastAppliedConfigAnnotation: `{"spec":{}}`, annotationOnce: "1.2",
		},
	}}}
}

// A PUT of a GET's answer changes nothing, not even what GET did not show.
func TestReplaceAcceptsDisplayedMetadata(t *testing.T) {
	live, want := liveMachine(), liveMachine()
	text, err := json.Marshal(shown(live))
	require.NoError(t, err)
	var sent map[string]any
	require.NoError(t, json.Unmarshal(text, &sent))
	if sent["metadata"].(map[string]any)["annotations"].(map[string]any)["example.org/password"] != hidden {
		t.Fatalf("the answer shows a secret: %s", text)
	}
	if err := replaceMetadata(sent, live.Object); err != nil || !reflect.DeepEqual(live, want) {
		t.Errorf("%v, %v", live, err)
	}
}

// The same through the handlers of a machine.
func TestPutOfGet(t *testing.T) {
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w", Annotations: liveMachine().GetAnnotations()}}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(m).Build()
	ctx := context.WithValue(t.Context(), sessionKey{}, api)
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.path == "machines" })
	named := Named{Place: Place{Namespace: "n"}, Name: "w"}
	got, err := kinds[i].get(ctx, &struct {
		Named
		IfNoneMatch string `header:"If-None-Match" doc:"ETag of the version that you have"`
	}{Named: named})
	require.NoError(t, err)
	if _, err = kinds[i].replace(ctx, &struct {
		Named
		Match
		Body Resource
	}{Named: named, Match: Match{IfMatch: got.ETag}, Body: got.Body}); err != nil {
		t.Fatal(err)
	}
	after := &v1alpha1.OnecloudMachine{}
	if err := api.Get(ctx, named.key(), after); err != nil || !maps.Equal(after.Annotations, m.Annotations) {
		t.Errorf("%v, %v", after.Annotations, err)
	}
}

func TestReplaceMetadata(t *testing.T) {
	kept := map[string]any{corev1.LastAppliedConfigAnnotation: `{"spec":{}}`, annotationOnce: "1.2"}
	for name, c := range map[string]struct {
		sent, want map[string]any
	}{
		"nothing": {map[string]any{}, map[string]any{"name": "w", "annotations": kept}},
		"others": {map[string]any{"labels": map[string]any{"a": "b"}, "annotations": map[string]any{annotationOnce: "forged"}},
			map[string]any{"name": "w", "labels": map[string]any{"a": "b"}, "annotations": kept}},
		"wrong": {map[string]any{"annotations": "text"}, map[string]any{"name": "w", "annotations": "text"}},
	} {
		live := liveMachine()
		if err := replaceMetadata(map[string]any{"metadata": c.sent}, live.Object); err != nil || !reflect.DeepEqual(live.Object["metadata"], c.want) {
			t.Errorf("%s: %v, %v", name, live.Object["metadata"], err)
		}
	}
	var p *Problem
	err := replaceMetadata(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"new": hidden}}}, liveMachine().Object)
	if !errors.As(err, &p) || p.Status != http.StatusUnprocessableEntity {
		t.Errorf("a hidden value without a secret in its place: %v", err)
	}
}

// A component without a choosable number of pods cannot be scaled: the field would have no effect.
func TestScaleOnlyWhatScales(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	ctx := context.WithValue(t.Context(), sessionKey{}, fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build())
	for component, want := range map[string]int{"region": 0, "etcd": 422, "host": 422, "host-sdnagent": 422, "backup": 422, "glance": 422, "none": 404} {
		in := &scaleInput{Named: Named{Place: Place{Namespace: "n"}, Name: "c"}, Component: component}
		in.Body.Replicas = 2
		_, err := scaled(ctx, in)
		p, is := errors.AsType[*Problem](err)
		if want == 0 && err != nil || want != 0 && (!is || p.Status != want) {
			t.Errorf("%s: %v", component, err)
		}
	}
}
