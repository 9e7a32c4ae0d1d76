// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/test/require"
)

// containerd gets the configured proxies and the kubelet the credentials, readable only by root, and reset removes both.
func TestUnitsWithProxyAndCredentials(t *testing.T) {
	m := newMachine(t)
	before := m.files(t)
	m.Config.Node.HTTPSProxy = `http://u:p"$a@proxy.example.org:3128`
	m.Config.Node.NoProxy = []string{"192.0.2.0/24", ".svc"}
	m.Config.Node.RegistryAuth = `{"auths":{"r":{"auth":"YTpi"}}}`
	m.must(t, Units())
	for name, want := range map[string]string{
		ProxyFile:          `HTTPS_PROXY="http://u:p\"\$a@proxy.example.org:3128"` + "\n" + `NO_PROXY="192.0.2.0/24,.svc"` + "\n",
		kubeletCredentials: m.Config.Node.RegistryAuth,
	} {
		raw, err := m.Files.ReadFile(name)
		require.NoError(t, err)
		if d := cmp.Diff(want, string(raw)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		st, err := m.Files.Stat(name)
		require.NoError(t, err)
		if st.Mode().Perm() != fs.FileMode(0o600) {
			t.Errorf("%s has mode %v", name, st.Mode())
		}
	}
	unit, err := m.Files.ReadFile(proxyDropIn)
	if err != nil || !strings.Contains(string(unit), "EnvironmentFile=-"+ProxyFile) || strings.Contains(string(unit), "3128") {
		t.Errorf("%s, %v", unit, err)
	}
	m.done(t, Units())
	m.undo(t, Units())
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
}

// A repeated command may omit --restrict-oom-score-adj, without which containers do not start on such a machine.
func TestRepeatedWithoutRestrictOOM(t *testing.T) {
	m := newMachine(t)
	m.Config.Node.ContainerdRestrictOOM = true
	m.must(t, Units())
	m.Config.Node.ContainerdRestrictOOM = false
	m.done(t, Units())
	m.Config.Given = []string{"node.restrictOOMScoreAdj"}
	if m.must(t, Units()); strings.Contains(m.Files.Text(containerdConfig), "restrict_oom_score_adj = true") {
		t.Error("it was given, and not set")
	}
}

// If a run is interrupted between writing the files and restarting containerd, containerd has not read them. The next run finds the files written but still
// restarts it.
func TestInterruptedRestartIsDue(t *testing.T) {
	const restart, reload = "systemctl restart containerd.service", "systemctl daemon-reload"
	m := newMachine(t)
	m.must(t, Units())
	m.Config.Node.HTTPSProxy = "http://proxy.example.org:3128"
	m.failures[reload] = true
	if _, err := m.do(t, Units()); err == nil {
		t.Fatal("it was not cut off")
	}
	delete(m.failures, reload)
	m.boot(t, false)
	m.Config.Node.HTTPSProxy = "http://proxy.example.org:3128"
	m.rec.Reset()
	m.must(t, Units())
	calls := m.rec.Calls()
	if !slices.Contains(calls, reload) || !slices.Contains(calls, restart) {
		t.Errorf("ran %q", calls)
	}
	if ran, err := m.do(t, Units()); ran || err != nil {
		t.Errorf("it is due for ever: %v", err)
	}
}

// The same for the kubelet's unit, which an earlier release wrote: systemd must read it again, and containerd goes on.
func TestInterruptedReloadIsDue(t *testing.T) {
	const restart, reload = "systemctl restart containerd.service", "systemctl daemon-reload"
	m := newMachine(t)
	m.must(t, Units())
	m.put(t, kubeletDropIn, "[Service]\n")
	m.failures[reload] = true
	if _, err := m.do(t, Units()); err == nil {
		t.Fatal("it was not cut off")
	}
	delete(m.failures, reload)
	m.boot(t, false)
	m.rec.Reset()
	m.must(t, Units())
	if calls := m.rec.Calls(); !slices.Contains(calls, reload) || slices.Contains(calls, restart) {
		t.Errorf("ran %q", calls)
	}
	if ran, err := m.do(t, Units()); ran || err != nil {
		t.Errorf("it is due for ever: %v", err)
	}
}
