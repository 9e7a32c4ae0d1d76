// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/test/require"
)

// foreignContainerd puts a suitable containerd on the machine, with its shim and ctr. Its "config dump" prints the text.
func foreignContainerd(t *testing.T, m *machine, dump string) {
	t.Helper()
	m.h.Facts.Programs = map[string]host.Program{"containerd": {Path: "/usr/bin/containerd", Version: "v2.2.1"}}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		put(t, m.h, "/usr/bin/"+name, "")
	}
	put(t, m.h, "/etc/containerd/config.toml", dump)
	answer(m, "/usr/bin/containerd config dump", dump+"\n")
}

func TestPauseImageOfAForeignContainerd(t *testing.T) {
	for name, tt := range map[string]struct {
		dump string
		want bool
	}{
		"the same": {"    [plugins.'io.containerd.cri.v1.images'.pinned_images]\n      sandbox = 'registry.k8s.io/pause:3.10.2'", false},
		"another":  {"      sandbox = 'registry.k8s.io/pause:3.8'", true},
		"of 1.7":   {"    sandbox_image = \"registry.k8s.io/pause:3.8\"", true},
		"none":     {"version = 3", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := goodMachine(t)
			foreignContainerd(t, m, tt.dump)
			found := checkContainerd(t.Context(), m)
			if got := len(found) == 1 && found[0].Code == node.CodePauseImage && strings.Contains(found[0].Cause, "pause:3.8"); got != tt.want {
				t.Errorf("found %v", found)
			}
		})
	}
}

func TestHostsOfAForeignContainerd(t *testing.T) {
	const section = "  [plugins.'io.containerd.cri.v1.images'.registry]\n    config_path = '%s'\n\n[plugins.'x']\n  config_path = '%s'"
	for name, tt := range map[string]struct {
		dump, depot string
		offline     bool
		want        string
	}{
		"ours":      {fmt.Sprintf(section, registry.HostsDir+":/etc/docker/certs.d", ""), "", true, ""},
		"none":      {fmt.Sprintf(section, "", registry.HostsDir), "", false, "warning"},
		"offline":   {fmt.Sprintf(section, "/etc/docker/certs.d", registry.HostsDir), "", true, "error"},
		"no depot":  {fmt.Sprintf(section, "", ""), config.None, false, ""},
		"of 1.7":    {"[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"\"", "", false, "warning"},
		"not known": {"version = 3", "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := goodMachine(t)
			m.h.Config.Cluster.ControlPlaneEndpoint, m.h.Config.Node.Depot, m.h.Config.Node.Offline = "192.0.2.11:6443", tt.depot, tt.offline
			foreignContainerd(t, m, tt.dump)
			found := checkContainerd(t.Context(), m)
			if tt.want == "" && len(found) == 0 {
				return
			}
			if len(found) != 1 || found[0].Code != node.CodeNoMirrors || string(found[0].Severity) != tt.want ||
				!strings.Contains(found[0].Remedy, "config_path = '"+registry.HostsDir+"'") {
				t.Errorf("found %v, want %q", found, tt.want)
			}
		})
	}
}

func own(t *testing.T, m *machine, text string) {
	t.Helper()
	this := kubernetes.ThisRelease()
	for name, v := range map[string]string{"ocadm": this.Ocadm, "kubernetes": this.Kubernetes} {
		require.NoError(t, m.h.Ledger.Record(host.Entry{Kind: host.KindRelease, Name: name, Op: host.Found, Detail: v}))
	}
	require.NoError(t, m.h.Files.WriteFile(kubernetes.ConfigFile, []byte(text), 0o600))
}

// answer makes a program, or one of its command lines, succeed and print out.
func answer(m *machine, command, out string) {
	rec := m.h.Exec.(*host.Recorder)
	old := rec.Answer
	rec.Answer = func(c exec.Command) (exec.Result, error) {
		if c.Path == command || strings.Join(append([]string{c.Path}, c.Args...), " ") == command {
			return exec.Result{Stdout: out}, nil
		}
		return old(c)
	}
}
