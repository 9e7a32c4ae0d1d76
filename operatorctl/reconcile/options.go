// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/render"
)

// userOptions are the options that users put into the ConfigMaps, by component.
type userOptions struct {
	chosen map[string]map[string]string
	// values are those that take effect, invalid says what a service would not accept.
	values  map[string]map[string]any
	invalid map[string]string
}

// readOptions reads what users put into the ConfigMaps. If a service would not accept one option of an edit, nothing of that edit counts:
// a service silently ignores an option that it does not know, and crashes on a wrongly typed value.
func readOptions(s State, d *Desired) *userOptions {
	o := &userOptions{chosen: map[string]map[string]string{}, values: map[string]map[string]any{}, invalid: map[string]string{}}
	for _, c := range d.Components {
		if options := render.Chosen(d.configMap(s, c.Name)); options != nil {
			o.chosen[c.Name] = options
		}
	}
	for _, c := range d.Components {
		if !c.Enabled || c.Problem != "" || len(o.chosen[c.Name]) == 0 || !render.Configurable(c.Component) {
			continue
		}
		in := component.Inputs{Cluster: d.Cluster, Self: c.Resolved, Credentials: d.Credentials, Chosen: o.chosen}
		cm := d.configMap(s, c.Name)
		live := render.Live{File: d.composedSecret(s, c).Data[render.FileName(c.Component)], Data: cm.Data, Accepted: acceptedOptions(cm)}
		values, problems := render.Check(c.Component, in, live)
		o.values[c.Name] = values
		o.invalid[c.Name] = invalidOptions(d.Cluster.Object(c.Name), problems, live.File != nil)
	}
	return o
}

func acceptedOptions(cm *corev1.ConfigMap) []string {
	var out []string
	for name := range strings.SplitSeq(cm.Annotations[v1alpha1.AnnotationAcceptOptions], ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

// shownProblems is how many options a message names.
const shownProblems = 2

// invalidOptions says which options are wrong and what to do; "" if none is.
func invalidOptions(configMap string, problems []*options.Problem, running bool) string {
	if len(problems) == 0 {
		return ""
	}
	var what []string
	for _, problem := range problems[:min(len(problems), shownProblems)] {
		what = append(what, problem.Error())
	}
	if more := len(problems) - len(what); more > 0 {
		what = append(what, fmt.Sprintf("and %d more", more))
	}
	until := "it is left out until it is corrected or removed"
	if running {
		until = "the pods keep the configuration they have until it is corrected or removed"
	}
	return fmt.Sprintf("ConfigMap %s: %s; %s", configMap, strings.Join(what, "; "), until)
}

// planEffects lists what there is to do outside Kubernetes.
func planEffects(s State, d *Desired) []effects.Effect {
	in := effects.Input{
		Cluster: d.Cluster, Order: d.catalog.order, Credentials: d.Credentials, Salt: string(s.Cloud.UID), Recorded: s.Cloud.Status.Effects,
		Options: map[string]map[string]any{}, Values: d.options.values, Emptied: render.Emptied(d.options.chosen), ClientCertificate: d.Certificates.EtcdClient,
		Adopt: effects.ParseAdoption(s.Cloud.Annotations[v1alpha1.AnnotationAdoptDatabases]), ReplicaDown: map[string]bool{},
		LastWords: map[string]map[string]string{}, State: map[string]map[string]string{},
	}
	for _, c := range d.Components {
		values := map[string]any{}
		for _, p := range c.objects {
			if cm, ok := p.Object.(*corev1.ConfigMap); ok && render.Configurable(c.Component) {
				addValues(values, cm.Data)
			}
		}
		maps.Copy(values, d.options.values[c.Name])
		in.Options[c.Name] = values
		in.ReplicaDown[c.Name] = replicaDown(s, d, c)
		in.LastWords[c.Name], in.State[c.Name] = lastWords(s, c), leftState(s, d, c)
	}
	return effects.Plan(in)
}

// addValues reads the operator's own options as they lie in a ConfigMap: each value is YAML.
func addValues(to map[string]any, data map[string]string) {
	for k, text := range data {
		if v, err := render.OptionValue(text); err == nil && v != nil {
			to[k] = v
		}
	}
}
