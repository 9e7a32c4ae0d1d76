// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
)

// target is what one component is to be.
type target struct {
	component.Resolved
	// wants are the objects that it is to have, objects are they if they were rendered in this reconcile.
	wants   []want
	objects []piece
	// err is why it cannot be rendered.
	err error
	// invalid says which options of its ConfigMap its service would not accept.
	invalid string
	// paused is true if a user keeps the operator from all of it.
	paused bool
	// foreign is true if this build does not know it, and its release has it.
	foreign bool
	// held is what it waits for before it moves to the release in force, "" if it does not.
	held string
}

// piece is a rendered object.
type piece struct {
	client.Object
	role role
}

// want is an object that a component is to have, with its hash in the release.
type want struct {
	key  engine.Key
	hash string
	role role
	// absent is how many pods of a DaemonSet hold up its rollout because their node is lost. It is no part of the release.
	absent int32
	// stopped is true of a Deployment or DaemonSet that an operation stops. That is no part of the release either.
	stopped bool
}

// applied is the hash under which the object is applied.
func (w want) applied() string {
	switch {
	case w.stopped:
		return w.hash + "+stopped"
	case w.absent == 0:
		return w.hash
	}
	return fmt.Sprintf("%s+%d", w.hash, w.absent)
}

// role says when an object is applied.
type role int

const (
	// roleBase are configuration, secrets, claims, Services, Ingresses.
	roleBase role = iota
	// roleWorkload is the workload, roleCopy a read-only replica or a copy for a zone.
	roleWorkload
	roleCopy
)

// workload is the workload a component is to have; ok is false if it has none.
func (c *target) workload() (w want, ok bool) {
	for _, w := range c.wants {
		if w.role == roleWorkload {
			return w, true
		}
	}
	return want{}, false
}

// component by name, nil if this build does not know it.
func (d *Desired) component(name string) *target {
	for _, c := range d.Components {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// draw returns the objects that this build renders, with owners: the hash under which an object is applied covers them.
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

// inputs of a component's render, without options.
func inputs(d *Desired, c *target) component.Inputs {
	return component.Inputs{
		Cluster: d.Cluster, Self: c.Resolved, Credentials: d.Credentials, CertHash: d.Certificates.CertHash, EtcdHash: d.Certificates.EtcdHash,
		AdminPasswordTaken: d.passwordTaken,
	}
}

// wantsOf lists what was rendered.
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

// object finds what was rendered for a want, as it is applied.
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

// stopped is a workload without pods.
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
