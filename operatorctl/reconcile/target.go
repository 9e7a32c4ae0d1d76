// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
)

type target struct {
	component.Resolved
	// wants lists its desired objects; objects holds them if they were rendered in this reconcile.
	wants   []want
	objects []piece
	// err is the reason why it cannot be rendered.
	err error
	// invalid describes the options in its ConfigMap that its service would not accept.
	invalid string
	// paused is true if a user paused all of it.
	paused bool
	// foreign is true if only its release knows it, not this build.
	foreign bool
	// held is what it waits for before it moves to the release in force, "" if it does not wait.
	held string
}

type piece struct {
	client.Object
	role role
}

// want is a desired object of a component, with its hash in the release.
type want struct {
	key  engine.Key
	hash string
	role role
	// absent is the number of pods of a DaemonSet that block its rollout because their nodes are lost. It is not part of the release.
	absent int32
	// stopped is true if an operation stops the Deployment or DaemonSet. That is not part of the release either.
	stopped bool
}

// applied returns the hash under which the object is applied.
func (w want) applied() string {
	switch {
	case w.stopped:
		return w.hash + "+stopped"
	case w.absent == 0:
		return w.hash
	}
	return fmt.Sprintf("%s+%d", w.hash, w.absent)
}

// role determines when an object is applied.
type role int

const (
	// roleBase is configuration: ConfigMaps, Secrets, claims, Services, Ingresses.
	roleBase role = iota
	// roleWorkload is the workload, roleCopy a read-only replica or a copy for a zone.
	roleWorkload
	roleCopy
)

// workload returns the desired workload of a component; ok is false if it has none.
func (c *target) workload() (w want, ok bool) {
	if i := slices.IndexFunc(c.wants, func(w want) bool { return w.role == roleWorkload }); i >= 0 {
		return c.wants[i], true
	}
	return want{}, false
}

// component returns a component by name, nil if this build does not know it.
func (d *Desired) component(name string) *target {
	return lists.First(d.Components, func(c *target) bool { return c.Name == name })
}

// draw returns the objects that this build renders. It sets their owners first, because the hash of an applied object covers them.
func (d *Desired) draw(s State, c *target) ([]piece, error) {
	if d.options == nil {
		d.options = readOptions(s, d)
	}
	in := inputs(d, c)
	in.Chosen, in.Values = d.options.chosen, d.options.values
	objects, err := render.Component(c.Resolved, in)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	var out []piece
	for _, o := range render.List(objects) {
		p := piece{Object: own(s.Cloud, o)}
		switch {
		case o == objects.Workload:
			p.role = roleWorkload
		case slices.Contains(objects.Copies, o):
			p.role = roleCopy
		}
		out = append(out, p)
	}
	return out, nil
}

// inputs returns the inputs for rendering a component, without options.
func inputs(d *Desired, c *target) component.Inputs {
	return component.Inputs{
		Cluster: d.Cluster, Self: c.Resolved, Credentials: d.Credentials, CertHash: d.Certificates.CertHash, EtcdHash: d.Certificates.EtcdHash,
		AdminPasswordTaken: d.passwordTaken, CertSupplied: d.Certificates.Status.Supplied,
	}
}

// wantsOf converts rendered objects to wants.
func wantsOf(pieces []piece, absent int32) ([]want, error) {
	var out []want
	for _, p := range pieces {
		w := want{key: engine.KeyOf(p), role: p.role}
		if ds, ok := p.Object.(*appsv1.DaemonSet); ok && p.role == roleWorkload && ds.Spec.UpdateStrategy.RollingUpdate != nil {
			w.absent = absent
		}
		var err error
		if w.hash, err = engine.HashOf(p.Object); err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// object returns the rendered object of a want, as it is applied.
func object(pieces []piece, w want) client.Object {
	for _, p := range pieces {
		if engine.KeyOf(p) != w.key {
			continue
		}
		if w.stopped {
			return stopped(p.Object, w)
		}
		ds, ok := p.Object.(*appsv1.DaemonSet)
		if !ok || w.absent == 0 {
			return p.Object
		}
		ds = ds.DeepCopy()
		ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal += w.absent
		engine.ApplyAs(ds, w.applied())
		return ds
	}
	return nil
}

// stopped returns a workload without pods.
func stopped(o client.Object, w want) client.Object {
	switch o := o.DeepCopyObject().(type) {
	case *appsv1.Deployment:
		o.Spec.Replicas = new(int32(0))
		engine.ApplyAs(o, w.applied())
		return o
	case *appsv1.DaemonSet:
		selector := map[string]string{v1alpha1.LabelNoNode: "true"}
		maps.Copy(selector, o.Spec.Template.Spec.NodeSelector)
		o.Spec.Template.Spec.NodeSelector = selector
		engine.ApplyAs(o, w.applied())
		return o
	}
	return o
}

// userOptions holds the options that users put into the ConfigMaps, by component.
type userOptions struct {
	chosen map[string]map[string]string
	// values are the effective ones, invalid describes what a service would not accept.
	values  map[string]map[string]any
	invalid map[string]string
}

// readOptions reads the options that users put into the ConfigMaps. If a service would not accept one option of an edit, the whole edit is ignored: a
// service silently ignores unknown options, and crashes on a value of the wrong type.
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
		live := render.Live{File: d.composedSecret(s, c).Data[render.FileName(c.Component)], Data: cm.Data, Accepted: render.Accepted(cm)}
		values, problems := render.Check(c.Component, in, live)
		o.values[c.Name] = values
		o.invalid[c.Name] = invalidOptions(d.Cluster.Object(c.Name), problems, live.File != nil)
	}
	return o
}

// shownProblems is the maximum number of options in a message.
const shownProblems = 2

// invalidOptions describes which options are invalid and what to do; "" if there are none.
func invalidOptions(configMap string, problems []*options.Problem, running bool) string {
	if len(problems) == 0 {
		return ""
	}
	what := lists.Some(lists.Map(problems, (*options.Problem).Error), shownProblems)
	until := "it is ignored until it is corrected or removed"
	if running {
		until = "the pods keep their current configuration until it is corrected or removed"
	}
	return fmt.Sprintf("ConfigMap %s: %s; %s", configMap, strings.Join(what, "; "), until)
}

// planEffects lists the effects outside Kubernetes.
func planEffects(s State, d *Desired) []effects.Effect {
	in := effects.Input{
		Cluster: d.Cluster, Order: d.catalog.order, Credentials: d.Credentials, Salt: string(s.Cloud.UID), Recorded: onRecord(s.Cloud),
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

// addValues parses the operator's own options in a ConfigMap: each value is YAML.
func addValues(to map[string]any, data map[string]string) {
	for k, text := range data {
		if v, err := render.OptionValue(text); err == nil && v != nil {
			to[k] = v
		}
	}
}
