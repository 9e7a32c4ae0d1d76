// SPDX-License-Identifier: Apache-2.0

// Package resolve turns the resource of a cloud into its complete description: defaults, enabled components, images, ports. It is pure: it neither reads
// nor writes anything but its arguments.
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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

const (
	DefaultRepository = "registry.cn-beijing.aliyuncs.com/yunionio"
	DefaultVersion    = "latest"
	DefaultRegion     = "region0"
	DefaultZone       = "zone0"
	DefaultMysqlPort  = 3306
	DefaultMysqlUser  = "root"
	DefaultClass      = "local-path"
)

// Dameng is a database that the earlier operator also supported.
const (
	engineDameng  = "dameng"
	damengRefused = "dameng is not supported: the operator creates databases and accounts only in MySQL or MariaDB. " +
		"Move the data to one of them (spec.mysql), then set mysql or remove the field"
)

// Facts holds what resolving a cloud needs in addition to its resource.
type Facts struct {
	// Components is the catalog.
	Components []component.Component
	// Owned records which fields of the spec are choices; nil means all that are set (a file that was never applied).
	Owned *Owned
	// LastImages are the default images of the last reconciliation by component, see func LastImages.
	LastImages map[string]string
	// Names are this cloud's own names of databases and accounts, see component.Renamed.
	Names map[string]string
	// Instance is the instance label that the objects of this cloud already have; if "", it is derived from the cloud's name.
	Instance string
	// Address is the cloud's public address if its spec sets none; "" means no address.
	Address string
	// Images are the complete references of third-party images, by their names in the catalog.
	Images map[string]string
}

// LastImages returns the default images of the last reconciliation, read from the status of a cloud.
func LastImages(s *v1alpha1.OnecloudClusterStatus) map[string]string {
	last := make(map[string]string, len(s.Components))
	for _, c := range s.Components {
		if c.Image != "" && !c.Pinned {
			last[c.Name] = c.Image
		}
	}
	return last
}

// Cluster resolves a cloud. The error joins the problems of the cloud as a whole; those of a component are in its Problem.
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
		errs = append(errs, fmt.Errorf("spec.productVersion: %q is not one of %v", c.Product, products))
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
	return "", fmt.Errorf("metadata.annotations[%s]: %q is not one of ce, ce/support, ee", v1alpha1.AnnotationEdition, annotation)
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
	if spec.tolerates(r.Block, outer) {
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

// disabledReason returns why a component does not run, "" if it does, and whether the component belongs to this cloud at all.
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

// among reports whether a list of editions or products includes one; an empty list includes all.
func among[T comparable](list []T, one T) bool { return len(list) == 0 || slices.Contains(list, one) }

// The numbers of pods in profile ha.
const (
	copies  = 2
	members = 3
)

// replicas returns the number of pods of a component: the chosen number, or else that of the profile.
func replicas(k component.Component, c *component.Cluster, spec view) int32 {
	at := append(k.BlockPath(), cmp.Or(k.Workload.ReplicasKey, "replicas"))
	usual := int64(1)
	switch {
	case k.Workload.FixedMembers:
		if n, there := spec.get(at...); there && !spec.flag(k.OffByDefault, append(k.BlockPath(), "disable")...) {
			// The members know each other, so their number stays the same while the component runs, whoever set it.
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

// locked reports whether the locks of services survive the loss of a member.
func locked(c *component.Cluster) bool {
	k := c.LockKeeper()
	return k.Enabled && k.Replicas >= members
}

// ports assigns a number to every port. The Service, the node and the listener share this number.
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
	return lists.Map([]string{"control-plane", "controlplane", "master"}, func(role string) corev1.Toleration {
		return corev1.Toleration{Key: "node-role.kubernetes.io/" + role, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	})
}

// tolerates reports whether a user chose the tolerations of a component, perhaps none: an empty list.
func (v view) tolerates(b *v1alpha1.ComponentSpec, outer []string) bool {
	return b.Tolerations != nil && (v.owned == nil || v.owned.Has(append(outer, "tolerations")...)) && !onceDefault(b.Tolerations)
}

// onceDefault reports whether tolerations are those that the earlier operator wrote into every block. A file saved from it has them, but they lack
// today's taint.
func onceDefault(list []corev1.Toleration) bool {
	return slices.Equal(list, lists.Map([]string{"master", "controlplane"}, func(role string) corev1.Toleration {
		return corev1.Toleration{Key: "node-role.kubernetes.io/" + role, Effect: corev1.TaintEffectNoSchedule}
	}))
}

// view reads the spec by path and distinguishes defaults from choices.
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

// chosen reports whether a field is set and not owned by the defaults manager alone. A field without an owner is a choice: it predates the tracking of
// owners.
func (v view) chosen(path ...string) bool {
	_, present := v.get(path...)
	return present && (v.owned == nil || v.owned.Has(path...))
}

// personal is like chosen, but excludes fields that the earlier operator wrote.
func (v view) personal(path ...string) bool {
	_, present := v.get(path...)
	return present && (v.owned == nil || v.owned.personal(path...))
}

// value returns a chosen field, or else the fallback. A zero value counts as chosen only if it is a boolean.
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
