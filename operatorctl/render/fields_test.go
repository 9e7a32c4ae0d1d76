// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// elsewhere lists fields whose effect is not in the rendered objects.
var elsewhere = map[string]string{
	"mysql.host":                   "also in every DSN; given in each case",
	"mysql.username":               "the operator's connection to the database",
	"mysql.password":               "the operator's connection to the database",
	"mysql.passwordSecretRef":      "the operator's connection to the database",
	"mysql.tls.ca":                 "the operator's connection to the database, and that of the backup where the mode verifies",
	"mysql.movedFrom":              "lets mysql.host change in the same step",
	"clickhouse.movedFrom":         "none; only mysql moves",
	"backup.keep":                  "read by the pods of backup",
	"backup.recipients":            "read by the pods of backup",
	"clickhouse.username":          "the operator's connection to ClickHouse",
	"clickhouse.password":          "the operator's connection to ClickHouse",
	"clickhouse.passwordSecretRef": "the operator's connection to ClickHouse",
	"minio.mode":                   "what kubeserver is asked to install",
	"monitorStack.minio":           "what kubeserver is asked to install",
	"monitorStack.grafana":         "what kubeserver is asked to install",
	"monitorStack.loki":            "what kubeserver is asked to install",
	"monitorStack.prometheus":      "what kubeserver is asked to install",
	"monitorStack.thanos":          "what kubeserver is asked to install",
	"deletionPolicy":               "what becomes of the data when the cloud is deleted",
	"certSANs":                     "names in the certificates",
	"keystone.bootstrapPassword":   "Secret <cloud>-credentials",
	"machines.settings":            "the bootstrap data of machines: package machine tests each setting",
	"customZones":                  "zones in the service region; with zones of a block, its twins",
}

// unlike holds values for fields of this name, where the type does not suffice.
var unlike = map[string]any{
	"db_engine": "mysql", "productVersion": "CMP", "imagePullPolicy": "Always", "updateStrategy": "OnDelete", "schedule": "5 4 * * *",
	"storage": "7Gi", "telegrafConfigDir": "/etc/elsewhere", "deletionPolicy": "Delete", "version": "v9", "tag": "v9",
	"zones": []any{"zone1"}, "maxUnavailable": 7, "maxUnavailableCount": 7, "size": 3, "mode": "standalone", "defaultQemuVersion": "1.2.3",
	"etcdBackendQuotaSize": 4096, "hostCpuPassthrough": false, "profile": "ha",
}

// everything returns a cloud in which every possible component runs.
func everything() *v1alpha1.OnecloudCluster {
	cr := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "default", Namespace: "onecloud", Annotations: map[string]string{v1alpha1.AnnotationEdition: "ee"},
	}}
	s := &cr.Spec
	s.MySQL.Host, s.MySQL.Password, s.CustomZones = "db", "p", []string{"zone1"}
	s.Minio.Enable, s.MonitorStack.Disable, s.Clickhouse = true, new(false), v1alpha1.DatabaseServer{Host: "ch", Username: "u", Password: "p"}
	s.EnableCloudNet, s.EnableS3Gateway, s.Telegraf.EnableRaidPlugin = true, true, true
	for _, c := range catalog.All() {
		key, _, _ := strings.Cut(c.SpecKey, ".")
		if b := s.Component(key); b != nil && c.OffByDefault {
			b.Disable = new(false)
		}
	}
	return cr
}

// text renders a cloud to a single text. of limits it to the components of a block, "" means all.
func text(t *testing.T, tree map[string]any, of string) string {
	t.Helper()
	b, err := json.Marshal(tree)
	require.NoError(t, err)
	cr := &v1alpha1.OnecloudCluster{}
	require.NoError(t, json.Unmarshal(b, cr))
	cluster := described(t, cr)
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	all := map[string]any{}
	for name, r := range cluster.Components {
		if key, _, _ := strings.Cut(r.SpecKey, "."); !r.Enabled || of != "" && key != of {
			continue
		}
		o, err := render.Component(r, in)
		require.NoError(t, err)
		all[name] = []any{render.List(o), r.Endpoints}
	}
	if b, err = json.Marshal(all); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// leaf is a field of the spec and a value other than its default.
type leaf struct {
	path  []string
	value any
}

func leaves(path []string, t reflect.Type) []leaf {
	last := ""
	if len(path) > 0 {
		last = path[len(path)-1]
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v, ok := unlike[last]; ok {
		return []leaf{{path, v}}
	}
	raw := map[string]any{
		"affinity": map[string]any{"podAffinity": map[string]any{}}, "dnsConfig": map[string]any{"searches": []any{"example.com"}},
	}
	switch t {
	case reflect.TypeFor[runtime.RawExtension]():
		if v, ok := raw[last]; ok {
			return []leaf{{path, v}}
		}
		return []leaf{{path, map[string]any{"x": "y"}}}
	case reflect.TypeFor[apiresource.Quantity]():
		return []leaf{{path, "77m"}}
	case reflect.TypeFor[v1alpha1.MachineSettings]():
		return []leaf{{path, map[string]any{"offline": true}}}
	case reflect.TypeFor[v1alpha1.SecretKeyRef]():
		return []leaf{{path, map[string]any{"name": "a", "key": "b"}}}
	case reflect.TypeFor[[]corev1.Toleration]():
		return []leaf{{path, []any{map[string]any{"key": "x", "operator": "Exists"}}}}
	case reflect.TypeFor[[]corev1.LocalObjectReference]():
		return []leaf{{path, []any{map[string]any{"name": "x"}}}}
	case reflect.TypeFor[[]v1alpha1.DNSProxy]():
		return []leaf{{path, []any{map[string]any{"from": "a", "to": []any{"b"}}}}}
	case reflect.TypeFor[[]v1alpha1.NamedService]():
		return []leaf{{path, []any{map[string]any{"name": "a"}}}}
	}
	switch t.Kind() {
	case reflect.Struct:
		var out []leaf
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				out = append(out, leaves(path, f.Type)...)
			} else {
				out = append(out, leaves(append(slices.Clone(path), name), f.Type)...)
			}
		}
		return out
	case reflect.Bool:
		return []leaf{{path, true}}
	case reflect.Int32, reflect.Int64:
		return []leaf{{path, 31234}}
	case reflect.String:
		return []leaf{{path, "else"}}
	case reflect.Slice:
		return []leaf{{path, []any{"else"}}}
	case reflect.Map:
		if t.Elem().Kind() == reflect.String {
			return []leaf{{path, map[string]any{"a": "b"}}}
		}
	}
	return nil // spec.components: blocks like the others
}

// TestEveryFieldHasAnEffect sets every field of the spec, one after another, and expects an effect: in the rendered objects, in the list of fields that
// act elsewhere, or as a notice that there is none.
func TestEveryFieldHasAnEffect(t *testing.T) {
	b, err := json.Marshal(everything())
	require.NoError(t, err)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(b, &tree))
	usual := map[string]string{"": text(t, tree, "")} // as rendered without the change, by block
	covered := 0
	for _, l := range leaves(nil, reflect.TypeFor[v1alpha1.OnecloudClusterSpec]()) {
		name := strings.Join(l.path, ".")
		if _, ok := elsewhere[name]; ok {
			continue
		}
		changed := maps.Clone(tree)
		base := inReleaseOf(tree, l.path[0])
		changed["spec"] = with(base["spec"].(map[string]any), l.path, l.value)
		block := l.path[0]
		if (&v1alpha1.OnecloudClusterSpec{}).Component(block) == nil {
			block = "" // it may affect anything
		}
		if _, known := usual[block]; !known {
			usual[block] = text(t, base, block)
		}
		acts := text(t, changed, block) != usual[block]
		_, _, idle := resolve.Idle(catalog.All(), l.path)
		switch {
		case acts && idle:
			t.Errorf("spec.%s is said to be without effect, and has one", name)
		case !acts && !idle && text(t, changed, "") == usual[""]:
			t.Errorf("spec.%s is accepted and has no effect, and no notice says so: make it work, or put it into the table of package resolve", name)
		}
		covered++
	}
	if covered < 1500 {
		t.Errorf("only %d fields were looked at", covered)
	}
}

// inReleaseOf returns the cloud in a release that has the block's component.
func inReleaseOf(tree map[string]any, block string) map[string]any {
	for _, c := range catalog.All() {
		if c.SpecKey == block && c.Releases.Last != "" {
			older := maps.Clone(tree)
			older["spec"] = with(tree["spec"].(map[string]any), []string{"version"}, c.Releases.Last+".0")
			return older
		}
	}
	return tree
}

// with sets a value in a copy.
func with(m map[string]any, path []string, v any) map[string]any {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]any{}
	}
	if len(path) == 1 {
		if old, ok := out[path[0]].(bool); ok && v == old {
			v = !old
		}
		out[path[0]] = v
		return out
	}
	inner, _ := out[path[0]].(map[string]any)
	out[path[0]] = with(inner, path[1:], v)
	return out
}

// An error in a block names the block where it is, also that of a component without a key of its own, and of a container.
func TestErrorInABlockNamesIt(t *testing.T) {
	cluster := described(t, everything())
	for _, c := range cluster.Components {
		if c.Workload.Kind == component.NoWorkload || c.Workload.Kind == "" {
			continue
		}
		c.Block = &v1alpha1.ComponentSpec{Affinity: &runtime.RawExtension{Raw: []byte(`{"nodeAfinity":{}}`)}}
		_, err := render.Component(c, component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
		if want := "spec." + strings.Join(c.BlockPath(), ".") + ".affinity: "; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", c.Name, err, want)
		}
	}
}

// TestLowLimits: a limit below the default request lowers that request, as Kubernetes does without a request. Otherwise the API server refuses the pod.
func TestLowLimits(t *testing.T) {
	cr := everything()
	low := &v1alpha1.ResourceList{CPU: new(apiresource.MustParse("5m")), Memory: new(apiresource.MustParse("32Mi"))}
	for _, block := range []string{"glance", "regionServer", "telegraf"} {
		cr.Spec.Component(block).Limits = low
	}
	cr.Spec.Glance.Requests = &v1alpha1.ResourceList{CPU: new(apiresource.MustParse("2m"))}
	cluster := described(t, cr)
	for _, name := range []string{"glance", "region", "telegraf"} {
		o, err := render.Component(cluster.Components[name], component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
		require.NoError(t, err)
		pod, _ := component.PodOf(o.Workload)
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for resource, limit := range c.Resources.Limits {
				if request := c.Resources.Requests[resource]; request.Cmp(limit) > 0 || name == "glance" && resource == corev1.ResourceCPU && request.String() != "2m" {
					t.Errorf("%s: container %s requests %s of %s, with a limit of %s", name, c.Name, &request, resource, &limit)
				}
			}
		}
	}
}
