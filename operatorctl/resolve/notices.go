// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Notice is a field below spec that is set but has no effect, and why.
type Notice struct {
	Field, Why string
	// Unknown is true if there is no such field.
	Unknown bool
}

func (n Notice) String() string { return "spec." + n.Field + ": " + n.Why }

// idle lists fields that are accepted in existing YAML but have no effect, including the fields below them. Fields without a reason need no notice: the
// earlier operator wrote them itself.
var idle = map[string]string{
	"clickhouse.tls":                "TLS to ClickHouse is not supported",
	"db_engine":                     "", // only mysql is accepted
	"services":                      "no release uses it",
	"dameng":                        "Dameng is not supported: the services store their data in the server of spec.mysql",
	"etcd.paused":                   "name etcd in the annotation " + v1alpha1.AnnotationPaused + " of the cloud",
	"etcd.pod":                      "set nodeSelector, affinity, tolerations, requests and limits in spec.etcd itself",
	"etcd.TLS":                      "the operator issues the certificates of etcd",
	"etcd.createdSecrets":           "",
	"etcd.enableTls":                "etcd and its clients always use TLS",
	"keystone.disableTLS":           "keystone and its clients always use TLS",
	"cloudmon.CloudmonPingDuration": "no release uses it",
	"notify.plugins":                "",
	"lbagent.OvnController":         "load-balancer nodes use the controller of spec.hostagent.OvnController",
	"telegraf.initContainerImage":   "",
}

// fits lists fields that apply to some kinds of components only.
var fits = map[string]struct {
	why string
	is  func(component.Component) bool
}{
	"replicas": {"the number of pods of the component cannot be set", func(c component.Component) bool {
		k := c.WorkloadKind()
		return (k == component.Deployment || k == component.StatefulSet) && c.Workload.ReplicasKey == ""
	}},
	"slave_replicas":      {"the component has no read replicas", func(c component.Component) bool { return c.Workload.ReadReplicas }},
	"zones":               {"the component runs once for all zones", func(c component.Component) bool { return c.Workload.PerZone }},
	"updateStrategy":      {"it applies only to a DaemonSet", isDaemonSet},
	"maxUnavailable":      {"it applies only to a DaemonSet", isDaemonSet},
	"maxUnavailableCount": {"it applies only to a DaemonSet", isDaemonSet},
	"schedule":            {"it applies only to a CronJob", func(c component.Component) bool { return c.Workload.Kind == component.CronJob }},
	"storageClassName":    {"the component has no volume", hasVolume},
	"requests.storage":    {"the component has no volume", hasVolume},
	"limits.storage":      {"a volume has only a size: requests.storage", never},
	"service.nodePort":    {"the component has no such port", hasPort},
	"service.internalOnly": {"the component has no such port on the nodes",
		func(c component.Component) bool { return hasPort(c) && !c.Service.ClusterIP && !c.Service.Headless }},
	"db_engine": {"", never},
}

func isDaemonSet(c component.Component) bool { return c.Workload.Kind == component.DaemonSet }
func hasVolume(c component.Component) bool   { return c.Storage != nil }
func never(component.Component) bool         { return false }

func hasPort(c component.Component) bool {
	return c.Service != nil && slices.ContainsFunc(c.Service.Ports, func(p component.Port) bool { return p.SpecKey == "service.nodePort" })
}

// Unscalable returns why a component cannot have a number of pods, "" if it can.
func Unscalable(catalog []component.Component, c component.Component, replicas int32) string {
	if _, why, is := Idle(catalog, append(c.SpecPath(), "replicas")); is {
		return why
	}
	if replicas > 1 {
		return c.Single
	}
	return ""
}

// Idle reports whether a field, a path below spec, has no effect. It returns the whole field without effect and the reason, which is empty if the field
// needs no notice.
func Idle(catalog []component.Component, path []string) (field, why string, idleField bool) {
	for i := range path {
		field = strings.Join(path[:i+1], ".")
		if why, is := idle[field]; is {
			return field, why, true
		}
	}
	spec := &v1alpha1.OnecloudClusterSpec{}
	of := func(c component.Component) bool { return c.SpecKey == path[0] }
	rest := path[1:]
	if path[0] == "components" && len(path) > 1 {
		of = func(c component.Component) bool { return c.SpecKey == "" && c.Name == path[1] }
		if rest = path[2:]; !slices.ContainsFunc(catalog, of) {
			return strings.Join(path[:2], "."), "this component does not exist", true
		}
	} else if spec.Component(path[0]) == nil {
		return "", "", false
	}
	if len(path) > 2 && spec.Container(path[0]+"."+path[1]) != nil {
		rest = rest[1:]
		if strings.HasSuffix(field, ".storage") {
			return field, "a container has no volume of its own", true
		}
	}
	f, some := fits[strings.Join(rest, ".")]
	if some && !slices.ContainsFunc(catalog, func(c component.Component) bool { return of(c) && f.is(c) }) {
		return field, f.why, true
	}
	return "", "", false
}

// Notices returns the fields that a user has set and that have no effect.
func Notices(cr *v1alpha1.OnecloudCluster, f Facts) ([]Notice, error) {
	v, err := newView(&cr.Spec, f.Owned)
	if err != nil {
		return nil, err
	}
	found := map[string]Notice{}
	walk(nil, v.tree, func(path []string, value any) {
		if !v.personal(path...) { // most fields are defaults
			return
		}
		field, why, is := Idle(f.Components, path)
		if !is || why == "" || field == "etcd.enableTls" && value == true {
			return
		}
		found[field] = Notice{Field: field, Why: "accepted, without effect: " + why}
	})
	for _, c := range f.Components {
		if b := v.block(c); c.Workload.PerZone {
			for _, zone := range b.Zones {
				if field := c.SpecKey + ".zones"; !slices.Contains(cr.Spec.CustomZones, zone) {
					found[field+zone] = Notice{Field: field, Why: fmt.Sprintf("accepted, without effect: zone %q is not in spec.customZones", zone)}
				}
			}
		}
	}
	for _, c := range f.Components {
		why := c.Releases.Lacks(v.text(DefaultVersion, "version"))
		_, given := v.tree[c.SpecKey]
		if c.Releases.Last != "" && why != "" && given && v.personal(c.SpecKey) {
			found[c.SpecKey] = Notice{Field: c.SpecKey, Why: "accepted, without effect: " + why}
		}
	}
	for _, key := range unknownKeys(cr.ManagedFields) {
		why := "unknown, without effect"
		if meant := Meant(key, f.Components); meant != "" {
			why += fmt.Sprintf("; did you mean spec.%s?", meant)
		}
		found[key] = Notice{Field: key, Why: why, Unknown: true}
	}
	return lists.Map(slices.Sorted(maps.Keys(found)), func(k string) Notice { return found[k] }), nil
}

// walk visits every nonzero value; a list is one value.
func walk(path []string, v any, visit func([]string, any)) {
	m, isMap := v.(map[string]any)
	for k, child := range m {
		walk(append(path[:len(path):len(path)], k), child, visit)
	}
	// A false flag matters only if its default may be true.
	if !isMap && (!engine.Empty(v) || v == false && path[len(path)-1] == "enableTls") {
		visit(path, v)
	}
}

// unknownKeys returns the keys below spec that match no field. The API server keeps them, and the Go type drops them, but the managed fields still
// record them.
func unknownKeys(entries []metav1.ManagedFieldsEntry) []string {
	known := v1alpha1.SpecKeys()
	unknown := map[string]bool{}
	for _, e := range entries {
		set, err := engine.FieldsOf(e)
		if e.Subresource != "" || err != nil { // NewOwned has reported it
			continue
		}
		spec := "spec"
		set.WithPrefix(fieldpath.PathElement{FieldName: &spec}).Iterate(func(p fieldpath.Path) {
			if n := p[0].FieldName; n != nil && !known[*n] {
				unknown[*n] = true
			}
		})
	}
	return slices.Sorted(maps.Keys(unknown))
}

// Meant suggests the path of the field below spec that is meant by a wrong key, "" if none is similar. Users often write the name of a component, as
// status shows it, instead of its key.
func Meant(key string, catalog []component.Component) string {
	paths := lists.Index(catalog, func(c component.Component) (string, string) { return c.Name, strings.Join(c.SpecPath(), ".") })
	if path, is := paths[key]; is && path != key {
		return path
	}
	if i := strings.LastIndex(key, "."); i >= 0 {
		near, ok := nearest.To(key[i+1:], v1alpha1.KeysBelow(key[:i]))
		if !ok {
			return ""
		}
		return key[:i+1] + near
	}
	near, _ := nearest.To(key, slices.Concat(slices.Sorted(maps.Keys(v1alpha1.SpecKeys())), slices.Sorted(maps.Keys(paths))))
	return cmp.Or(paths[near], near)
}
