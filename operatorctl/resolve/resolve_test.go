// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

var thirdParty = map[string]string{"ocadm": "r.example.com/yunionio/ocadm:v9", "busybox": "docker.io/library/busybox:1.37.0-glibc"}

// cloud returns a CR with a spec in YAML.
func cloud(t *testing.T, spec string) *v1alpha1.OnecloudCluster {
	t.Helper()
	cr := &v1alpha1.OnecloudCluster{}
	cr.Name, cr.Namespace = "default", "onecloud"
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &cr.Spec))
	if cr.Spec.MySQL.Host == "" {
		cr.Spec.MySQL.Host = "10.0.0.5"
	}
	return cr
}

func facts() resolve.Facts {
	return resolve.Facts{Components: catalog.All(), Images: thirdParty}
}

func resolved(t *testing.T, cr *v1alpha1.OnecloudCluster, f resolve.Facts) component.Cluster {
	t.Helper()
	c, err := resolve.Cluster(cr, f)
	require.NoError(t, err)
	return c
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestImages(t *testing.T) {
	const ali = "registry.cn-beijing.aliyuncs.com/yunionio"
	for _, c := range []struct {
		name, edition, spec, component, want string
		pinned                               bool
	}{
		{"all defaults", "", ``, "keystone", ali + "/keystone:latest", false},
		{"version", "", `version: v4.0.4`, "keystone", ali + "/keystone:v4.0.4", false},
		{"repository of all", "", "{version: v1, imageRepository: r.example.com/x}", "region", "r.example.com/x/region:v1", false},
		{"registry with port", "", `{version: v1, imageRepository: "192.168.0.1:5000/y"}`, "region", "192.168.0.1:5000/y/region:v1", false},
		{"trailing slash", "", "{version: v1, imageRepository: r.example.com/x/}", "region", "r.example.com/x/region:v1", false},
		{"one component's repository and tag", "", `{version: v1, regionServer: {repository: "192.168.0.1:5000/yunionio", tag: lzx-dev}}`, "region",
			"192.168.0.1:5000/yunionio/region:lzx-dev", false},
		{"the others stay", "", `{version: v1, regionServer: {repository: "192.168.0.1:5000/yunionio", tag: lzx-dev}}`, "keystone", ali + "/keystone:v1", false},
		{"only tag", "", "{version: v1, keystone: {tag: t}}", "keystone", ali + "/keystone:t", false},
		{"only repository", "", "{version: v1, keystone: {repository: r.io/a/}}", "keystone", "r.io/a/keystone:v1", false},
		{"only name", "", "{version: v1, keystone: {imageName: k2}}", "keystone", ali + "/k2:v1", false},
		{"digest as tag", "", "{version: v1, keystone: {tag: '" + digest + "'}}", "keystone", ali + "/keystone@" + digest, false},
		{"image of a person", "", "{version: v1, keystone: {image: 'r.io/k:hotfix', tag: ignored}}", "keystone", "r.io/k:hotfix", true},
		{"image by digest", "", "{version: v1, keystone: {image: 'r.io:5000/k@" + digest + "'}}", "keystone", "r.io:5000/k@" + digest, true},
		{"image equal to the default", "", "{version: v1, keystone: {image: '" + ali + "/keystone:v1'}}", "keystone", ali + "/keystone:v1", false},
		{"fixed tag", "", "version: v1", "host-health", ali + "/host-health:v0.0.4", false},
		{"fixed tag changed", "", "{version: v1, hostagent: {HostHealth: {tag: v9}}}", "host-health", ali + "/host-health:v9", false},
		{"etcd has its own key", "", "{version: v1, etcd: {version: 3.5.13}}", "etcd", ali + "/etcd:3.5.13", false},
		{"the operator's own", "", "version: v1", "backup", "r.example.com/yunionio/ocadm:v9", false},
		{"the operator's own stays where it is", "", `{version: v1, imageRepository: "192.168.0.1:5000/y"}`, "backup", "r.example.com/yunionio/ocadm:v9", false},
		{"the operator's own from a mirror", "", "{backup: {repository: r.io/m}}", "backup", "r.io/m/ocadm:v9", false},
		{"ee", "ee", "version: v1", "region", ali + "/region-ee:v1", false},
		{"ee does not touch others", "ee", "version: v1", "keystone", ali + "/keystone:v1", false},
		{"ce/support", "ce/support", "version: v1", "apigateway", ali + "/apigateway-ee:v1", false},
		{"ce/support is not ee", "ce/support", "version: v1", "region", ali + "/region:v1", false},
		{"hyper", "", "{version: v1, useHyperImage: true}", "keystone", ali + "/cloudpods:v1", false},
		{"hyper beats ee", "ee", "{version: v1, useHyperImage: true}", "region", ali + "/cloudpods-ee:v1", false},
		{"hyper is not for all", "", "{version: v1, useHyperImage: true}", "climc", ali + "/climc:v1", false},
		{"a name beats hyper", "", "{version: v1, useHyperImage: true, keystone: {imageName: keystone}}", "keystone", ali + "/keystone:v1", false},
		{"a name beats ee", "ee", "{version: v1, web: {imageName: web}}", "web", ali + "/web:v1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cr := cloud(t, c.spec)
			if c.edition != "" {
				cr.Annotations = map[string]string{v1alpha1.AnnotationEdition: c.edition}
			}
			got := resolved(t, cr, facts()).Components[c.component]
			if got.FullImage != c.want || got.Pinned != c.pinned || got.Problem != "" {
				t.Errorf("got %s (pinned %v, problem %q), want %s (pinned %v)", got.FullImage, got.Pinned, got.Problem, c.want, c.pinned)
			}
		})
	}
}

func TestBadImageNamesItsField(t *testing.T) {
	got := resolved(t, cloud(t, "{keystone: {image: 'Not An Image'}}"), facts())
	if p := got.Components["keystone"].Problem; !strings.Contains(p, "spec.keystone") {
		t.Errorf("problem is %q", p)
	}
	if p := got.Components["region"].Problem; p != "" {
		t.Errorf("region suffers: %s", p)
	}
}

// owners returns managed fields by manager: fields as paths below spec.
func owners(t *testing.T, by map[string][]string) *resolve.Owned {
	t.Helper()
	var entries []metav1.ManagedFieldsEntry
	for manager, paths := range by {
		tree := map[string]any{}
		for _, p := range paths {
			fields := []string{"f:spec"}
			for f := range strings.SplitSeq(p, ".") {
				fields = append(fields, "f:"+f)
			}
			require.NoError(t, unstructured.SetNestedMap(tree, map[string]any{}, fields...))
		}
		raw, err := json.Marshal(tree)
		require.NoError(t, err)
		entries = append(entries, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(string(raw))})
	}
	o, err := resolve.NewOwned(&metav1.ObjectMeta{ManagedFields: entries})
	require.NoError(t, err)
	return o
}

// The owner of a field determines its meaning.
func TestOwnership(t *testing.T) {
	spec := "{version: v2, keystone: {image: 'r.io/keystone:v1', replicas: 3, publicService: {nodePort: 31500}}}"
	for _, c := range []struct {
		name   string
		by     map[string][]string
		last   string
		image  string
		number int32
		port   int32
	}{
		{"all ours: all defaults", map[string][]string{v1alpha1.ManagerDefaults: {"keystone.image", "keystone.replicas", "keystone.publicService.nodePort"}, "kubectl": {"version"}},
			"", resolve.DefaultRepository + "/keystone:v2", 1, 30500},
		{"all a person's", map[string][]string{"kubectl-edit": {"version", "keystone.image", "keystone.replicas", "keystone.publicService.nodePort"}},
			"", "r.io/keystone:v1", 3, 31500},
		{"a person's image that was the last default", map[string][]string{"kubectl": {"version", "keystone.image"}, v1alpha1.ManagerDefaults: {"keystone.replicas", "keystone.publicService.nodePort"}},
			"r.io/keystone:v1", resolve.DefaultRepository + "/keystone:v2", 1, 30500},
		{"the earlier operator chose no image, but its other values are kept",
			map[string][]string{v1alpha1.ManagerEarlier: {"keystone.image", "keystone.replicas"}, "kubectl": {"version"}, v1alpha1.ManagerDefaults: {"keystone.publicService.nodePort"}},
			"", resolve.DefaultRepository + "/keystone:v2", 3, 30500},
		{"nobody's, older than the tracking of owners: all choices", map[string][]string{"kubectl": {"version"}},
			"", "r.io/keystone:v1", 3, 31500},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := facts()
			f.Owned = owners(t, c.by)
			f.LastImages = map[string]string{"keystone": c.last}
			k := resolved(t, cloud(t, spec), f).Components["keystone"]
			if k.FullImage != c.image || k.Replicas != c.number || k.NodePorts["public"] != c.port {
				t.Errorf("got %s, %d replicas, port %d", k.FullImage, k.Replicas, k.NodePorts["public"])
			}
		})
	}
}

// A CR saved with all its images, edited in version or repository and applied again, updates every service; a real pin among them stays.
func TestSavedFileMoves(t *testing.T) {
	const old = "registry.example.com/old"
	for _, edit := range []string{"version: v2", "{version: v1, imageRepository: registry.example.com/new}"} {
		cr := cloud(t, edit)
		cr.Annotations = map[string]string{v1alpha1.AnnotationDefaultImages: old + ":v1"}
		for key, name := range map[string]string{
			"keystone": "keystone", "regionServer": "region", "scheduler": "scheduler", "glance": "glance", "logger": "logger", "climc": "climc", "web": "web",
		} {
			cr.Spec.Component(key).Image = old + "/" + name + ":v1"
		}
		cr.Spec.Hostagent.HostHealth.Image = old + "/host-health:v0.0.4"
		cr.Spec.Yunionconf.Image = old + "/yunionconf:hotfix"
		got := resolved(t, cr, facts())
		repository, version := resolve.DefaultRepository, "v2"
		if cr.Spec.ImageRepository != "" {
			repository, version = cr.Spec.ImageRepository, "v1"
		}
		for component, want := range map[string]string{
			"keystone": repository + "/keystone:" + version, "region": repository + "/region:" + version, "web": repository + "/web:" + version,
			"host-health": repository + "/host-health:v0.0.4", "yunionconf": old + "/yunionconf:hotfix",
		} {
			if r := got.Components[component]; r.FullImage != want {
				t.Errorf("%s: %s runs %s, want %s", edit, component, r.FullImage, want)
			}
		}
	}
}

func TestGates(t *testing.T) {
	for _, c := range []struct{ edition, spec, component, why string }{
		{"", "", "glance", ""},
		{"", "glance: {disable: true}", "glance", "disabled in spec"},
		{"", "glance: {disable: false}", "glance", ""},
		{"", "", "backup", "off by default"},
		{"", "backup: {disable: false}", "backup", ""},
		{"", "backup: {disable: true}", "backup", "disabled in spec"},
		{"", "productVersion: CMP", "host-health", "not in product CMP"},
		{"", "hostagent: {disable: true}", "host-health", "disabled in spec"},
	} {
		r := resolved(t, cloud(t, c.spec), facts()).Components[c.component]
		if r.DisabledReason != c.why || r.Enabled != (c.why == "") {
			t.Errorf("%s with %s: enabled %v, %q", c.component, c.spec, r.Enabled, r.DisabledReason)
		}
	}
}

func TestRefusedClouds(t *testing.T) {
	for spec, want := range map[string]string{
		"productVersion: Baremetal": "spec.productVersion",
		"productVersion: Nonsense":  "spec.productVersion",
	} {
		if _, err := resolve.Cluster(cloud(t, spec), facts()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	cr := cloud(t, "")
	cr.Annotations = map[string]string{v1alpha1.AnnotationEdition: "gold"}
	cr.Spec.MySQL.Host = ""
	_, err := resolve.Cluster(cr, facts())
	for _, want := range []string{v1alpha1.AnnotationEdition, "spec.mysql.host"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

// leaves returns the paths of all values below a map.
func leaves(at string, m map[string]any) []string {
	var out []string
	for k, v := range m {
		if child, ok := v.(map[string]any); ok {
			out = append(out, leaves(at+k+".", child)...)
		} else {
			out = append(out, at+k)
		}
	}
	return out
}

func TestDefaults(t *testing.T) {
	cr := cloud(t, "{version: v1, region: cn, keystone: {replicas: 2}, glance: {disable: true}, regionServer: {image: 'r.io/mine:1'}, logger: {tolerations: []}}")
	theirs := []string{"version", "region", "keystone.replicas", "glance.disable", "regionServer.image", "logger.tolerations"}
	owned := owners(t, map[string][]string{"kubectl": theirs})
	f := facts()
	f.Owned = owned
	c := resolved(t, cr, f)
	if none, usual := c.Components["logger"].Tolerations, c.Components["notify"].Tolerations; len(none) > 0 || len(usual) != 3 {
		t.Errorf("tolerations %v and %v", none, usual)
	}
	u, err := resolve.Defaults(cr, c, owned)
	require.NoError(t, err)
	for path, want := range map[string]string{
		"version": "", "region": "", "keystone.replicas": "", "regionServer.image": "", "glance.disable": "", "logger.tolerations": "", // a user's
		"zone": "zone0", "productVersion": "FullStack", "imageRepository": resolve.DefaultRepository, "mysql.port": "3306", "deletionPolicy": "Retain",
		"keystone.image": resolve.DefaultRepository + "/keystone:v1", "keystone.publicService.nodePort": "30500",
		"regionServer.replicas": "1", "glance.image": resolve.DefaultRepository + "/glance:v1",
		"glance.requests.storage": "100G", "glance.storageClassName": "local-path",
		"backup.disable": "true", "backup.schedule": "0 2 * * *", "hostagent.HostHealth.image": resolve.DefaultRepository + "/host-health:v0.0.4",
		"etcd.size": "1", "etcd.clientNodePort": "30379",
	} {
		value, found, err := unstructured.NestedFieldNoCopy(u.Object, append([]string{"spec"}, strings.Split(path, ".")...)...)
		require.NoError(t, err)
		got := ""
		if found {
			got = fmt.Sprint(value)
		}
		if got != want {
			t.Errorf("spec.%s: %q, want %q", path, got, want)
		}
	}
	// Applied again with the result in place and owned by the defaults manager, the fields do not change.
	spec, _, err := unstructured.NestedMap(u.Object, "spec")
	require.NoError(t, err)
	owned = owners(t, map[string][]string{
		"kubectl":                theirs,
		v1alpha1.ManagerDefaults: leaves("", spec),
	})
	f.Owned = owned
	full := cr.DeepCopy()
	b, err := json.Marshal(u.Object["spec"])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &full.Spec))
	again, err := resolve.Defaults(full, resolved(t, full, f), owned)
	require.NoError(t, err)
	if d := cmp.Diff(u.Object, again.Object); d != "" {
		t.Errorf("the second time differs:\n%s", d)
	}
}
