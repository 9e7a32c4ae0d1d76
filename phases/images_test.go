// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/test/require"
)

func TestRunsHere(t *testing.T) {
	roles := map[string][]string{"keystone": {"controller"}, "host": {"host"}, "host-deployer": {"controller", "host"}, "lbagent": {"lbagent"}, "busybox": nil}
	compute := config.Node{EnableHostAgent: true}
	for _, tt := range []struct {
		image string
		node  config.Node
		want  bool
	}{
		{"registry.example.org:5000/cloud/keystone:v4", compute, false},
		{"registry.example.org/host@sha256:abc", compute, true},
		{"registry.example.org/host-deployer:v4", compute, true},
		{"registry.example.org/host-deployer:v4", config.Node{}, false},
		{"registry.example.org/keystone:v4", config.Node{AsController: true}, true},
		{"registry.example.org/lbagent:v4", config.Node{Labels: []string{"onecloud.yunion.io/lbagent=enable"}}, true},
		{"registry.example.org/lbagent:v4", compute, false},
		{"registry.example.org/busybox:1", config.Node{}, true},
		{"registry.example.org/new-in-a-later-release:v5", config.Node{}, true},
	} {
		c := &config.Config{Node: tt.node, Cloud: config.Cloud{ImageRoles: roles}}
		if got := runsHere(c, tt.image); got != tt.want {
			t.Errorf("%s on %+v: %v", tt.image, tt.node, got)
		}
	}
	// init does not know roles, so it imports everything in the bundle.
	if !runsHere(&config.Config{}, "registry.example.org/host:v4") {
		t.Error("init leaves an image out")
	}
}

// This program is the operator's image unless another one is named. A bundle's image of that name is ignored.
func TestTheOperatorIsThisProgram(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*config.Config)
		own    []string
		pulled []string
	}{
		"defaults": {func(*config.Config) {}, []string{images.OperatorRef("", version.Version)}, nil},
		"a registry of theirs": {func(c *config.Config) { c.Cluster.ImageRepository = "registry.example.org/cloud" },
			[]string{"registry.example.org/cloud/ocadm:" + version.Version}, nil},
		"Docker Hub":    {func(c *config.Config) { c.Cluster.ImageRepository = "you" }, []string{"docker.io/you/ocadm:" + version.Version}, nil},
		"its version":   {func(c *config.Config) { c.Cloud.OperatorVersion = version.Version }, []string{images.OperatorRef("", version.Version)}, nil},
		"a version":     {func(c *config.Config) { c.Cloud.OperatorVersion = "v9" }, nil, []string{images.OperatorRef("", "v9")}},
		"another image": {func(c *config.Config) { c.Cloud.OperatorImage = "you/ocadm:dev" }, nil, []string{"you/ocadm:dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := config.Default()
			tc.change(&c)
			h := &host.Host{Config: &c}
			for want, g := range map[*[]string]node.ImageGroup{&tc.own: imageOfTheOperator(), &tc.pulled: imagesOfTheCloud()} {
				got, err := g.Need(h)
				require.NoError(t, err)
				if d := cmp.Diff(*want, got); d != "" {
					t.Errorf("images/%s (-want +got):\n%s", g.Name, d)
				}
			}
			c.Cloud.Images = []string{c.OperatorImage(), "registry.example.org/keystone:v4"}
			others, err := otherImages().Need(h)
			require.NoError(t, err)
			if slices.Contains(others, c.OperatorImage()) == c.PacksOperator() {
				t.Errorf("the other images are %q", others)
			}
		})
	}
}

// BringOperator ignores a machine that is not a node, or has another runtime.
func TestBringOperator(t *testing.T) {
	c := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	for _, file := range []string{"", kubernetes.KubeletKubeconfig} {
		if file != "" {
			require.NoError(t, h.Files.WriteFile(file, nil, 0o600))
		}
		if imported, stored, err := BringOperator(t.Context(), h, nil, "registry.example.org/ocadm:v1"); imported || stored || err != nil {
			t.Errorf("with %q: imported %v, stored %v, %v", file, imported, stored, err)
		}
	}
}

// silent drops the reports while an image is imported and stored.
type silent struct{ workflow.Reporter }

func (silent) Output(string)                 {}
func (silent) Progress(int64, int64, string) {}
func (silent) Changed(string, ...any)        {}

// Only a node with a depot stores the operator's image for the others.
func TestBringOperatorToTheDepot(t *testing.T) {
	c := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	h.Config.Node.Name, h.Facts.Arch = "node1", "amd64"
	h.Own = func() (v1.Image, error) { return random.Image(1000, 1) }
	for _, file := range []string{kubernetes.KubeletKubeconfig, "/usr/local/bin/ctr", h.Self} {
		require.NoError(t, h.Files.WriteFile(file, nil, 0o700))
	}
	for _, want := range []bool{false, true} {
		imported, stored, err := BringOperator(t.Context(), h, silent{}, "registry.example.org/ocadm:v1")
		if !imported || stored != want || err != nil {
			t.Errorf("depot %v: imported %v, stored %v, %v", want, imported, stored, err)
		}
		require.NoError(t, h.Files.WriteFile("/etc/kubernetes/manifests/ocadm-depot.yaml", nil, 0o600))
	}
}

// Preflight rejects a bundle that lacks an image which a later phase imports.
func TestPreflightRequestsEveryImage(t *testing.T) {
	for name, change := range map[string]func(*config.Config){
		"defaults":             func(*config.Config) {},
		"a database of theirs": func(c *config.Config) { c.Database.Host = "10.0.0.5" },
		"nothing of ours":      func(c *config.Config) { c.Addons.CNI, c.Addons.Ingress = "none", "none" },
		"a registry of theirs": func(c *config.Config) { c.Cluster.ImageRepository = "registry.example.org/cloud" },
		"another operator":     func(c *config.Config) { c.Cloud.OperatorVersion = "v9" },
	} {
		t.Run(name, func(t *testing.T) {
			c := config.Default()
			change(&c)
			config.Complete(&c, config.Machine{Hostname: "node", Address: "192.0.2.7"})
			c.Cloud.Images = []string{"registry.example.org/keystone:v4.0.4"}
			h := &host.Host{Config: &c}
			for kind, groups := range map[preflight.Kind][]node.ImageGroup{
				preflight.Init: {imagesOfControlPlane(), imagesOfAddons(), imagesOfTheCloud(), otherImages()},
				preflight.Join: {imagesOfWorker(), otherImages()},
			} {
				got, err := preflight.Images(&c, kind)
				require.NoError(t, err)
				var want []string
				for _, g := range groups {
					need, err := g.Need(h)
					require.NoError(t, err)
					want = append(want, need...)
				}
				slices.Sort(want)
				if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
}
