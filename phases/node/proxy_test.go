// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// containerd gets the proxies of the configuration and the kubelet its credentials, readable by root alone, and reset takes both back.
func TestUnitsWithProxyAndCredentials(t *testing.T) {
	m := newMachine(t)
	before := m.files(t)
	m.Config.Node.HTTPSProxy = `http://u:p"$a@proxy.example.org:3128`
	m.Config.Node.NoProxy = []string{"192.0.2.0/24", ".svc"}
	m.Config.Node.RegistryAuth = `{"auths":{"r":{"auth":"YTpi"}}}`
	m.must(t, Units())
	for name, want := range map[string]string{
		proxyFile:          `HTTPS_PROXY="http://u:p\"\$a@proxy.example.org:3128"` + "\n" + `NO_PROXY="192.0.2.0/24,.svc"` + "\n",
		kubeletCredentials: m.Config.Node.RegistryAuth,
	} {
		raw, err := m.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(raw)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		st, err := m.Files.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != fs.FileMode(0o600) {
			t.Errorf("%s has mode %v", name, st.Mode())
		}
	}
	unit, err := m.Files.ReadFile(proxyDropIn)
	if err != nil || !strings.Contains(string(unit), "EnvironmentFile=-"+proxyFile) || strings.Contains(string(unit), "3128") {
		t.Errorf("%s, %v", unit, err)
	}
	m.done(t, Units())
	m.undo(t, Units())
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}
