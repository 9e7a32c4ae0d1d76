// SPDX-License-Identifier: Apache-2.0

// Package resolve turns the resource of a cloud into a complete description of it: defaults, what is enabled, images, ports. It is
// pure: it neither reads nor writes anything but its arguments.
package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The defaults of a cloud.
const (
	DefaultRepository = "registry.cn-beijing.aliyuncs.com/yunionio"
	DefaultVersion    = "latest"
	DefaultRegion     = "region0"
	DefaultZone       = "zone0"
	DefaultMysqlPort  = 3306
	DefaultMysqlUser  = "root"
	DefaultClass      = "local-path"
)

// Dameng is what the earlier operator could also give services for a database.
const (
	engineDameng  = "dameng"
	damengRefused = "dameng is not supported: the operator makes databases and accounts in MySQL or MariaDB only. " +
		"Move the data to one (spec.mysql), then set mysql or remove the field"
)

// Facts is what a cloud is resolved with, in addition to its resource.
type Facts struct {
	// Components is the catalogue.
	Components []component.Component
	// Owned is which fields of the spec are choices; nil means all that are there (a file that was never applied).
	Owned *Owned
	// LastImages are the defaults that were computed last, by component: see LastImages.
	LastImages map[string]string
	// Names are those of databases and accounts that this cloud has other ones for, see component.Renamed.
	Names map[string]string
	// Instance is the label that the objects of this cloud carry already; "" makes it from the cloud's name.
	Instance string
	// Address is the cloud's public address where its spec names none; "" leaves it without one.
	Address string
	// Images are complete references of images that are not the cloud's own, by the names the catalogue uses for them.
	Images map[string]string
}

// LastImages reads from the status of a cloud which images were defaults when it was last reconciled.
func LastImages(s *v1alpha1.OnecloudClusterStatus) map[string]string {
	last := make(map[string]string, len(s.Components))
	for _, c := range s.Components {
		if c.Image != "" && !c.Pinned {
			last[c.Name] = c.Image
		}
	}
	return last
}

// Cluster resolves a cloud. The error joins what is wrong with the cloud as a whole; what is wrong with one component is its Problem.
func Cluster(cr *v1alpha1.OnecloudCluster, f Facts) (component.Cluster, error) {
	spec, err := newView(&cr.Spec, f.Owned)
	if err != nil {
		return component.Cluster{}, err
	}
	c := component.Cluster{
		Name: cr.Name, Namespace: cmp.Or(cr.Namespace, "onecloud"), ID: f.Names[component.CloudID],
		Instance:     cmp.Or(f.Instance, v1alpha1.InstancePrefix+cr.Name),
		Region:       spec.text(DefaultRegion, "region"),
		Zone:         spec.text(DefaultZone, "zone"),
		Version:      spec.text(DefaultVersion, "version"),
		Product:      component.Product(spec.text(string(component.FullStack), "productVersion")),
		Profile:      component.Profile(spec.text(string(component.Small), "profile")),
		LoadBalancer: strings.Trim(cmp.Or(cr.Spec.LoadBalancerEndpoint, f.Address), "[]"),
		MysqlPort:    int(spec.number(DefaultMysqlPort, "mysql", "port")),
		StorageClass: cmp.Or(cr.Spec.StorageClassName, DefaultClass),
		Spec:         &cr.Spec,
		Components:   make(map[string]component.Resolved, len(f.Components)),
	}
	var errs []error
	if c.Edition, err = edition(cr.Annotations[v1alpha1.AnnotationEdition]); err != nil {
		errs = append(errs, err)
	}
	products := []component.Product{component.FullStack, component.CMP, component.Edge, component.LightEdge, component.AI}
	if !slices.Contains(products, c.Product) {
		errs = append(errs, fmt.Errorf("spec.productVersion: %q is none of %v", c.Product, products))
	}
	if cr.Spec.DBEngine == engineDameng {
		errs = append(errs, errors.New("spec.db_engine: "+damengRefused))
	}
	if cr.Spec.MySQL.Host == "" {
		errs = append(errs, errors.New("spec.mysql.host: name the database server"))
	}
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	images := newImages(spec, cr, &c, f)
	for _, k := range f.Components {
		c.Components[k.Name] = resolveOne(k.Renamed(f.Names), &c, spec, images)
	}
	return c, nil
}

func edition(annotation string) (component.Edition, error) {
	switch e := component.Edition(annotation); e {
	case "":
		return component.CE, nil
	case component.CE, component.CESupport, component.EE:
		return e, nil
	}
	return "", fmt.Errorf("metadata.annotations[%s]: %q is none of ce, ce/support, ee", v1alpha1.AnnotationEdition, annotation)
}

func resolveOne(k component.Component, c *component.Cluster, spec view, images images) component.Resolved {
	if w := &k.Workload; !among(w.Products, c.Product) {
		w.Kind = component.NoWorkload
	}
	r := component.Resolved{Component: k, Block: spec.block(k)}
	r.DisabledReason, r.Visible = disabledReason(k, c, spec)
	r.Enabled = r.DisabledReason == ""
	at, outer := k.SpecPath(), k.BlockPath()

	var errs []error
	var err error
	if k.Workload.Kind != component.NoWorkload {
		r.FullImage, r.Pinned, err = images.resolve(k.Name, k.Image, at)
		errs = append(errs, err)
	}
	for _, s := range k.Workload.Sidecars {
		if !among(s.Editions, c.Edition) || s.When != nil && !s.When(*c.Spec) {
			continue
		}
		if r.ContainerImages == nil {
			r.ContainerImages = map[string]string{}
		}
		r.ContainerImages[s.Name] = r.FullImage
		switch {
		case s.SpecKey != "":
			var pinned bool
			r.ContainerImages[s.Name], pinned, err = images.resolve(s.Name, s.Image, slices.Clip(strings.Split(s.SpecKey, ".")))
			errs = append(errs, err)
			if pinned {
				r.PinnedContainers = append(r.PinnedContainers, s.Name)
			}
		case s.Image.Name != "" || s.Image.Reference != "":
			r.ContainerImages[s.Name], err = images.beside(s.Name, s.Image, at)
			errs = append(errs, err)
		}
	}
	if r.Block.DBEngine == engineDameng && k.Database != nil {
		errs = append(errs, fmt.Errorf("spec.%s.db_engine: %s", strings.Join(outer, "."), damengRefused))
	}
	r.PullPolicy = spec.text(string(corev1.PullIfNotPresent), append(at, "imagePullPolicy")...)
	r.Replicas = replicas(k, c, spec)
	r.ReadReplicas = r.Block.SlaveReplicas
	r.Tolerations = defaultTolerations()
	if spec.chosen(append(outer, "tolerations")...) && len(r.Block.Tolerations) > 0 && !onceDefault(r.Block.Tolerations) {
		r.Tolerations = r.Block.Tolerations
	}
	if k.Storage != nil {
		r.StorageSize = spec.text(k.Storage.Size, append(outer, "requests", "storage")...)
		r.StorageClass = spec.text(c.StorageClass, append(outer, "storageClassName")...)
	}
	r.Schedule = spec.text(k.Workload.Schedule, append(outer, "schedule")...)
	r.Internal, r.NodePorts = ports(k, spec, outer)
	if err := errors.Join(errs...); err != nil {
		r.Problem = err.Error()
	}
	return r
}

// disabledReason returns why a component does not run, "" if it does; and whether it belongs to this cloud at all.
func disabledReason(k component.Component, c *component.Cluster, spec view) (why string, visible bool) {
	if !among(k.Editions, c.Edition) {
		return "not in edition " + string(c.Edition), false
	}
	if !among(k.Products, c.Product) {
		return "not in product " + string(c.Product), false
	}
	if why := k.Releases.Lacks(c.Version); why != "" {
		return why, false
	}
	if k.Gate != nil {
		if why := k.Gate(*c.Spec); why != "" {
			return why, false
		}
	}
	disable := append(k.BlockPath(), "disable")
	if spec.flag(k.OffByDefault, disable...) {
		if k.OffByDefault && !spec.chosen(disable...) {
			return "off by default", true
		}
		return "disabled in spec", true
	}
	return "", true
}

// among is true if a list of editions or products has one; an empty list means all.
func among[T comparable](list []T, one T) bool { return len(list) == 0 || slices.Contains(list, one) }

// The numbers of pods in profile ha.
const (
	copies  = 2
	members = 3
)

// replicas is how many pods a component has: as many as were chosen, or else what the profile gives it.
func replicas(k component.Component, c *component.Cluster, spec view) int32 {
	at := append(k.BlockPath(), cmp.Or(k.Workload.ReplicasKey, "replicas"))
	usual := int64(1)
	switch {
	case k.Workload.FixedMembers:
		if n, there := spec.get(at...); there && !spec.flag(k.OffByDefault, append(k.BlockPath(), "disable")...) {
			// Its members know each other: while it runs they stay as many as there are, whoever decided it.
			if n, ok := n.(int64); ok && n > 0 {
				return int32(n)
			}
		}
		if c.Profile == component.HA {
			usual = members
		}
	case c.Profile == component.HA && k.Several() && (!k.Workload.Locks || locked(c)):
		usual = copies
	}
	return max(1, int32(spec.number(usual, at...)))
}

// locked reports whether the locks of services outlast the loss of a member.
func locked(c *component.Cluster) bool {
	k := c.LockKeeper()
	return k.Enabled && k.Replicas >= members
}

// ports gives every port its number. A number is that of the Service, of the node and of the listener at once.
func ports(k component.Component, spec view, at []string) (internal bool, numbers map[string]int32) {
	numbers = map[string]int32{}
	for _, s := range k.Services() {
		for _, p := range s.Ports {
			numbers[s.NameSuffix+p.Name] = cmp.Or(p.NodePort, p.Port)
			if p.SpecKey == "" {
				continue
			}
			path := append(at, strings.Split(p.SpecKey, ".")...)
			if n := int32(spec.number(0, path...)); n > 0 {
				numbers[s.NameSuffix+p.Name] = n
			}
			internal = internal || spec.flag(false, append(path[:len(path)-1:len(path)-1], "internalOnly")...)
		}
	}
	return internal, numbers
}

func defaultTolerations() []corev1.Toleration {
	var out []corev1.Toleration
	for _, role := range []string{"control-plane", "controlplane", "master"} {
		out = append(out, corev1.Toleration{
			Key: "node-role.kubernetes.io/" + role, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	return out
}

// onceDefault reports whether tolerations are those that the earlier operator wrote into every block: a file saved from it has them, and
// they lack the taint of today.
func onceDefault(list []corev1.Toleration) bool {
	var earlier []corev1.Toleration
	for _, role := range []string{"master", "controlplane"} {
		earlier = append(earlier, corev1.Toleration{Key: "node-role.kubernetes.io/" + role, Effect: corev1.TaintEffectNoSchedule})
	}
	return slices.Equal(list, earlier)
}

// view reads the spec by path, and distinguishes defaults from choices.
type view struct {
	spec  *v1alpha1.OnecloudClusterSpec
	tree  map[string]any
	owned *Owned
}

func newView(spec *v1alpha1.OnecloudClusterSpec, owned *Owned) (view, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return view{}, fmt.Errorf("reading spec: %w", err)
	}
	return view{spec: spec, tree: tree, owned: owned}, nil
}

func (v view) block(k component.Component) *v1alpha1.ComponentSpec {
	if b := v.spec.Component(cmp.Or(k.SpecKey, k.Name)); b != nil {
		return b
	}
	return &v1alpha1.ComponentSpec{}
}

func (v view) get(path ...string) (any, bool) {
	field, _, err := unstructured.NestedFieldNoCopy(v.tree, path...)
	return field, err == nil && field != nil
}

// chosen reports whether a field is set and not owned by the defaults manager alone. A field without an owner is a choice: it is older
// than the tracking of owners.
func (v view) chosen(path ...string) bool {
	_, present := v.get(path...)
	return present && (v.owned == nil || v.owned.Has(path...))
}

// personal is chosen, less what the earlier operator wrote.
func (v view) personal(path ...string) bool {
	_, present := v.get(path...)
	return present && (v.owned == nil || v.owned.personal(path...))
}

// value returns a field if it is chosen, else the fallback. A zero value counts as chosen only if it is a boolean.
func value[T comparable](v view, fallback T, path ...string) T {
	var zero T
	field, _ := v.get(path...)
	chosen, ok := field.(T)
	if _, boolean := field.(bool); !ok || !v.chosen(path...) || chosen == zero && !boolean {
		return fallback
	}
	return chosen
}

func (v view) text(fallback string, path ...string) string { return value(v, fallback, path...) }
func (v view) number(fallback int64, path ...string) int64 { return value(v, fallback, path...) }
func (v view) flag(fallback bool, path ...string) bool     { return value(v, fallback, path...) }
