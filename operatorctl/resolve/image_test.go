// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// settings are all inputs to the image of region.
type settings struct {
	image, repository, name, tag string
	imageRepository, version     string
	hyper                        bool
	edition                      string
}

// want states the rule in another way than the code: the most specific setting wins, part by part, unless the whole image is given.
func (s settings) want() string {
	if s.image != "" {
		return s.image
	}
	first := func(all ...string) string {
		return all[slices.IndexFunc(all, func(s string) bool { return s != "" })]
	}
	ee := s.edition == "ee"
	own := map[bool]map[bool]string{false: {false: "region", true: "region-ee"}, true: {false: "cloudpods", true: "cloudpods-ee"}}[s.hyper][ee]
	tag := first(s.tag, s.version, "latest")
	separator := ":"
	if strings.Contains(tag, "sha256:") {
		tag, separator = strings.TrimPrefix(tag, "@"), "@"
	}
	return strings.TrimSuffix(first(s.repository, s.imageRepository, "registry.cn-beijing.aliyuncs.com/yunionio"), "/") + "/" + first(s.name, own) + separator + tag
}

func (s settings) cloud() *v1alpha1.OnecloudCluster {
	cr := &v1alpha1.OnecloudCluster{}
	cr.Name, cr.Namespace = "default", "onecloud"
	cr.Spec.MySQL.Host = "10.0.0.5"
	cr.Spec.ImageRepository, cr.Spec.Version, cr.Spec.UseHyperImage = s.imageRepository, s.version, s.hyper
	cr.Spec.RegionServer.ContainerSpec = v1alpha1.ContainerSpec{Image: s.image, Repository: s.repository, ImageName: s.name, Tag: s.tag}
	if s.edition != "" {
		cr.Annotations = map[string]string{v1alpha1.AnnotationEdition: s.edition}
	}
	return cr
}

func combinations(each func(settings)) {
	for _, image := range []string{"", "r.io:5000/mine/region:hotfix", "region@" + digest} {
		for _, repository := range []string{"", "r.io/x", "192.168.0.1:5000/yunionio", "localhost:5000", "r.io/x/"} {
			for _, name := range []string{"", "other"} {
				for _, tag := range []string{"", "lzx-dev", digest, "@" + digest} {
					for _, imageRepository := range []string{"", "10.0.0.1:5000/y", "r.io/all/"} {
						for _, version := range []string{"", "v4.0.4"} {
							for _, hyper := range []bool{false, true} {
								for _, edition := range []string{"", "ee"} {
									each(settings{image, repository, name, tag, imageRepository, version, hyper, edition})
								}
							}
						}
					}
				}
			}
		}
	}
}

// All combinations of image settings, and all containers of the pod: init containers follow.
func TestEveryCombinationOfImageSettings(t *testing.T) {
	wanted := []string{"keystone", "region", "etcd"} // region's configuration depends on the others
	all := slices.DeleteFunc(catalog.All(), func(c component.Component) bool { return !slices.Contains(wanted, c.Name) })
	n := 0
	combinations(func(s settings) {
		n++
		c, err := resolve.Cluster(s.cloud(), resolve.Facts{Components: all})
		require.NoError(t, err)
		o, err := render.Component(c.Components["region"], component.Inputs{Cluster: c, Credentials: component.Placeholders(c)})
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		d, ok := o.Workload.(*appsv1.Deployment)
		if !ok || len(d.Spec.Template.Spec.InitContainers) == 0 {
			t.Fatalf("region has no init container any more: use another component")
		}
		for _, k := range append(slices.Clone(d.Spec.Template.Spec.InitContainers), d.Spec.Template.Spec.Containers...) {
			if k.Image != s.want() {
				t.Errorf("%+v: container %s runs %s, want %s", s, k.Name, k.Image, s.want())
			}
		}
		if pinned := c.Components["region"].Pinned; pinned != (s.image != "") {
			t.Errorf("%+v: pinned is %v", s, pinned)
		}
	})
	t.Logf("%d combinations", n)
}

// Every container of every component follows the registry and, unless it is a third-party image, the version.
func TestEveryContainerFollowsTheCloud(t *testing.T) {
	for _, edition := range []string{"ce", "ee"} {
		at := func(repository, version string) map[string]string {
			cr := settings{imageRepository: repository, version: version, edition: edition}.cloud()
			c := resolved(t, cr, facts())
			images := map[string]string{}
			for name, r := range c.Components {
				o, err := render.Component(r, component.Inputs{Cluster: c, Credentials: component.Placeholders(c)})
				require.NoError(t, err)
				for _, k := range containers(o) {
					images[name+"/"+k.Name] = k.Image
				}
			}
			return images
		}
		before, after := at("r.io/a", "v1"), at("192.168.0.1:5000/b", "v2")
		fixed := 0
		for k, image := range before {
			now := after[k]
			last := image[strings.LastIndex(image, "/")+1:]
			switch {
			case strings.HasPrefix(k, "backup/"): // MariaDB's own
			case !strings.HasPrefix(image, "r.io/a/") || !strings.HasPrefix(now, "192.168.0.1:5000/b/"):
				t.Errorf("%s: %s became %s", k, image, now)
			case now == "192.168.0.1:5000/b/"+last && !strings.HasSuffix(last, ":v1"):
				fixed++
			case now != "192.168.0.1:5000/b/"+strings.TrimSuffix(last, ":v1")+":v2":
				t.Errorf("%s: %s became %s", k, image, now)
			}
		}
		if len(before) < 50 || fixed == 0 || fixed > 20 {
			t.Errorf("%d containers, %d with a tag of their own", len(before), fixed)
		}
	}
}

func containers(o component.Objects) []corev1.Container {
	var spec corev1.PodSpec
	switch w := o.Workload.(type) {
	case *appsv1.Deployment:
		spec = w.Spec.Template.Spec
	case *appsv1.DaemonSet:
		spec = w.Spec.Template.Spec
	case *appsv1.StatefulSet:
		spec = w.Spec.Template.Spec
	}
	return append(slices.Clone(spec.InitContainers), spec.Containers...)
}

// saveImages writes into a spec the images that "kubectl get oc -o yaml" shows after a cloud of that registry, version and edition was reconciled.
func saveImages(t *testing.T, cr *v1alpha1.OnecloudCluster, s settings) {
	t.Helper()
	c := resolved(t, s.cloud(), facts())
	if cr.Annotations == nil {
		cr.Annotations = map[string]string{}
	}
	cr.Annotations[v1alpha1.AnnotationDefaultImages] = s.imageRepository + ":" + s.version
	for _, r := range c.Components {
		key := r.SpecKey
		switch {
		case key == "" || r.FullImage == "":
		case strings.Contains(key, "."):
			cr.Spec.Container(key).Image = r.FullImage
		default:
			cr.Spec.Component(key).Image = r.FullImage
		}
		for _, sub := range r.Workload.Sidecars {
			if b := cr.Spec.Container(sub.SpecKey); b != nil && r.ContainerImages[sub.Name] != "" {
				b.Image = r.ContainerImages[sub.Name]
			}
		}
	}
}

// A saved file updates every container when it is applied with another version, registry, edition or global image; a choice in it stays.
func TestSavedFileMovesEveryContainer(t *testing.T) {
	old := settings{imageRepository: "r.io:5000/old", version: "v1"}
	for name, now := range map[string]settings{
		"version":  {imageRepository: old.imageRepository, version: "v2"},
		"registry": {imageRepository: "192.168.0.1:5000/new", version: "v1"},
		"both":     {imageRepository: "192.168.0.1:5000/new", version: "v2"},
		"edition":  {imageRepository: old.imageRepository, version: "v1", edition: "ee"},
		"hyper":    {imageRepository: old.imageRepository, version: "v2", hyper: true},
	} {
		t.Run(name, func(t *testing.T) {
			cr := now.cloud()
			saveImages(t, cr, old)
			cr.Spec.Yunionconf.Image = "r.io:5000/old/yunionconf:hotfix"
			cr.Spec.Logger.Image = "r.io:5000/old/logger@" + digest
			cr.Spec.Climc.Image = "elsewhere.io/climc:v1"
			cr.Spec.Webconsole.Guacd.Image = "elsewhere.io/guacd:9"
			got, want := resolved(t, cr, facts()), resolved(t, now.cloud(), facts())
			for k, r := range got.Components {
				choice := map[string]string{
					"yunionconf": cr.Spec.Yunionconf.Image, "logger": cr.Spec.Logger.Image, "climc": cr.Spec.Climc.Image,
				}[k]
				expected := want.Components[k].FullImage
				if choice != "" {
					expected = choice
				}
				if r.FullImage != expected || r.Pinned != (choice != "") {
					t.Errorf("%s runs %s (pinned %v), want %s", k, r.FullImage, r.Pinned, expected)
				}
				for sub, image := range r.ContainerImages {
					expected := want.Components[k].ContainerImages[sub]
					if sub == "guacd" {
						expected = cr.Spec.Webconsole.Guacd.Image
					}
					if image != expected && choice == "" {
						t.Errorf("%s/%s runs %s, want %s", k, sub, image, expected)
					}
				}
			}
		})
	}
}

// Hotfix images stay, however many there are, whether or not the cloud has a record of its defaults.
func TestManyImagesWithOneTagStayPinned(t *testing.T) {
	hotfix := func(cr *v1alpha1.OnecloudCluster) []string {
		pinned := []string{"keystone", "region", "scheduler", "glance", "logger", "climc", "web"}
		for key, name := range map[string]string{
			"keystone": "keystone", "regionServer": "region", "scheduler": "scheduler", "glance": "glance", "logger": "logger", "climc": "climc", "web": "web",
		} {
			cr.Spec.Component(key).Image = "r.io:5000/old/" + name + ":hotfix"
		}
		return pinned
	}
	now := settings{imageRepository: "r.io:5000/old", version: "v2"}
	recorded, bare := now.cloud(), now.cloud()
	saveImages(t, recorded, now)
	for name, cr := range map[string]*v1alpha1.OnecloudCluster{"with a record": recorded, "without": bare} {
		pinned := hotfix(cr)
		got := resolved(t, cr, facts())
		for _, component := range pinned {
			if r := got.Components[component]; !r.Pinned || !strings.HasSuffix(r.FullImage, ":hotfix") {
				t.Errorf("%s: %s runs %s (pinned %v)", name, component, r.FullImage, r.Pinned)
			}
		}
		if r := got.Components["notify"]; r.Pinned || r.FullImage != "r.io:5000/old/notify:v2" {
			t.Errorf("%s: notify runs %s (pinned %v)", name, r.FullImage, r.Pinned)
		}
	}
}

// A file of the earlier operator: its releases had other tags for third-party images, and it wrote names into blocks.
func TestFileOfTheEarlierOperatorMoves(t *testing.T) {
	old := settings{imageRepository: "r.io/old", version: "v3.11.1"}
	cr := settings{imageRepository: "r.io/old", version: "v4.0.4", edition: "ee"}.cloud()
	saveImages(t, cr, old)
	delete(cr.Annotations, v1alpha1.AnnotationDefaultImages)
	cr.Spec.Telegraf.InitContainerImage = "r.io/old/telegraf-init:release-1.19.2-0"
	cr.Spec.Telegraf.Image = "r.io/old/telegraf:release-1.19.2-9"
	cr.Spec.Hostimage.Image = "r.io/old/host-image:v1.0.6"
	cr.Spec.OvnNorth.Image = "r.io/old/openvswitch:2.12.4-2"
	cr.Spec.Web.ImageName, cr.Spec.RegionServer.ImageName = "web", "region"
	cr.Spec.Keystone.Image = "r.io/old/keystone:hotfix" // as computed from a tag that no longer exists
	cr.Spec.Logger.Tag, cr.Spec.Logger.Image = "hotfix", "r.io/old/logger:hotfix"
	cr.Spec.Climc.Image = "r.io/old/climc@" + digest
	cr.Spec.Notify.Image = "192.168.0.1:5000/mine/notify:hotfix"
	cr.Spec.Glance.ImageName = "glance-of-mine"
	got := resolved(t, cr, facts())
	for k, want := range map[string]string{
		"telegraf": "r.io/old/telegraf:release-1.36.4-6", "host-image": "r.io/old/host-image:v1.0.8", "ovn-north": "r.io/old/openvswitch:2.12.4-20260415",
		"web": "r.io/old/web-ee:v4.0.4", "region": "r.io/old/region-ee:v4.0.4", "scheduler": "r.io/old/scheduler:v4.0.4",
		"keystone": "r.io/old/keystone:v4.0.4", "logger": "r.io/old/logger:hotfix", "climc": "r.io/old/climc@" + digest, "notify": "192.168.0.1:5000/mine/notify:hotfix", "glance": "r.io/old/glance-of-mine:v4.0.4",
	} {
		if r := got.Components[k]; r.FullImage != want {
			t.Errorf("%s runs %s, want %s", k, r.FullImage, want)
		}
	}
}

// The single big image by edition: with support it is the community's, except for the three components whose own names also differ.
func TestHyperImageByEdition(t *testing.T) {
	for edition, want := range map[string]map[string]string{
		"ce":         {"apigateway": "cloudpods", "yunionagent": "cloudpods", "region": "cloudpods"},
		"ce/support": {"apigateway": "cloudpods-ee", "yunionagent": "cloudpods", "region": "cloudpods"},
		"ee":         {"apigateway": "cloudpods-ee", "yunionagent": "cloudpods-ee", "region": "cloudpods-ee"},
	} {
		got := resolved(t, settings{version: "v1", hyper: true, edition: edition}.cloud(), facts())
		for k, name := range want {
			if image := got.Components[k].FullImage; image != fmt.Sprintf("%s/%s:v1", resolve.DefaultRepository, name) {
				t.Errorf("%s in %s runs %s", k, edition, image)
			}
		}
	}
}

// "kubectl apply" only owns what the file changed, so the file itself shows its origin. An image edited afterwards is a choice.
func TestAppliedFileOfTheEarlierOperator(t *testing.T) {
	const file = `{"spec":{"telegraf":{"initContainerImage":"r.io/old/telegraf-init:1"},"keystone":{"image":"r.io/old/keystone:v3"},"logger":{"image":"r.io/old/logger:v3"}}}`
	recorded := strings.Replace(file, `{"spec"`, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationDefaultImages+`":"r.io/old:v4"}},"spec"`, 1)
	for name, c := range map[string]struct {
		applied  string
		keystone string
	}{
		"of the earlier operator": {file, "r.io/old/keystone:v5"},
		"of this one":             {recorded, "r.io/old/keystone:v3"},
		"none":                    {"", "r.io/old/keystone:v3"},
		"broken":                  {"{", "r.io/old/keystone:v3"},
	} {
		cr := settings{imageRepository: "r.io/old", version: "v5"}.cloud()
		cr.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": c.applied}
		cr.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl-client-side-apply", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:keystone":{"f:image":{}}}}`)},
			{Manager: "kubectl-edit", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:logger":{"f:image":{}}}}`)},
		}
		cr.Spec.Keystone.Image, cr.Spec.Logger.Image = "r.io/old/keystone:v3", "r.io/old/logger:hotfix"
		f := facts()
		var err error
		if f.Owned, err = resolve.NewOwned(cr); err != nil {
			t.Fatal(err)
		}
		got := resolved(t, cr, f)
		if image := got.Components["keystone"].FullImage; image != c.keystone {
			t.Errorf("file %s: keystone runs %s, want %s", name, image, c.keystone)
		}
		if image := got.Components["logger"].FullImage; image != "r.io/old/logger:hotfix" {
			t.Errorf("file %s: logger runs %s", name, image)
		}
	}
}
