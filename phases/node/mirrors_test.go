// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

const ourHosts = `# Written by ocadm. Put your own settings for a registry into /etc/containerd/certs.d/REGISTRY/hosts.toml.

[host."https://10.0.0.1:6444"]
  capabilities = ["pull", "resolve"]
  ca = "/etc/kubernetes/pki/ca.crt"
  client = "/var/lib/kubelet/pki/kubelet-client-current.pem"
  dial_timeout = "5s"
`

const offlineHosts = `# Written by ocadm. Put your own settings for a registry into /etc/containerd/certs.d/REGISTRY/hosts.toml.
server = "https://10.0.0.1:6444"
  capabilities = ["pull", "resolve"]
  ca = "/etc/kubernetes/pki/ca.crt"
  client = "/var/lib/kubelet/pki/kubelet-client-current.pem"
  dial_timeout = "5s"
`

func TestMirrors(t *testing.T) {
	file := path.Join(registriesDir, everyRegistry, "hosts.toml")
	const userHosts = `
[host."https://mirror.example.org:5000/v2/hub"]
  capabilities = ["pull", "resolve"]
  override_path = true
  dial_timeout = "5s"

[host."https://mirror.example.org:5000/v2/hub".header]
  Authorization = "Basic YWxpY2U6cHc="
`
	for name, tc := range map[string]struct {
		change func(*config.Config)
		theirs string
		want   string
	}{
		"join": {func(c *config.Config) { c.Join.Endpoint = "10.0.0.1:6443" }, "", ourHosts},
		"init": {func(c *config.Config) { c.Cluster.ControlPlaneEndpoint = "10.0.0.1:6443" }, "", ourHosts},
		"init behind a load balancer": {func(c *config.Config) {
			c.Cluster.ControlPlaneEndpoint, c.Node.IP, c.Node.AdvertiseAddress = "lb.example.org:6443", "10.0.0.9", "10.0.0.1"
		}, "", ourHosts},
		"join by a file": {func(c *config.Config) { c.Join.DiscoveryFile, c.Node.IP = "cluster.conf", "10.0.0.9" }, "", ""},
		"a depot":        {func(c *config.Config) { c.Join.Endpoint, c.Node.Depot = "10.0.0.9:6443", "10.0.0.1:6444" }, "", ourHosts},
		"offline":        {func(c *config.Config) { c.Join.Endpoint, c.Node.Offline = "10.0.0.1:6443", true }, "", offlineHosts},
		"no depot":       {func(c *config.Config) { c.Join.Endpoint, c.Node.Depot = "10.0.0.1:6443", config.None }, "", ""},
		"mirrors": {func(c *config.Config) {
			c.Join.Endpoint, c.Node.RegistryMirrors = "10.0.0.1:6443", []string{"*=https://mirror.example.org:5000/hub"}
			c.Node.RegistryAuth = `{"auths":{"mirror.example.org:5000":{"auth":"YWxpY2U6cHc="}}}`
		}, "", ourHosts + userHosts},
		"their hosts": {func(c *config.Config) { c.Join.Endpoint = "10.0.0.1:6443" }, "server = 'https://mirror'\n", "server = 'https://mirror'\n"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tc.change(m.Config)
			if tc.theirs != "" {
				m.put(t, file, tc.theirs)
			}
			p := Mirrors()
			if _, err := m.do(t, p); err != nil {
				t.Fatal(err)
			}
			m.done(t, p)
			if d := cmp.Diff(tc.want, m.Files.Text(file)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			m.undo(t, p)
			if d := cmp.Diff(tc.theirs, m.Files.Text(file)); d != "" {
				t.Errorf("undone (-want +got):\n%s", d)
			}
		})
	}
}

// A registry with several mirrors: the last of them replaces the registry if that must not be used.
func TestHostsFileOfSeveralMirrors(t *testing.T) {
	list := []Mirror{{URL: "https://a:1"}, {URL: "https://b:2"}}
	const head = "# Written by ocadm. Put your own settings for a registry into /etc/containerd/certs.d/REGISTRY/hosts.toml.\n"
	const keys = "\n  capabilities = [\"pull\", \"resolve\"]\n  dial_timeout = \"5s\"\n"
	for offline, want := range map[bool]string{
		false: head + "\n[host.\"https://a:1\"]" + keys + "\n[host.\"https://b:2\"]" + keys,
		true:  head + "server = \"https://b:2\"" + keys + "\n[host.\"https://a:1\"]" + keys,
	} {
		if d := cmp.Diff(want, string(hostsFile(list, offline, ""))); d != "" {
			t.Errorf("offline %v (-want +got):\n%s", offline, d)
		}
	}
}

// containerd ignores docker's files with certificates beside a hosts.toml, so ocadm's file names them.
func TestMirrorOfARegistryWithCertificates(t *testing.T) {
	m := newMachine(t)
	m.Config.Node.RegistryMirrors = []string{"r.example.org=https://a:1"}
	for _, f := range []string{"ca.crt", "me.cert", "me.key"} {
		m.put(t, path.Join(registriesDir, "r.example.org", f), "x")
	}
	if _, err := m.do(t, Mirrors()); err != nil {
		t.Fatal(err)
	}
	if got := m.Files.Text(hostsName("r.example.org")); !strings.Contains(got, "\nca = [\"ca.crt\"]\nclient = [[\"me.cert\",\"me.key\"]]\n\n[host.") {
		t.Error(got)
	}
}

// Until the node has a certificate, images are pulled through the configured mirrors; preflight uses the same servers.
func TestEarlyMirrors(t *testing.T) {
	m := newMachine(t)
	m.Config.Join.Endpoint = "10.0.0.1:6443"
	m.Config.Node.RegistryMirrors = []string{"docker.io=http://127.0.0.1:1", "docker.io=http://127.0.0.1:2"}
	file := path.Join(registriesDir, "docker.io", "hosts.toml")
	first := "# Written by ocadm. Put your own settings for a registry into " + registriesDir + "/REGISTRY/hosts.toml.\n"
	for _, url := range []string{"http://127.0.0.1:1", "http://127.0.0.1:2"} {
		first += "\n[host.\"" + url + "\"]\n  capabilities = [\"pull\", \"resolve\"]\n  dial_timeout = \"5s\"\n"
	}
	ask, err := Registries(m.Host)
	require.NoError(t, err)
	endpoints, err := ask.Endpoints("docker.io")
	if err != nil || len(endpoints) != 3 || endpoints[0].Root.Host != "127.0.0.1:1" || !endpoints[0].Mirror || endpoints[2].Mirror {
		t.Errorf("preflight asks %+v, %v", endpoints, err)
	}
	m.must(t, Units())
	if d := cmp.Diff(first, m.Files.Text(file)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m.must(t, Mirrors())
	if d := cmp.Diff(ourHosts+first[len(first)-2*len("\n[host.\"http://127.0.0.1:1\"]\n  capabilities = [\"pull\", \"resolve\"]\n  dial_timeout = \"5s\"\n"):], m.Files.Text(file)); d != "" {
		t.Errorf("with the depot (-want +got):\n%s", d)
	}
	m.put(t, Certificate, "")
	m.done(t, Units())
	m.done(t, Mirrors())
}

// With --offline no registry is ever used, even before the node may use the depot.
func TestOfflineFromTheStart(t *testing.T) {
	m := newMachine(t)
	m.Config.Join.Endpoint, m.Config.Node.Offline = "10.0.0.1:6443", true
	m.must(t, Units())
	if d := cmp.Diff(offlineHosts, m.Files.Text(hostsName(everyRegistry))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	r := m.serve(t, func(string, int) error { return nil })
	group := ImageGroup{Name: "all", Short: "x", Need: need(imageOne, imageTwo)}
	if _, err := m.do(t, group.phase()); code(err) != CodePull || !strings.Contains(err.Error(), imageTwo) {
		t.Errorf("images that the depot lacks: %v", err)
	}
	group.Optional = true
	if _, err := m.do(t, group.phase()); err != nil || len(r.pulled) > 0 {
		t.Errorf("images that may come later: %v, pulled %q", err, r.pulled)
	}
	registry, _, _ := strings.Cut(imageOne, "/")
	m.Config.Node.RegistryMirrors = []string{registry + "=http://127.0.0.1:1"}
	if left, err := Forbidden(m.Host, []string{imageOne, "other.example.org/x:1"}); err != nil || len(left) != 1 || left[0] != "other.example.org/x:1" {
		t.Errorf("with a mirror: %q, %v", left, err)
	}
	m.Config.Node.RegistryMirrors = nil
	m.put(t, Certificate, "")
	m.must(t, ImageGroup{Name: "all", Short: "x", Need: need(imageOne)}.phase())
}

func TestPathOfAMirror(t *testing.T) {
	for url, want := range map[string]string{
		"http://a:1": "http://a:1", "https://a/v2": "https://a", "https://a/hub": "https://a/v2/hub !", "https://a/v2/hub": "https://a/v2/hub !",
	} {
		got, overridden := Mirror{URL: url}.inRegistry()
		if overridden {
			got += " !"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// A repeated run with mirrors of other registries does not leave the earlier ones in use: containerd prefers a registry's own file.
func TestOtherMirrors(t *testing.T) {
	m := newMachine(t)
	m.Config.Join.Endpoint = "10.0.0.1:6443"
	for _, set := range [][]string{{"docker.io=http://127.0.0.1:1"}, {"*=http://127.0.0.1:2"}, {"quay.io=http://127.0.0.1:3"}} {
		m.Config.Node.RegistryMirrors = set
		m.must(t, Units())
		ask, err := Registries(m.Host)
		require.NoError(t, err)
		for _, of := range []string{"docker.io", "quay.io"} {
			name, address, _ := strings.Cut(set[0], "=")
			endpoints, err := ask.Endpoints(of)
			require.NoError(t, err)
			if mirrored := name == "*" || name == of; len(endpoints) > 1 != mirrored || mirrored && endpoints[0].Root.Scheme+"://"+endpoints[0].Root.Host != address {
				t.Errorf("%s: %s is pulled from %+v", set, of, endpoints)
			}
		}
	}
	// Without the flag, the mirror of every registry stays; an empty one removes it.
	m.put(t, Certificate, "")
	for _, c := range []struct{ mirrors, given []string }{{mirrors: []string{"*=http://127.0.0.1:2"}}, {}, {given: []string{"node.registryMirrors"}}} {
		m.Config.Node.RegistryMirrors, m.Config.Given = c.mirrors, c.given
		if _, err := m.do(t, Mirrors()); err != nil || strings.Contains(m.Files.Text(hostsName(everyRegistry)), ":2") != (c.given == nil) {
			t.Errorf("%+v: %v, %s", c, err, m.Files.Text(hostsName(everyRegistry)))
		}
	}
}
