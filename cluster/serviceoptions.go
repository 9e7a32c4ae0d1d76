// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// ServiceOption is one option of a component.
type ServiceOption struct {
	Name string `json:"name"`
	// Type as in the documentation; "" if the option is unknown. Choices lists the accepted values if there are only a few.
	Type    string   `json:"type,omitempty"`
	Choices []string `json:"choices,omitempty"`
	// Value is the effective value; nil if it is not known. A possible secret is hidden.
	Value  *string `json:"value,omitempty"`
	Source string  `json:"source"`
	// Problem explains why the service would reject the value in the ConfigMap.
	Problem string `json:"problem,omitempty"`
}

// Sources of a value: the service itself, the operator or a user through the ConfigMap, or the identity service, where the console, climc and the
// service itself store values.
const (
	SourceDefault  = "default"
	SourceOperator = "operator"
	SourceUser     = "you"
	SourceStored   = "stored"
)

// hidden replaces a value that may be a secret.
const hidden = "***"

// ServiceOptions lists the options that a component accepts, and the unknown ones in its ConfigMap, by name. stored holds the values in the identity
// service.
func ServiceOptions(ctx context.Context, c client.Reader, cloud client.ObjectKey, component string, stored map[string]any) ([]ServiceOption, error) {
	cm := configMap(cloud, component)
	if err := c.Get(ctx, client.ObjectKeyFromObject(cm), cm); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the options of %q: %w", component, err)
	}
	return serviceOptions(component, cm, stored), nil
}

func configMap(cloud client.ObjectKey, component string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cloud.Namespace, Name: cloud.Name + "-" + component}}
}

func serviceOptions(component string, cm *corev1.ConfigMap, stored map[string]any) []ServiceOption {
	table, _ := options.Of(component)
	ours := operatorKeys(cm)
	names := slices.Collect(maps.Keys(table))
	for name := range cm.Data {
		if _, known := table[name]; !known && name != "config" { // the earlier operator stored a whole file
			names = append(names, name)
		}
	}
	slices.Sort(names)
	out := make([]ServiceOption, 0, len(names))
	for _, name := range names {
		known := table[name]
		o := ServiceOption{Name: name, Type: string(known.Type), Choices: known.Choices, Source: SourceDefault}
		if known.Default != "" {
			o.Value = &known.Default
		}
		if text, set := cm.Data[name]; set {
			o.Value, o.Source = &text, SourceUser
			if ours[name] {
				o.Source = SourceOperator
			}
			if problem := check(component, cm, name, text); problem != nil {
				o.Problem = problem.What
			}
		}
		if value, is := stored[cmp.Or(known.Stored, name)]; is && o.Problem == "" && !sameValue(table, component, name, o.Value, value) {
			o.Value, o.Source = new(text(value)), SourceStored
		}
		if o.Value != nil && options.Sensitive(name) {
			o.Value = new(hidden)
		}
		out = append(out, o)
	}
	return out
}

var secretOptions = map[string]component.Group{"sql_connection": component.GroupDB, "admin_password": component.GroupCommon}

// check returns the problem of an option, nil if the service accepts it or a user vouches for it.
func check(of string, cm *corev1.ConfigMap, name, text string) *options.Problem {
	if group, secret := secretOptions[name]; secret && slices.ContainsFunc(catalog.All(), func(c component.Component) bool {
		return c.Name == of && c.Config != nil && slices.Contains(c.Config.Groups, group)
	}) {
		return &options.Problem{Key: name, What: "is a secret that the operator sets"} // it would refuse the option, and the ConfigMap is no place for secrets
	}
	table, checked := options.Of(of)
	_, known := table[name]
	if !checked || !known && slices.ContainsFunc(strings.Split(cm.Annotations[v1alpha1.AnnotationAcceptOptions], ","),
		func(accepted string) bool { return strings.TrimSpace(accepted) == name }) {
		return nil
	}
	_, err := table.Value(of, name, text)
	problem, _ := errors.AsType[*options.Problem](err)
	return problem
}

// sameValue reports whether the text of an option means the stored value.
func sameValue(table options.Table, component, name string, old *string, stored any) bool {
	if old == nil {
		return false
	}
	value, err := table.Value(component, name, *old)
	return err == nil && text(value) == text(stored)
}

// text formats a value as in a ConfigMap.
func text(value any) string {
	if s, is := value.(string); is {
		return s
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(raw)
}

// ChangeServiceOptions sets options in the ConfigMap of a component, removes those whose value is nil, and returns a line for each change. If any is
// invalid, it changes none.
func ChangeServiceOptions(ctx context.Context, c client.Client, cloud client.ObjectKey, component string, want map[string]*string) ([]string, error) {
	cm, err := existingOptions(ctx, c, cloud, component)
	if err != nil {
		return nil, err
	}
	ours := operatorKeys(cm)
	var lines []string
	data, chosen := map[string]any{}, map[string]any{} // values to change, and those of the operator that become the user's
	for _, name := range slices.Sorted(maps.Keys(want)) {
		old, set := cm.Data[name]
		value, shown, same := want[name], "(default)", !set || ours[name]
		if value != nil {
			shown, same = display(name, *value), set && old == *value && !ours[name]
		}
		if value != nil || !set {
			if problem := check(component, cm, name, ptr.Deref(value, "")); problem != nil {
				return nil, finding.New("OCA-0313", "Invalid option of "+component, problem.Error(), "ocadm component options list "+component)
			}
		}
		if same {
			continue
		}
		if value != nil && set && old == *value {
			chosen[name] = old
		} else {
			data[name] = value
		}
		lines = append(lines, name+": "+display(name, old)+" → "+shown)
	}
	if len(data) > 0 {
		if err := merge(ctx, c, cm, map[string]any{"data": data}); err != nil {
			return nil, fmt.Errorf("changing ConfigMap %s: %w", client.ObjectKeyFromObject(cm), err)
		}
	}
	for name, value := range chosen {
		if err := choose(ctx, c, cm, value, "data", name); err != nil {
			return nil, fmt.Errorf("changing ConfigMap %s: %w", client.ObjectKeyFromObject(cm), err)
		}
	}
	return lines, nil
}

func display(name, value string) string {
	if value != "" && options.Sensitive(name) {
		return hidden
	}
	return orNone(value)
}

func existingOptions(ctx context.Context, c client.Client, cloud client.ObjectKey, component string) (*corev1.ConfigMap, error) {
	cm := configMap(cloud, component)
	err := c.Get(ctx, client.ObjectKeyFromObject(cm), cm)
	if apierrors.IsNotFound(err) {
		return nil, finding.Errorf("OCA-7018", fmt.Sprintf("Component %s has no options in cloud %s", component, cloud),
			"ocadm cluster status shows whether the component runs", "%w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the options of %q: %w", component, err)
	}
	return cm, nil
}

// operatorKeys returns the keys of a ConfigMap that only the operator has set.
func operatorKeys(cm *corev1.ConfigMap) map[string]bool {
	ours := map[string]bool{}
	keys := func(m metav1.ManagedFieldsEntry) []string {
		var fields struct {
			Data map[string]any `json:"f:data"`
		}
		if m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			return nil
		}
		return slices.Collect(maps.Keys(fields.Data))
	}
	for _, mine := range []bool{true, false} {
		for _, m := range cm.ManagedFields {
			if mine != (m.Manager == operatorManager && m.Operation == metav1.ManagedFieldsOperationApply) {
				continue
			}
			for _, k := range keys(m) {
				ours[strings.TrimPrefix(k, "f:")] = mine
			}
		}
	}
	return ours
}

// operatorManager is the field manager with which the operator applies what it renders.
const operatorManager = "ocadm-operator"
