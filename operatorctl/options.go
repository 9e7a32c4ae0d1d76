// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
)

// readOptions reads what people put into the ConfigMaps, by component. What a service would not take is kept for the report, and
// nothing of that edit counts: a service is silent about an option that it does not know, and a value of the wrong type stops it.
func (p *pass) readOptions() {
	p.chosen, p.values = map[string]map[string]string{}, map[string]map[string]any{}
	for _, c := range p.parts {
		if o := p.options(c.Name); o != nil {
			p.chosen[c.Name] = o
		}
	}
	for _, c := range p.parts {
		if !c.Enabled || c.Problem != "" || len(p.chosen[c.Name]) == 0 || !render.Configurable(c.Component) {
			continue
		}
		in := component.Inputs{Cluster: p.cluster, Self: c.Resolved, Credentials: p.creds, Options: p.chosen}
		live := render.Live{File: p.composed(c)}
		if cm := p.configMap(c.Name); cm != nil {
			live.Data, live.Accepted = cm.Data, acceptedOptions(cm)
		}
		var problems []*options.Problem
		p.values[c.Name], problems = render.Check(c.Component, in, live)
		c.invalid = p.invalidOptions(c.Name, problems, live.File != nil)
	}
}

// composed is the file that the pods of a component have, nil if there is none.
func (p *pass) composed(c *part) []byte {
	s := p.composedSecret(c)
	if s == nil {
		return nil
	}
	return s.Data[render.FileName(c.Component)]
}

// composedSecret is the Secret that holds it.
func (p *pass) composedSecret(c *part) *corev1.Secret {
	return p.live.secret(p.cluster.Object(c.Name) + render.ConfigSuffix)
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

// invalidOptions says what is wrong with which options, and what to do; "" if nothing is.
func (p *pass) invalidOptions(name string, problems []*options.Problem, running bool) string {
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
	return fmt.Sprintf("ConfigMap %s: %s; %s", p.cluster.Object(name), strings.Join(what, "; "), until)
}

// planEffects lists what this pass has to do outside Kubernetes.
func (p *pass) planEffects() {
	in := effects.Input{
		Cluster: p.cluster, Order: p.r.order, Credentials: p.creds, Salt: string(p.cr.UID), Recorded: p.cr.Status.Effects,
		Options: map[string]map[string]any{}, Chosen: p.values, ClientCertificate: p.certs.etcdClient,
		Adopt: effects.ParseAdoption(p.cr.Annotations[v1alpha1.AnnotationAdoptDatabases]), ReplicaDown: map[string]bool{},
	}
	for _, c := range p.parts {
		values := map[string]any{}
		for _, o := range c.objects.ConfigMaps {
			if cm, ok := o.(*corev1.ConfigMap); ok && render.Configurable(c.Component) {
				addValues(values, cm.Data)
			}
		}
		for k, v := range p.values[c.Name] {
			values[k] = v
		}
		in.Options[c.Name] = values
		in.ReplicaDown[c.Name] = p.replicaDown(c)
	}
	p.plan = effects.Plan(in)
}

// addValues reads the operator's own options as they lie in a ConfigMap: each value is YAML.
func addValues(to map[string]any, data map[string]string) {
	for k, text := range data {
		if v, err := render.OptionValue(text); err == nil && v != nil {
			to[k] = v
		}
	}
}

// options are the entries of a component's ConfigMap that somebody else than the operator put there or changed.
func (p *pass) options(name string) map[string]string {
	if cm := p.configMap(name); cm != nil {
		return PeoplesOptions(cm)
	}
	return nil
}

// configMap is the one of a component, nil if there is none.
func (p *pass) configMap(name string) *corev1.ConfigMap {
	cm, _ := p.live.objects[engine.Key{
		GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: p.cr.Namespace, Name: p.cr.Name + "-" + name,
	}].(*corev1.ConfigMap)
	return cm
}

// PeoplesOptions returns the data of a ConfigMap whose keys a field manager other than the operator, and the earlier one, owns.
func PeoplesOptions(cm *corev1.ConfigMap) map[string]string {
	theirs := map[string]bool{}
	for _, m := range cm.ManagedFields {
		if m.Manager == engine.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply || isEarlier(m) {
			continue
		}
		for _, k := range engine.DataKeys(m) {
			theirs[k] = true
		}
	}
	var out map[string]string
	for k, v := range cm.Data {
		if theirs[k] {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
