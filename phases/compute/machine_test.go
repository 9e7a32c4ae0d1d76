// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const kernel = "6.1.0"

// machine is a fake machine that records messages and commands.
type machine struct {
	*host.Host
	rec  *host.Recorder
	root string
	// fails is the set of command lines that fail.
	fails map[string]bool
	// active and enabled are sets of systemd units.
	active, enabled map[string]bool
	said, changes   []string
}

// newMachine returns a Debian machine with one interface, whose kernel has every module except those that change removes.
func newMachine(t *testing.T, change ...func(*machine)) *machine {
	t.Helper()
	m := &machine{root: t.TempDir(), fails: map[string]bool{}, active: map[string]bool{}, enabled: map[string]bool{}}
	m.rec = &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if line := strings.Join(append([]string{c.Path}, c.Args...), " "); m.fails[line] || c.Path == "systemctl" && !m.systemctl(c.Args) {
			return exec.Result{ExitCode: 1}, &exec.Error{Argv: []string{line}, ExitCode: 1, Err: errors.New("exit status 1")}
		}
		return exec.Result{}, nil
	}}
	m.put(t, "/ocadm", "the program", 0o755)
	m.put(t, "/etc/os-release", "ID=debian\n", 0o644)
	m.put(t, "/proc/sys/kernel/osrelease", kernel+"\n", 0o644)
	m.put(t, "/proc/cpuinfo", "vendor_id\t: GenuineIntel\n", 0o644)
	m.put(t, "/lib/modules/"+kernel+"/modules.builtin", "kernel/drivers/net/tun.ko\n", 0o644)
	m.put(t, "/lib/modules/"+kernel+"/modules.dep", "kernel/drivers/net/ifb.ko.xz:\nkernel/net/openvswitch/openvswitch.ko:\nkernel/arch/x86/kvm/kvm-intel.ko.zst: kernel/arch/x86/kvm/kvm.ko\n", 0o644)
	for _, p := range programs() {
		m.put(t, "/usr/bin/"+p.name, "", 0o755)
	}
	m.put(t, "/usr/bin/qemu-system-x86_64", "", 0o755)
	m.boot(t)
	for _, c := range change {
		c(m)
	}
	return m
}

// boot creates the host again, as another run of the program would.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	c := &config.Config{}
	if m.Host != nil {
		c = m.Config
	}
	c.Node.EnableHostAgent, c.Node.IP, c.Node.Name = true, "192.0.2.10", "node2"
	h, err := host.Fake(t.Context(), m.root, c, m.rec)
	require.NoError(t, err)
	h.Facts.Interfaces = []host.Interface{nic("eth0", "192.0.2.10/24")}
	h.Facts.Interface, h.Facts.Address, h.Facts.Hostname = "eth0", netip.MustParseAddr("192.0.2.10"), "node2"
	h.Self = filepath.Join(m.root, "ocadm")
	m.Host = h
}

func (m *machine) systemctl(args []string) bool {
	unit := args[len(args)-1]
	switch args[0] {
	case "is-active":
		return m.active[unit]
	case "is-enabled":
		return m.enabled[unit]
	case "start", "restart":
		m.active[unit] = true
	case "enable":
		m.enabled[unit] = true
	case "disable":
		delete(m.active, unit)
		delete(m.enabled, unit)
	}
	return true
}

func nic(name string, prefixes ...string) host.Interface {
	i := host.Interface{Name: name, Kind: "device", Up: true}
	for _, p := range prefixes {
		i.Prefixes = append(i.Prefixes, netip.MustParsePrefix(p))
	}
	return i
}

func (m *machine) put(t *testing.T, name, data string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, (host.Files{Root: m.root}).WriteFile(name, []byte(data), mode))
}

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(m.root, name))
	require.NoError(t, err)
	return string(raw)
}

// files returns all files and directories, without ocadm's own state.
func (m *machine) files(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(m.root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(p, m.root)
		if name == host.StateDir {
			return filepath.SkipDir
		}
		if !d.IsDir() {
			name += "=" + m.read(t, name)
		}
		if name != "/var" && name != "/var/lib" { // parents of ocadm's state
			out = append(out, name)
		}
		return nil
	})
	require.NoError(t, err)
	return out
}

func (m *machine) Info(format string, args ...any) {
	m.said = append(m.said, fmt.Sprintf(format, args...))
}
func (m *machine) Output(string)                 {}
func (m *machine) Waiting(string, string)        {}
func (m *machine) Progress(int64, int64, string) {}
func (*machine) Alive()                          {}
func (m *machine) Changed(format string, args ...any) {
	m.changes = append(m.changes, fmt.Sprintf(format, args...))
}

// run walks the phases like the runner; ran lists those whose work was not done.
func (m *machine) run(t *testing.T, phases ...host.Phase) (ran []string, err error) {
	t.Helper()
	for _, p := range phases {
		if p.Check != nil {
			done, err := p.Check(t.Context(), m.Host)
			if err != nil {
				return ran, err
			}
			if done {
				continue
			}
		}
		if p.Plan != nil {
			if _, err := p.Plan(t.Context(), m.Host); err != nil {
				t.Fatal(err)
			}
		}
		ran = append(ran, p.Name)
		if err := p.Run(t.Context(), m.Host, m); err != nil {
			return ran, err
		}
	}
	return ran, nil
}

func (m *machine) must(t *testing.T, phases ...host.Phase) {
	t.Helper()
	if _, err := m.run(t, phases...); err != nil {
		t.Fatal(err)
	}
}

func code(err error) string {
	if l := finding.Of(err); len(l) > 0 {
		return l[0].Code
	}
	return fmt.Sprint(err)
}
