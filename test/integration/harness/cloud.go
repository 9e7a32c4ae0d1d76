// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/templates"
)

// Only returns a cloud with only the given components. It enables those that are off by default and disables all others.
func Only(cr *v1alpha1.OnecloudCluster, keep ...string) *v1alpha1.OnecloudCluster {
	kept := map[string]bool{}
	for _, c := range catalog.All() {
		if slices.Contains(keep, c.Name) {
			kept[c.SpecPath()[0]] = true
		}
	}
	return Edited(cr, func(set func(v any, path ...string)) {
		for _, c := range catalog.All() {
			switch at := c.SpecPath(); {
			case c.OffByDefault && slices.Contains(keep, c.Name):
				set(false, append(at, "disable")...)
			case at[0] == "components":
				if !slices.Contains(keep, c.Name) {
					set(true, append(at, "disable")...)
				}
			case !kept[at[0]]:
				set(true, at[0], "disable")
			}
		}
	})
}

// Edited returns a copy of a cloud with values set below spec.
func Edited(cr *v1alpha1.OnecloudCluster, edit func(set func(v any, path ...string))) *v1alpha1.OnecloudCluster {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cr)
	if err != nil {
		panic(err) // our own types always convert
	}
	edit(func(v any, path ...string) {
		if err := unstructured.SetNestedField(m, v, append([]string{"spec"}, path...)...); err != nil {
			panic(err)
		}
	})
	out := &v1alpha1.OnecloudCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, out); err != nil {
		panic(err)
	}
	return out
}

// OperatorManifests returns the objects of a directory of templates for an operator in this process, except its Deployment. The operator has a
// namespace and watches namespaces.
func OperatorManifests(dir, namespace, namespaces string) ([]*unstructured.Unstructured, error) {
	data, err := templates.ReadDir(dir)
	if !strings.HasSuffix(dir, "crds") {
		data, err = templates.RenderDir(dir, map[string]any{
			"Namespace": namespace, "Operator": namespace, "Namespaces": namespaces, "Image": "none", "PullPolicy": "IfNotPresent",
		})
	}
	if err != nil {
		return nil, err
	}
	objs, err := kube.Decode(data)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" }), nil
}

// Passes returns the number of finished reconciles of this process's operators and reports whether one is running.
func Passes() (ended float64, busy bool, err error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, true, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "controller_runtime_reconcile_total":
				ended += m.GetCounter().GetValue()
			case "controller_runtime_active_workers": // the depth of a queue that was stopped with work in it never falls
				busy = busy || m.GetGauge().GetValue() > 0
			}
		}
	}
	return ended, busy, nil
}

// Tally returns counts as "3 get secrets, 1 list pods", the highest first.
func Tally(n map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(n), func(a, b string) int {
		return cmp.Or(n[b]-n[a], strings.Compare(a, b))
	})
	out := lists.Map(keys, func(k string) string { return fmt.Sprintf("%d %s", n[k], k) })
	return strings.Join(out, ", ")
}

// IdentityBudget returns the number of requests that an installation may send to the identity service: 200, plus 1.2 for each standard policy and
// each policy of a standard role.
func IdentityBudget() (int, error) {
	t, err := policy.Standard()
	return 200 + (len(t.Policies)+t.Grants())*12/10, err
}
