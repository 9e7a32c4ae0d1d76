// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestPhaseIsSound(t *testing.T) {
	preflight := host.Phase{Name: "preflight", Short: "Look", Run: func(context.Context, *host.Host, workflow.Reporter) error { return nil }}
	if err := workflow.Validate(append([]host.Phase{preflight, Phase()}, ResetPhases()...)); err != nil {
		t.Error(err)
	}
	m := newMachine(t)
	m.Config.Node.EnableHostAgent = false
	if Phase().Skip(m.Host) == "" {
		t.Error("the phase runs on a node that is to run no virtual machines")
	}
}

func TestResetUndoesExactlyWhatWasDone(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		m.Config.Node.HostNetworks = []string{"eth0/br0/192.0.2.10"}
		m.put(t, "/etc/yunion/other.conf", "theirs", 0o600)
		for _, name := range []string{"/sys/module/ifb/x", "/sys/module/openvswitch/x", "/dev/kvm"} {
			m.put(t, name, "", 0o644)
		}
	})
	before := m.files(t)
	m.must(t, Phase().Phases...)
	if len(m.files(t)) <= len(before) {
		t.Fatal("nothing was made")
	}
	m.boot(t)
	if ran, err := m.run(t, Phase().Phases...); err != nil || len(ran) > 0 {
		t.Errorf("a second run does %v (%v)", ran, err)
	}
	m.boot(t)
	m.must(t, ResetPhases()...)
	for _, e := range m.Ledger.Created() { // like undo-files of node at the end
		require.NoError(t, m.Files.Undo(e))
	}
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Errorf("after reset (-before +after):\n%s", d)
	}
	m.boot(t)
	if ran, err := m.run(t, ResetPhases()...); err != nil || len(ran) > 0 {
		t.Errorf("a second reset does %v (%v)", ran, err)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.Config.Run.DryRun = true })
	m.boot(t)
	before := m.files(t)
	var lines []string
	for _, p := range Phase().Phases {
		l, err := p.Plan(t.Context(), m.Host)
		require.NoError(t, err)
		lines = append(lines, l...)
	}
	for _, want := range []string{"load the kernel module ifb", "create /opt/cloud", "write /usr/local/bin/ovs-vsctl", "set networks in /etc/yunion/host.conf"} {
		if !strings.Contains(strings.Join(lines, "\n"), want) {
			t.Errorf("the plan lacks %q:\n%s", want, strings.Join(lines, "\n"))
		}
	}
	if d := cmp.Diff(before, m.files(t)); d != "" {
		t.Error(d)
	}
}

func TestModules(t *testing.T) {
	tests := map[string]struct {
		change   func(*testing.T, *machine)
		findings []string // preflight codes
		err      string   // code of the phase's error
		loads    []string
		files    string
	}{
		"as in a distribution": {func(*testing.T, *machine) {}, []string{CodeOptionalModule}, "",
			[]string{"ifb numifbs=0", "openvswitch", "kvm_intel"}, "ifb openvswitch kvm_intel"},
		"loaded already": {func(t *testing.T, m *machine) {
			for _, n := range []string{"ifb", "openvswitch"} {
				m.put(t, "/sys/module/"+n+"/refcnt", "0", 0o644)
			}
			m.put(t, "/dev/kvm", "", 0o644)
		}, []string{CodeOptionalModule}, "", nil, "ifb openvswitch kvm_intel"},
		"none to be had": {func(t *testing.T, m *machine) {
			m.put(t, "/lib/modules/"+kernel+"/modules.dep", "kernel/drivers/net/ifb.ko:\n", 0o644)
			m.fails["modprobe openvswitch"] = true
		}, []string{CodeModule, CodeOptionalModule}, CodeModule, nil, ""},
		"accepted": {func(t *testing.T, m *machine) {
			m.put(t, "/lib/modules/"+kernel+"/modules.dep", "kernel/drivers/net/ifb.ko:\n", 0o644)
			m.fails["modprobe openvswitch"] = true
			m.Config.Run.IgnorePreflightErrors = []string{"computemodules"}
		}, []string{CodeModule, CodeOptionalModule}, "", []string{"ifb numifbs=0"}, "ifb"},
		"a kernel that says nothing": {func(t *testing.T, m *machine) {
			require.NoError(t, os.RemoveAll(filepath.Join(m.root, "lib/modules")))
			m.put(t, "/dev/net/tun", "", 0o644)
		}, []string{CodeModule}, "", []string{"ifb numifbs=0", "openvswitch"}, ""},
		"an AMD processor": {func(t *testing.T, m *machine) {
			m.put(t, "/proc/cpuinfo", "vendor_id\t: AuthenticAMD\n", 0o644)
			m.put(t, "/lib/modules/"+kernel+"/modules.builtin", "kernel/arch/x86/kvm/kvm-amd.ko\nkernel/drivers/net/tun.ko\n", 0o644)
		}, []string{CodeOptionalModule}, "", nil, "ifb openvswitch"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tt.change(t, m)
			var codes []string
			for _, f := range Modules(m.Host) {
				codes = append(codes, f.Code)
				if f.Severity == finding.Warning && f.Code == CodeModule {
					if strings.Contains(f.Remedy, "apt-get") || !strings.HasPrefix(f.Remedy, "try: modprobe -a ifb openvswitch;") {
						t.Errorf("of a kernel without a list of modules: %+v", f)
					}
					continue
				}
				if f.Code == CodeModule && (f.Severity != finding.Error || !strings.Contains(f.Remedy, "apt-get install -y linux-image-"+kernel)) {
					t.Errorf("%+v", f)
				}
			}
			if d := cmp.Diff(tt.findings, codes); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			_, err := m.run(t, modulesPhase())
			if tt.err != "" || err != nil {
				if code(err) != tt.err || !strings.Contains(finding.Of(err)[0].Remedy, "--ignore-preflight-errors "+CheckModules) {
					t.Errorf("ends with %v, want %q", err, tt.err)
				}
				return
			}
			for _, want := range tt.loads {
				if !slices.Contains(m.rec.Calls(), "modprobe "+want) {
					t.Errorf("did not load %q: %v", want, m.rec.Calls())
				}
			}
			if slices.ContainsFunc(m.rec.Calls(), func(c string) bool { return strings.HasPrefix(c, "modprobe tun") }) {
				t.Error("loaded tun, which is built in")
			}
			if got := strings.Join(strings.Fields(strings.SplitN(m.read(t, modulesFile), "\n", 2)[1]), " "); got != tt.files {
				t.Errorf("%s lists %q, want %q", modulesFile, got, tt.files)
			}
		})
	}
}

func TestPrograms(t *testing.T) {
	m := newMachine(t)
	if f := Programs(m.Host); len(f) > 0 {
		t.Errorf("nothing is missing, and yet: %+v", f)
	}
	for _, p := range []string{"python3", "qemu-img", "qemu-system-x86_64"} {
		require.NoError(t, os.Remove(filepath.Join(m.root, "usr/bin", p)))
	}
	got := Programs(m.Host)
	if len(got) != 2 || got[0].Code != CodeProgram || got[1].Code != CodeOptionalProgram || got[1].Severity != finding.Warning {
		t.Fatalf("%+v", got)
	}
	if got[0].Remedy != "apt-get install -y python3" || !strings.Contains(got[1].Remedy, "qemu-utils") || !strings.Contains(got[1].Cause, "no virtual machine starts") {
		t.Errorf("%+v", got)
	}
}

func TestWrappersOnlyWhereTheNodeHasNone(t *testing.T) {
	m := newMachine(t)
	m.put(t, "/usr/bin/ovs-vsctl", "theirs", 0o755)
	m.must(t, commandsPhase())
	if m.Files.Exists("/usr/local/bin/ovs-vsctl") || !m.Files.Exists("/usr/local/bin/ovs-ofctl") {
		t.Errorf("wrote %v", m.changes)
	}
	// An older release's wrapper is updated; a program of that name from elsewhere is not.
	m.boot(t)
	m.put(t, "/usr/local/bin/ovs-ofctl", "#!/bin/sh\nold", 0o755)
	m.put(t, "/usr/local/bin/ovs-appctl", "theirs", 0o755)
	require.NoError(t, m.Ledger.Forget(host.KindFile, "/usr/local/bin/ovs-appctl"))
	m.must(t, commandsPhase())
	if m.read(t, "/usr/local/bin/ovs-ofctl") != wrapper || m.read(t, "/usr/local/bin/ovs-appctl") != "theirs" {
		t.Error("not ours alone was written")
	}
}

// The wrapper is a shell script: run it with a ctr that prints its arguments.
func TestWrapperRunsTheImageOfThePods(t *testing.T) {
	const image = "registry.example/openvswitch:2.12"
	tests := map[string]struct{ container, image string }{
		"the switch":              {"ovs-vswitchd", image},
		"the switch's database":   {"ovsdb-server", image},
		"another pod of the node": {"host", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := filepath.Join(dir, "ovs-vsctl")
			ctr := "#!/bin/sh\nif [ \"$3\" = containers ]; then\necho CONTAINER IMAGE RUNTIME\n" +
				"case $5 in *'==" + tt.container + "') echo abc " + image + " io.containerd.runc.v2 ;; esac\nexit\nfi\n" +
				"for a; do printf '%s\\n' \"$a\"; done\nexit 3\n"
			for file, text := range map[string]string{script: wrapper, filepath.Join(dir, "ctr"): ctr} {
				require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
			}
			res, err := exec.Machine{}.Run(t.Context(), exec.Command{Path: script, Args: []string{"--", "add-br", "a b"}, Env: []string{"PATH=" + dir + ":/usr/bin:/bin"}})
			if tt.image == "" {
				if res.ExitCode != 1 || !strings.Contains(res.Stderr, "no Open vSwitch pod") {
					t.Errorf("status %d, %v", res.ExitCode, err)
				}
				return
			}
			args := strings.Split(strings.TrimSpace(res.Stdout), "\n")
			if res.ExitCode != 3 {
				t.Errorf("the status of the command is lost: %d", res.ExitCode)
			}
			i := slices.Index(args, tt.image)
			if i < 0 || !strings.HasPrefix(args[i+1], "ocadm-ovs-vsctl-") || !slices.Equal(args[i+2:], []string{"ovs-vsctl", "--", "add-br", "a b"}) {
				t.Errorf("called with %q", args)
			}
		})
	}
}

func TestConflictingSwitchService(t *testing.T) {
	m := newMachine(t)
	if f := SwitchService(t.Context(), m.Host); len(f) > 0 {
		t.Errorf("no service runs, and yet: %+v", f)
	}
	m.rec.Answer = func(c exec.Command) (exec.Result, error) {
		if slices.Equal(c.Args, []string{"is-enabled", "openvswitch-switch.service"}) {
			return exec.Result{Stdout: "enabled\n"}, nil
		}
		if slices.Equal(c.Args, []string{"is-enabled", "openvswitch.service"}) {
			return exec.Result{Stdout: "masked\n", ExitCode: 1}, errors.New("masked")
		}
		return exec.Result{ExitCode: 3}, errors.New("inactive")
	}
	f := SwitchService(t.Context(), m.Host)
	if len(f) != 1 || f[0].Remedy != "systemctl disable --now openvswitch-switch && systemctl mask openvswitch-switch" {
		t.Fatalf("%+v", f)
	}
	m.Facts.Interface = "br0"
	m.Facts.Interfaces = []host.Interface{{Name: "br0", Kind: kindSwitch}}
	if f := SwitchService(t.Context(), m.Host); len(f) != 1 || !strings.Contains(f[0].Cause, "cut off") {
		t.Errorf("%+v", f)
	}
	// The machine may have no default route, or have it by another interface than that of its address.
	m.Facts.Interface = "eth1"
	m.Facts.Interfaces = []host.Interface{nic("eth1", "198.51.100.10/24"), {Name: "br0", Kind: kindSwitch, Prefixes: nic("", "192.0.2.10/24").Prefixes}}
	if f := SwitchService(t.Context(), m.Host); len(f) != 1 || !strings.Contains(f[0].Cause, "cut off") {
		t.Errorf("%+v", f)
	}
}
