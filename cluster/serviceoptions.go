// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
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
// service. If the spec of the cloud cannot be resolved, it also returns the options, unchecked.
func ServiceOptions(ctx context.Context, c client.Client, cloud client.ObjectKey, component string, stored map[string]any) ([]ServiceOption, error) {
	cr, cm, found, err := readOptions(ctx, c, cloud, component)
	if err != nil {
		return nil, err
	}
	if !found {
		return serviceOptions(component, cm, stored, nil), nil
	}
	problems, err := check(cr, component, cm, cm.Data)
	return serviceOptions(component, cm, stored, problems), err
}

func configMap(cloud client.ObjectKey, component string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cloud.Namespace, Name: cloud.Name + "-" + component}}
}

func serviceOptions(component string, cm *corev1.ConfigMap, stored map[string]any, problems []*options.Problem) []ServiceOption {
	table, _ := options.Of(component)
	wrong := lists.Index(problems, func(p *options.Problem) (string, string) { return p.Key, p.What })
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
		o := ServiceOption{Name: name, Type: string(known.Type), Choices: known.Choices, Source: SourceDefault, Problem: wrong[name]}
		if known.Default != "" {
			o.Value = &known.Default
		}
		if text, set := cm.Data[name]; set {
			o.Value, o.Source = &text, SourceUser
			if ours[name] {
				o.Source = SourceOperator
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

// check returns the problems of options that users set in a ConfigMap, as the operator finds them.
func check(cr *v1alpha1.OnecloudCluster, of string, cm *corev1.ConfigMap, set map[string]string) ([]*options.Problem, error) {
	all, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All()})
	if err != nil {
		return nil, fmt.Errorf("reading cloud %s: %w", client.ObjectKeyFromObject(cr), err)
	}
	in := component.Inputs{Cluster: all, Self: all.Components[of], Credentials: component.Placeholders(all), Chosen: map[string]map[string]string{of: set}}
	_, problems := render.Check(in.Self.Component, in, render.Live{Accepted: render.Accepted(cm)})
	return problems, nil
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
	cr, cm, found, err := readOptions(ctx, c, cloud, component)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, finding.New("OCA-7018", fmt.Sprintf("Component %s has no options in cloud %s", component, cloud), "there is no ConfigMap "+cm.Name,
			"ocadm cluster status shows whether the component runs")
	}
	ours := operatorKeys(cm)
	var lines []string
	data, chosen := map[string]any{}, map[string]any{} // values to change, and those of the operator that become the user's
	checked := map[string]string{}
	for name, value := range want {
		if _, set := cm.Data[name]; value != nil || !set {
			checked[name] = ptr.Deref(value, "")
		}
	}
	if problems, err := check(cr, component, cm, checked); err != nil {
		return nil, err
	} else if len(problems) > 0 {
		return nil, finding.New("OCA-0313", "Invalid option of "+component, problems[0].Error(), "ocadm component options list "+component)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		old, set := cm.Data[name]
		value, shown, same := want[name], "(default)", !set || ours[name]
		if value != nil {
			shown, same = display(name, *value), set && old == *value && !ours[name]
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

// readOptions reads a cloud and the ConfigMap of a component, which is empty if it is not found.
func readOptions(ctx context.Context, c client.Client, cloud client.ObjectKey, component string) (cr *v1alpha1.OnecloudCluster, cm *corev1.ConfigMap, found bool, err error) {
	if _, cr, err = load(ctx, c, cloud); err != nil {
		return nil, nil, false, err
	}
	cm = configMap(cloud, component)
	found, err = kube.Find(ctx, c, client.ObjectKeyFromObject(cm), cm, fmt.Sprintf("the options of %q", component))
	return cr, cm, found, err
}

// operatorKeys returns the keys of a ConfigMap that only the operator has set.
func operatorKeys(cm *corev1.ConfigMap) map[string]bool {
	ours := map[string]bool{}
	for _, mine := range []bool{true, false} {
		for _, m := range cm.ManagedFields {
			if mine != (m.Manager == engine.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply) {
				continue
			}
			for _, key := range engine.DataKeys(m) {
				ours[key] = mine
			}
		}
	}
	return ours
}
