// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/admission"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestAdmission checks all rules for a spec against a real API server, with valid and invalid specs. The cases come from package admission, whose own
// test compares them with the operator's findings.
func TestAdmission(t *testing.T) {
	c := newCloudTest(t, env.Options{}).Client
	cases, err := admission.Cases()
	if err != nil || len(cases) < 60 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for i, k := range cases {
		t.Run(k.Name, func(t *testing.T) {
			name := fmt.Sprintf("c%d", i)
			write := func(part map[string]any) error { return c.Create(t.Context(), written(name, k.Spec(part))) }
			if k.Was != nil {
				if err := write(k.Was); err != nil {
					t.Fatalf("what was: %v", err)
				}
				write = func(part map[string]any) error {
					o := written(name, nil)
					if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
						return err
					}
					o.Object["spec"] = k.Spec(part)
					return c.Update(t.Context(), o)
				}
			}
			if err := write(k.Bad); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), k.Want) {
				t.Errorf("the bad one: %v, want %q", err, k.Want)
			}
			if err := write(k.Good); err != nil {
				t.Errorf("the good one: %v", err)
			}
		})
	}
	t.Run("misspelt keys", func(t *testing.T) {
		nested := written("nested", admission.Merge(admission.Base(), map[string]any{"glance": map[string]any{"replcas": int64(1)}}))
		err := c.Create(t.Context(), nested, client.FieldValidation(metav1.FieldValidationStrict))
		if err == nil || !strings.Contains(err.Error(), `unknown field "spec.glance.replcas"`) {
			t.Errorf("within a block, asked strictly as kubectl does: %v", err)
		}
		top := written("top", admission.Merge(admission.Base(), map[string]any{"glnace": map[string]any{"disable": true}}))
		require.NoError(t, c.Create(t.Context(), top, client.FieldValidation(metav1.FieldValidationStrict)))
		if _, kept, _ := unstructured.NestedMap(top.Object, "spec", "glnace"); !kept {
			t.Error("the API server has dropped the key: the operator cannot tell")
		}
	})
}

// written returns the cloud of a case.
func written(name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// TestFieldsWithoutEffectAreReported checks that unknown keys and fields without effect are reported, and that no write of the operator loses them.
func TestFieldsWithoutEffectAreReported(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	e.Edit(`{"spec":{"glnace":{"disable":true},"etcd":{"paused":true}},"metadata":{"annotations":{"onecloud.yunion.io/paused":"loger"}}}`)
	var told string
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionIgnored)
		if c == nil || c.Reason != "UnknownFields" {
			return false
		}
		told = c.Message
		return true
	})
	for _, want := range []string{"spec.glnace: unknown, without effect; did you mean spec.glance?", "spec.etcd.paused: accepted, without effect: ", `component "loger" does not exist`} {
		if !strings.Contains(told, want) {
			e.Errorf("%q lacks %q", told, want)
		}
	}
	e.UntilReady()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	e.Get(o, cloud)
	if _, there, _ := unstructured.NestedMap(o.Object, "spec", "glnace"); !there {
		e.Error("the unknown key was lost")
	}
	e.Edit(`{"spec":{"glnace":null,"influxdb":null,"etcd":{"paused":null}},"metadata":{"annotations":{"onecloud.yunion.io/paused":null}}}`)
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionIgnored) == nil
	})
	e.UntilReady()
}
