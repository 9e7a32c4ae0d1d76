// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/phases/config"
)

const ourHosts = `# Written by ocadm. Put settings of your own for a registry into /etc/containerd/certs.d/REGISTRY/hosts.toml.

[host."https://10.0.0.1:6444"]
  capabilities = ["pull", "resolve"]
  ca = "/etc/kubernetes/pki/ca.crt"
  client = "/var/lib/kubelet/pki/kubelet-client-current.pem"
  dial_timeout = "5s"
`

const offlineHosts = `# Written by ocadm. Put settings of your own for a registry into /etc/containerd/certs.d/REGISTRY/hosts.toml.
server = "https://10.0.0.1:6444"
  capabilities = ["pull", "resolve"]
  ca = "/etc/kubernetes/pki/ca.crt"
  client = "/var/lib/kubelet/pki/kubelet-client-current.pem"
  dial_timeout = "5s"
`

func TestMirrors(t *testing.T) {
	file := path.Join(registriesDir, everyRegistry, "hosts.toml")
	for name, tc := range map[string]struct {
		change func(*config.Config)
		theirs string
		want   string
	}{
		"join":        {func(c *config.Config) { c.Join.Endpoint = "10.0.0.1:6443" }, "", ourHosts},
		"init":        {func(c *config.Config) { c.Cluster.ControlPlaneEndpoint = "10.0.0.1:6443" }, "", ourHosts},
		"a depot":     {func(c *config.Config) { c.Join.Endpoint, c.Node.Depot = "10.0.0.9:6443", "10.0.0.1:6444" }, "", ourHosts},
		"offline":     {func(c *config.Config) { c.Join.Endpoint, c.Node.Offline = "10.0.0.1:6443", true }, "", offlineHosts},
		"no depot":    {func(c *config.Config) { c.Join.Endpoint, c.Node.Depot = "10.0.0.1:6443", config.None }, "", ""},
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

// A registry with several mirrors: the last of them stands in for it when it must not be asked.
func TestHostsFileOfSeveralMirrors(t *testing.T) {
	list := []Mirror{{URL: "https://a:1"}, {URL: "https://b:2"}}
	const head = "# Written by ocadm. Put settings of your own for a registry into /etc/containerd/certs.d/REGISTRY/hosts.toml.\n"
	const keys = "\n  capabilities = [\"pull\", \"resolve\"]\n  dial_timeout = \"5s\"\n"
	for offline, want := range map[bool]string{
		false: head + "\n[host.\"https://a:1\"]" + keys + "\n[host.\"https://b:2\"]" + keys,
		true:  head + "server = \"https://b:2\"" + keys + "\n[host.\"https://a:1\"]" + keys,
	} {
		if d := cmp.Diff(want, string(hostsFile(list, offline))); d != "" {
			t.Errorf("offline %v (-want +got):\n%s", offline, d)
		}
	}
}
