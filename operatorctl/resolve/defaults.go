// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Defaults returns the spec fields that no user chose, for the field manager v1alpha1.ManagerDefaults to apply with force, so that they are visible.
// Applied again after a change of the release or of a choice, they follow it; fields no longer included are given up.
func Defaults(cr *v1alpha1.OnecloudCluster, c component.Cluster, owned *Owned) (*unstructured.Unstructured, error) {
	v, err := newView(&cr.Spec, owned)
	if err != nil {
		return nil, err
	}
	d := defaults{view: v, out: map[string]any{}}
	d.set(c.Version, "version")
	d.set(DefaultRepository, "imageRepository")
	d.set(string(c.Product), "productVersion")
	d.set(string(c.Profile), "profile")
	d.set(c.Region, "region")
	d.set(c.Zone, "zone")
	if c.LoadBalancer != "" { // written once: later it is in the spec and stays, whatever happens to the node
		d.set(c.LoadBalancer, "loadBalancerEndpoint")
	}
	d.set(string(v1alpha1.Retain), "deletionPolicy")
	d.set(int64(DefaultMysqlPort), "mysql", "port")
	d.set(DefaultMysqlUser, "mysql", "username")
	for _, r := range c.Components {
		if r.Visible && r.Workload.Kind != component.NoWorkload {
			d.component(r)
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": d.out}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	u.SetName(c.Name)
	u.SetNamespace(c.Namespace)
	u.SetAnnotations(map[string]string{v1alpha1.AnnotationDefaultImages: v.repository() + ":" + c.Version})
	return u, nil
}

type defaults struct {
	view
	out map[string]any
}

// set shows a default unless another manager owns the field.
func (d defaults) set(value any, path ...string) {
	if !d.chosen(path...) {
		d.force(value, path...)
	}
}

func (d defaults) force(value any, path ...string) {
	_ = unstructured.SetNestedField(d.out, value, path...) // fails only if a path runs through a scalar; ours do not
}

func (d defaults) component(r component.Resolved) {
	at, outer := r.SpecPath(), r.BlockPath()
	key := func(k ...string) []string { return append(outer, k...) }
	// An image that a user wrote but did not choose follows the release, whichever manager owns the field.
	if !r.Pinned && r.Problem == "" {
		d.force(r.FullImage, append(at, "image")...)
	}
	d.set("IfNotPresent", append(at, "imagePullPolicy")...)
	for _, s := range r.Workload.Sidecars {
		if image, runs := r.ContainerImages[s.Name]; runs && s.SpecKey != "" && r.Problem == "" && !slices.Contains(r.PinnedContainers, s.Name) {
			d.force(image, append(strings.Split(s.SpecKey, "."), "image")...)
		}
	}
	if len(outer) < len(at) {
		return // a container's block within that of another component
	}
	if r.OffByDefault {
		d.set(true, key("disable")...)
	}
	switch r.WorkloadKind() {
	case component.Deployment, component.StatefulSet:
		d.set(int64(r.Replicas), key(cmp.Or(r.Workload.ReplicasKey, "replicas"))...)
	case component.CronJob:
		d.set(r.Schedule, key("schedule")...)
	}
	if !d.tolerates(r.Block, outer) {
		d.force(lists.Map(r.Tolerations, func(t corev1.Toleration) any {
			return map[string]any{"key": t.Key, "operator": string(t.Operator), "effect": string(t.Effect)}
		}), key("tolerations")...)
	}
	if r.Storage != nil {
		d.set(r.StorageSize, key("requests", "storage")...)
		d.set(r.StorageClass, key("storageClassName")...)
	}
	for _, s := range r.Services() {
		for _, p := range s.Ports {
			if p.SpecKey != "" {
				d.set(int64(r.NodePorts[s.NameSuffix+p.Name]), key(strings.Split(p.SpecKey, ".")...)...)
			}
		}
	}
}
