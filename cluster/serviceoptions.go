// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/options"
)

// ServiceOption is one option of a component.
type ServiceOption struct {
	Name string `json:"name"`
	// Type as in the documentation, "" of an option that is not known; Choices are the values it takes, where they are few.
	Type    string   `json:"type,omitempty"`
	Choices []string `json:"choices,omitempty"`
	// Value in the ConfigMap, nil if it has none: then the service's own default counts. What may be a secret is not shown.
	Value *string `json:"value,omitempty"`
	// Owner of the value: "operator", whose default it is, or "you".
	Owner string `json:"owner,omitempty"`
	// Problem is why the service would not take it.
	Problem string `json:"problem,omitempty"`
}

// Owners of a value.
const (
	OwnerOperator = "operator"
	OwnerPeople   = "you"
)

// hidden stands for a value that may be a secret.
const hidden = "***"

// ServiceOptions lists the options that a component knows, and those in its ConfigMap that it does not, by name.
func ServiceOptions(ctx context.Context, c client.Reader, cloud client.ObjectKey, component string) ([]ServiceOption, error) {
	cm := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: cloud.Namespace, Name: cloud.Name + "-" + component}
	if err := c.Get(ctx, key, cm); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the options of %q: %w", component, err)
	}
	return serviceOptions(component, cm), nil
}

func serviceOptions(component string, cm *corev1.ConfigMap) []ServiceOption {
	table, checked := options.Of(component)
	accepted := strings.Split(cm.Annotations[v1alpha1.AnnotationAcceptOptions], ",")
	for i := range accepted {
		accepted[i] = strings.TrimSpace(accepted[i])
	}
	ours := operatorKeys(cm)
	names := slices.Collect(maps.Keys(table))
	for name := range cm.Data {
		if _, known := table[name]; !known && name != "config" { // a whole file that an earlier operator left
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make([]ServiceOption, 0, len(names))
	for _, name := range names {
		o := ServiceOption{Name: name, Type: string(table[name].Type), Choices: table[name].Choices}
		if value, set := cm.Data[name]; set {
			_, known := table[name]
			if _, err := table.Value(component, name, value); err != nil && checked && (known || !slices.Contains(accepted, name)) {
				o.Problem = strings.TrimPrefix(err.Error(), fmt.Sprintf("option %q ", name))
			}
			o.Owner = OwnerPeople
			if ours[name] {
				o.Owner = OwnerOperator
			}
			if options.Sensitive(name) {
				value = hidden
			}
			o.Value = &value
		}
		out = append(out, o)
	}
	return out
}

// operatorKeys are the keys of a ConfigMap that the operator alone set.
func operatorKeys(cm *corev1.ConfigMap) map[string]bool {
	ours := map[string]bool{}
	keys := func(m metav1.ManagedFieldsEntry) []string {
		var fields struct {
			Data map[string]any `json:"f:data"`
		}
		if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			return nil
		}
		var out []string
		for k := range fields.Data {
			out = append(out, strings.TrimPrefix(k, "f:"))
		}
		return out
	}
	for _, mine := range []bool{true, false} {
		for _, m := range cm.ManagedFields {
			if mine != (m.Manager == operatorManager && m.Operation == metav1.ManagedFieldsOperationApply) {
				continue
			}
			for _, k := range keys(m) {
				ours[k] = mine
			}
		}
	}
	return ours
}

// operatorManager is the field manager under which the operator applies what it renders.
const operatorManager = "ocadm-operator"
