// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configutil "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	"k8s.io/utils/ptr"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

func testConfig() *config.Config {
	return &config.Config{
		Cluster: config.Cluster{
			KubernetesVersion: "v1.36.3", PodNetworkCIDR: "10.40.0.0/16", ServiceCIDR: "10.96.0.0/12", ServiceDNSDomain: "cluster.local",
			NodeCIDRMaskSize: 24, ProxyMode: "nftables", TokenTTL: 24 * time.Hour,
		},
		Node: config.Node{Name: "node-1", IP: "10.77.0.11", BindPort: 6443, CRISocket: "unix:///run/containerd/containerd.sock"},
	}
}

func TestRenderInit(t *testing.T) {
	tests := map[string]func(*config.Config){
		"init-plain.yaml": func(*config.Config) {},
		"init-every-setting.yaml": func(c *config.Config) {
			c.Cluster.ControlPlaneEndpoint = "cloud.example.org"
			c.Cluster.APIServerCertExtraSANs = []string{"api.example.org", "192.0.2.7"}
			c.Cluster.ImageRepository = "registry.example.org/mirror"
			c.Cluster.FeatureGates = "NodeLocalCRISocket=true"
			c.Cluster.ProxyMode = "iptables"
			c.Cluster.Token = "abcdef.0123456789abcdef"
			c.Cluster.TokenTTL = time.Hour
			c.Node.AdvertiseAddress = "10.77.0.99"
			c.Node.BindPort = 7443
			c.Node.EnableHostAgent = true
			c.Node.Labels = []string{"rack=r1"}
			c.Node.ConntrackMaxPerCore = ptr.To[int32](0)
			c.Node.CgroupV1 = true
		},
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			c := testConfig()
			set(c)
			got, err := RenderInit(c)
			require.NoError(t, err)
			require.Golden(t, filepath.Join("testdata", name), string(got))
			if again, _ := RenderInit(c); !bytes.Equal(got, again) {
				t.Error("two renders differ")
			}
			// kubeadm itself accepts it: strict decoding, defaults and validation.
			internal, err := configutil.BytesToInitConfiguration(got, true)
			if err != nil {
				t.Fatalf("kubeadm refuses the configuration: %v", err)
			}
			if internal.ImageRepository == "" || len(internal.NodeRegistration.Taints) != 0 {
				t.Errorf("image repository %q, taints %v", internal.ImageRepository, internal.NodeRegistration.Taints)
			}
		})
	}
}

// As in kubeadm, zero means forever; if omitted, it would be a day.
func TestTokenForEver(t *testing.T) {
	c := testConfig()
	c.Cluster.TokenTTL = 0
	raw, err := RenderInit(c)
	require.NoError(t, err)
	internal, err := configutil.BytesToInitConfiguration(raw, true)
	require.NoError(t, err)
	if ttl := internal.BootstrapTokens[0].TTL; ttl == nil || ttl.Duration != 0 {
		t.Errorf("the token lives for %v", ttl)
	}
}

// The controller manager refuses node networks that are larger than the pod network.
func TestNodeNetworksOfIPv6(t *testing.T) {
	c := testConfig()
	for pods, want := range map[string]string{"fd00:40::/56": "64", "fd00:40::/72": "80", "10.40.0.0/16": "24"} {
		c.Cluster.PodNetworkCIDR = pods
		k, err := clusterConfiguration(c)
		require.NoError(t, err)
		for _, a := range k.ControllerManager.ExtraArgs {
			if strings.HasPrefix(a.Name, "node-cidr-mask-size") && a.Value != want {
				t.Errorf("%s: --%s=%s, want %s", pods, a.Name, a.Value, want)
			}
		}
	}
}

// What kubeadm refuses, the settings' own check refuses first: kubeadm runs after the machine has been changed.
func TestSettingsThatKubeadmRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*config.Config)
		fits bool
	}{
		"defaults":              {func(*config.Config) {}, true},
		"large service range":   {func(c *config.Config) { c.Cluster.ServiceCIDR = "172.16.0.0/11" }, false},
		"largest service range": {func(c *config.Config) { c.Cluster.ServiceCIDR = "172.16.0.0/12" }, true},
		"large IPv6 services":   {func(c *config.Config) { c.Cluster.ServiceCIDR = "10.96.0.0/12,fd00:41::/64" }, false},
		"small service range":   {func(c *config.Config) { c.Cluster.ServiceCIDR = "10.96.0.0/29" }, false},
		"large pod range":       {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "40.0.0.0/7" }, false},
		"small pod range":       {func(c *config.Config) { c.Cluster.PodNetworkCIDR, c.Cluster.NodeCIDRMaskSize = "10.40.0.0/25", 27 }, false},
		"IPv6 pods":             {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "10.40.0.0/16,fd00:40::/56" }, true},
		"large IPv6 pods":       {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "10.40.0.0/16,fd00:40::/40" }, false},
		"small IPv6 pods":       {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "10.40.0.0/16,fd00:40::/72" }, false},
		"mask of two families": {func(c *config.Config) {
			c.Cluster.PodNetworkCIDR, c.Cluster.NodeCIDRMaskSize = "10.0.0.0/8,fd00:40::/56", 26
		}, false},
		"capitals of a domain":   {func(c *config.Config) { c.Cluster.ServiceDNSDomain = "Cloud.local" }, false},
		"capitals of an address": {func(c *config.Config) { c.Cluster.ControlPlaneEndpoint = "Cloud.example.org" }, true},
		"capitals of a name": {func(c *config.Config) {
			c.Cluster.APIServerCertExtraSANs = []string{"API.example.org", "*.Example.org"}
		}, true},
	} {
		d := config.Default()
		d.Cluster.ProxyMode = config.ProxyNFTables
		c.set(&d)
		config.Complete(&d, config.Machine{Hostname: "node-1", Address: "192.168.7.9"})
		raw, err := RenderInit(&d)
		if err == nil {
			_, err = configutil.BytesToInitConfiguration(raw, true)
		}
		if errs := config.Errors(&d, config.ForInit); (err == nil) != c.fits || (len(errs) == 0) != c.fits {
			t.Errorf("%s: kubeadm returned %v, the check %v", name, err, errs)
		}
	}
}

func TestRenderInitRefuses(t *testing.T) {
	tests := map[string]func(*config.Config){
		"token":        func(c *config.Config) { c.Cluster.Token = "secret-but-malformed" },
		"feature gate": func(c *config.Config) { c.Cluster.FeatureGates = "Nonsense" },
	}
	for name, set := range tests {
		c := testConfig()
		set(c)
		_, err := RenderInit(c)
		if err == nil {
			t.Errorf("%s: rendered", name)
		} else if bytes.Contains([]byte(err.Error()), []byte("secret-but")) {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
}

func TestRenderJoin(t *testing.T) {
	tests := map[string]func(*config.Config){
		"join-plain.yaml": func(*config.Config) {},
		"join-every-setting.yaml": func(c *config.Config) {
			c.Node.EnableHostAgent, c.Node.AsController, c.Node.Baremetal = true, true, true
			c.Node.CgroupV1 = true
			c.Join.Timeout = 90 * time.Second
		},
		"join-control-plane.yaml": func(c *config.Config) {
			c.Join.ControlPlane, c.Join.CertificateKey = true, strings.Repeat("0a", 32)
			c.Node.AdvertiseAddress, c.Node.BindPort = "10.77.0.99", 7443
		},
		"join-file.yaml": func(c *config.Config) {
			c.Join = config.Join{DiscoveryFile: "/root/discovery.conf", Token: "abcdef.0123456789abcdef"}
		},
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			c := testConfig()
			c.Node.Name, c.Node.IP = "node-2", "10.77.0.12"
			c.Join = config.Join{
				Endpoint: "10.77.0.11", Token: "abcdef.0123456789abcdef",
				CACertHashes: []string{"sha256:0000000000000000000000000000000000000000000000000000000000000000"},
			}
			set(c)
			got, err := RenderJoin(c)
			require.NoError(t, err)
			require.Golden(t, filepath.Join("testdata", name), string(got))
			if c.Join.DiscoveryFile != "" {
				return // kubeadm's loader requires the file to exist
			}
			file := filepath.Join(t.TempDir(), "join.yaml")
			require.NoError(t, os.WriteFile(file, got, 0o600))
			if _, err := configutil.LoadJoinConfigurationFromFile(file, configutil.LoadOrDefaultConfigurationOptions{SkipCRIDetect: true}); err != nil {
				t.Fatalf("kubeadm refuses the configuration: %v", err)
			}
		})
	}
}

func TestImages(t *testing.T) {
	got, err := Images(testConfig())
	require.NoError(t, err)
	want := []string{
		"registry.k8s.io/coredns/coredns:v1.14.2",
		"registry.k8s.io/etcd:3.6.8-0",
		"registry.k8s.io/kube-apiserver:v1.36.3",
		"registry.k8s.io/kube-controller-manager:v1.36.3",
		"registry.k8s.io/kube-proxy:v1.36.3",
		"registry.k8s.io/kube-scheduler:v1.36.3",
		"registry.k8s.io/pause:3.10.2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("images (-want +got):\n%s", d)
	}
	c := testConfig()
	c.Cluster.ImageRepository = "registry.example.org/mirror"
	got, err = WorkerImages(c)
	require.NoError(t, err)
	want = []string{
		"registry.example.org/mirror/coredns:v1.14.2",
		"registry.example.org/mirror/kube-proxy:v1.36.3",
		"registry.example.org/mirror/pause:3.10.2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("worker images (-want +got):\n%s", d)
	}
}
