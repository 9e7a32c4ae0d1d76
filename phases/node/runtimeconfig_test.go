// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// edit changes a file like a person would.
func (m *machine) edit(t *testing.T, name, old, now string) string {
	t.Helper()
	raw, err := m.Files.ReadFile(name)
	if err != nil || !strings.Contains(string(raw), old) {
		t.Fatalf("%s has no %q, %v", name, old, err)
	}
	text := strings.Replace(string(raw), old, now, 1)
	m.put(t, name, text)
	return text
}

func (m *machine) holds(t *testing.T, name, want string) {
	t.Helper()
	if raw, err := m.Files.ReadFile(name); err != nil || string(raw) != want {
		t.Errorf("%s holds %q, %v", name, raw, err)
	}
}

const nvidia = "\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\n  runtime_type = 'io.containerd.runc.v2'\n"

// asFirstRelease makes the result of Units look like the first release's.
func (m *machine) asFirstRelease(t *testing.T) {
	t.Helper()
	raw, err := m.Files.ReadFile(containerdConfig)
	require.NoError(t, err)
	removed := 0
	for line := range strings.Lines(string(raw)) {
		if later.MatchString(line) {
			m.edit(t, containerdConfig, line, "")
			removed++
		}
	}
	if removed != 3 {
		t.Fatalf("%d lines removed", removed)
	}
	require.NoError(t, m.Ledger.Forget(host.KindContent, containerdConfig))
}

func TestEditsOfTheConfigurationAreKept(t *testing.T) {
	for _, tt := range []struct {
		name         string
		firstRelease bool
	}{{"this release", false}, {"the first release", true}} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.must(t, Units())
			if tt.firstRelease {
				m.asFirstRelease(t)
			}
			edited := m.edit(t, containerdConfig, "[plugins.'io.containerd.transfer", nvidia+"[plugins.'io.containerd.transfer")
			m.rec.Reset()
			m.boot(t, false)
			m.edit(t, "/etc/systemd/system/kubelet.service", "[Unit]", "# theirs\n[Unit]") // other work
			m.must(t, Units())
			m.holds(t, containerdConfig, edited)
			if m.ran("restart containerd") {
				t.Error("containerd was restarted")
			}
			if !slices.ContainsFunc(m.said, func(l string) bool { return strings.Contains(l, "is not changed") && strings.Contains(l, "mv ") }) {
				t.Errorf("said %q", m.said)
			}
			m.done(t, Units())
			// After its removal, ocadm's is written.
			require.NoError(t, m.Files.Remove(containerdConfig))
			m.must(t, Units())
			want, err := renderConfig(m.Host)
			require.NoError(t, err)
			m.holds(t, containerdConfig, string(want))
			m.undo(t, Units())
			if m.Files.Exists(containerdConfig) || m.Ledger.Has(host.KindContent, containerdConfig) {
				t.Error("the undo left the configuration or its note")
			}
		})
	}
}

func TestConfigurationOfTheFirstReleaseIsReplaced(t *testing.T) {
	m := newMachine(t)
	m.must(t, Units())
	want, err := renderConfig(m.Host)
	require.NoError(t, err)
	m.asFirstRelease(t)
	m.edit(t, containerdConfig, "pause:3.10.2", "pause:3.9") // as it was then
	m.boot(t, false)
	m.must(t, Units())
	m.holds(t, containerdConfig, string(want))
	kept := m.Files.Glob(host.StateDir + "/backup/*config.toml.replaced")
	if len(kept) != 1 {
		t.Fatalf("backups %q", kept)
	}
	if raw, err := m.Files.ReadFile(kept[0]); err != nil || !strings.Contains(string(raw), "pause:3.9") {
		t.Errorf("the backup holds %q, %v", raw, err)
	}
}

func TestInvalidEditIsExplained(t *testing.T) {
	m := newMachine(t)
	m.must(t, Units())
	edited := m.edit(t, containerdConfig, "SystemdCgroup = true", "SystemdCgroup = false")
	m.outputs["containerd config dump"] = "  SystemdCgroup = false\n"
	m.boot(t, false)
	_, err := m.do(t, Units())
	if code(err) != CodeRuntimeUnusable {
		t.Fatalf("got %v", err)
	}
	f := finding.Of(err)[0]
	if !slices.Contains(f.Evidence, "-        SystemdCgroup = true") || !slices.Contains(f.Evidence, "+        SystemdCgroup = false") ||
		!strings.Contains(f.Remedy, "keep yours") || !strings.Contains(f.Remedy, takeOurs()) {
		t.Errorf("got %+v", f)
	}
	m.holds(t, containerdConfig, edited)
}
