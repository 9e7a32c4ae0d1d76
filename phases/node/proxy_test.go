// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// containerd gets the proxy of the installing environment, readable by root alone, and reset takes it back.
func TestUnitsWithAProxy(t *testing.T) {
	for _, n := range []string{"HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		t.Setenv(n, "")
	}
	t.Setenv("HTTPS_PROXY", `http://u:p"$a@proxy.example.org:3128`)
	t.Setenv("NO_PROXY", "192.0.2.0/24, localhost")
	m := newMachine(t)
	before := m.files(t)
	m.must(t, Units())
	raw, err := m.Files.ReadFile(proxyFile)
	if err != nil {
		t.Fatal(err)
	}
	want := `HTTPS_PROXY="http://u:p\"\$a@proxy.example.org:3128"` + "\n" + `NO_PROXY="192.0.2.0/24,localhost,127.0.0.1,.svc,.cluster.local"` + "\n"
	if d := cmp.Diff(want, string(raw)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	st, err := m.Files.Stat(proxyFile)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode().Perm() != fs.FileMode(0o600) {
		t.Errorf("mode %v", st.Mode())
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
