// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/templates"
)

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
		if n[a] != n[b] {
			return n[b] - n[a]
		}
		return strings.Compare(a, b)
	})
	out := lists.Map(keys, func(k string) string { return fmt.Sprintf("%d %s", n[k], k) })
	return strings.Join(out, ", ")
}
