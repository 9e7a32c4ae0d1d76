// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
	"yunion.io/x/ocadm/templates/nodefiles"
)

const kernel = "6.1.0"

// machine is a fake machine and what was said and run on it.
type machine struct {
	*host.Host
	rec  *host.Recorder
	root string
	// fails are the command lines that fail.
	fails map[string]bool
	// active and enabled are the units of systemd.
	active, enabled map[string]bool
	said, changes   []string
}

// newMachine is a Debian machine with one interface, whose kernel has every module but those that change takes away.
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

// boot makes the host anew, as another run of the program would.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	c := &config.Config{}
	if m.Host != nil {
		c = m.Config
	}
	c.Node.EnableHostAgent, c.Node.IP, c.Node.Name = true, "192.0.2.10", "node2"
	h, err := host.Fake(t.Context(), m.root, c, m.rec)
	if err != nil {
		t.Fatal(err)
	}
	h.Facts.Interfaces = []host.Interface{nic("eth0", "192.0.2.10/24")}
	h.Facts.Interface, h.Facts.Hostname = "eth0", "node2"
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
	if err := (host.Files{Root: m.root}).WriteFile(name, []byte(data), mode); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// files are all files and directories, without ocadm's own state.
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
		if name != "/var" && name != "/var/lib" { // above ocadm's state
			out = append(out, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (m *machine) Info(format string, args ...any) {
	m.said = append(m.said, fmt.Sprintf(format, args...))
}
func (m *machine) Output(string)                 {}
func (m *machine) Waiting(string, string)        {}
func (m *machine) Progress(int64, int64, string) {}
func (m *machine) Changed(format string, args ...any) {
	m.changes = append(m.changes, fmt.Sprintf(format, args...))
}

// run walks the phases as the runner does; ran are those whose work was not done.
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

func TestResetTakesBackExactlyWhatWasMade(t *testing.T) {
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
	for _, e := range m.Ledger.Created() { // as node's undo-files does at the end
		if err := m.Files.Undo(e); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l...)
	}
	for _, want := range []string{"load the kernel module ifb", "make /opt/cloud", "write /usr/local/bin/ovs-vsctl", "write /etc/yunion/host.conf"} {
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
		findings []string // codes of preflight
		err      string   // code of the phase
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
		"a kernel that tells nothing": {func(t *testing.T, m *machine) {
			if err := os.RemoveAll(filepath.Join(m.root, "lib/modules")); err != nil {
				t.Fatal(err)
			}
			m.put(t, "/dev/net/tun", "", 0o644)
		}, nil, "", []string{"ifb numifbs=0", "openvswitch"}, ""},
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
				if f.Code == CodeModule && (f.Severity != finding.Error || !strings.Contains(f.Remedy, "apt-get install -y linux-image-"+kernel)) {
					t.Errorf("%+v", f)
				}
			}
			if d := cmp.Diff(tt.findings, codes); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
			_, err := m.run(t, modulesPhase())
			if tt.err != "" || err != nil {
				if code(err) != tt.err {
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
		if err := os.Remove(filepath.Join(m.root, "usr/bin", p)); err != nil {
			t.Fatal(err)
		}
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
	// An older release's wrapper is brought up to date, somebody's own program of that name is not.
	m.boot(t)
	m.put(t, "/usr/local/bin/ovs-ofctl", "#!/bin/sh\nold", 0o755)
	m.put(t, "/usr/local/bin/ovs-appctl", "theirs", 0o755)
	if err := m.Ledger.Forget(host.KindFile, "/usr/local/bin/ovs-appctl"); err != nil {
		t.Fatal(err)
	}
	m.must(t, commandsPhase())
	if m.read(t, "/usr/local/bin/ovs-ofctl") != wrapper || m.read(t, "/usr/local/bin/ovs-appctl") != "theirs" {
		t.Error("not ours alone was written")
	}
}

// The wrapper is a shell script: run it with a ctr that prints what it is called with.
func TestWrapperRunsTheImageOfThePods(t *testing.T) {
	tests := map[string]struct{ containers, image, status string }{
		"the running switch": {"CONTAINER IMAGE RUNTIME\nabc registry.example/openvswitch:2.12 io.containerd.runc.v2", "registry.example/openvswitch:2.12", ""},
		"no pod yet":         {"CONTAINER IMAGE RUNTIME", "", "exit status 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script := filepath.Join(dir, "ovs-vsctl")
			ctr := "#!/bin/sh\nif [ \"$3\" = containers ]; then printf '%s\\n' '" + tt.containers + "'; exit; fi\nfor a; do printf '%s\\n' \"$a\"; done\nexit 3\n"
			for file, text := range map[string]string{script: wrapper, filepath.Join(dir, "ctr"): ctr} {
				if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
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

func TestSwitchServiceInTheWay(t *testing.T) {
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
}

func TestHostConf(t *testing.T) {
	const edited = "# my file\nreport_interval: 30 # mine\nnetworks: [bond0/br0/192.0.2.10]\n"
	tests := map[string]struct {
		before string // "" is no file
		set    func(*config.Node)
		want   string // whole file, when not ""
		lines  []string
		says   string
	}{
		"no file": {"", func(n *config.Node) {}, nodefiles.Host, nil, ""},
		"no file, with settings": {"", func(n *config.Node) {
			n.HostNetworks, n.ListenInterface, n.HostLocalImagePath, n.Hugepages = []string{"eth0/br0/192.0.2.10"}, "br0", []string{"/data"}, "disable"
		}, "", []string{"networks: [eth0/br0/192.0.2.10]", "listen_interface: br0", "local_image_path: [/data]", "hugepages_option: disable", "disable_probe_kubelet: true",
			"report_interval: 60", "# Made by the cloud's operator"}, "makes the bridge br0"},
		"the operator's": {nodefiles.Host, func(n *config.Node) { n.HostNetworks = []string{"eth0/br0/192.0.2.10"} }, "", []string{"networks: [eth0/br0/192.0.2.10]"}, ""},
		"edited": {edited, func(n *config.Node) { n.HostNetworks = []string{"eth0/br0/192.0.2.10"} }, edited + "disable_probe_kubelet: true\n", nil,
			"networks stays as it is"},
		"edited to the same": {edited, func(n *config.Node) { n.HostNetworks = []string{"bond0/br0/192.0.2.10"} }, edited + "disable_probe_kubelet: true\n", nil, ""},
		"empty":              {"\n", func(*config.Node) {}, "disable_probe_kubelet: true\n", nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if tt.before != "" {
				m.put(t, hostConf, tt.before, 0o644)
			}
			tt.set(&m.Config.Node)
			m.must(t, hostConfPhase())
			got := m.read(t, hostConf)
			if tt.want != "" && got != tt.want {
				t.Errorf("host.conf (-want +got):\n%s", cmp.Diff(tt.want, got))
			}
			for _, l := range tt.lines {
				if !strings.Contains(got, l) {
					t.Errorf("host.conf lacks %q:\n%s", l, got)
				}
			}
			if !strings.Contains(strings.Join(m.said, "\n"), tt.says) {
				t.Errorf("says %q", m.said)
			}
			m.boot(t)
			m.must(t, ResetPhases()...)
			if after, err := os.ReadFile(filepath.Join(m.root, hostConf)); tt.before != "" && string(after) != tt.before || tt.before == "" && err == nil {
				t.Errorf("after reset host.conf is %q, was %q", after, tt.before)
			}
		})
	}
}

func TestEditsOfHostConfSurvive(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.Config.Node.HostNetworks = []string{"eth0/br0/192.0.2.10"} })
	m.must(t, hostConfPhase())
	// Other values than at first: ours follow.
	m.boot(t)
	m.Config.Node.HostNetworks, m.Config.Node.Hugepages = []string{"eth0/br1/192.0.2.10"}, "native"
	m.must(t, hostConfPhase())
	if got := m.read(t, hostConf); !strings.Contains(got, "eth0/br1/192.0.2.10") || !strings.Contains(got, "native") {
		t.Errorf("host.conf did not follow:\n%s", got)
	}
	// Edited by someone: it stays, the rest follows.
	edited := strings.ReplaceAll(m.read(t, hostConf), "eth0/br1/192.0.2.10", "eth0/br7/192.0.2.10") + "rack: r1\n"
	m.put(t, hostConf, edited, 0o644)
	m.boot(t)
	m.Config.Node.HostNetworks, m.Config.Node.Hugepages = []string{"eth0/br2/192.0.2.10"}, "disable"
	m.must(t, hostConfPhase())
	if got := m.read(t, hostConf); !strings.Contains(got, "eth0/br7/192.0.2.10") || !strings.Contains(got, "rack: r1") || !strings.Contains(got, "hugepages_option: disable") {
		t.Errorf("host.conf:\n%s", got)
	}
	m.put(t, hostConf, m.read(t, hostConf)+"slots: s1\n", 0o644)
	m.boot(t)
	m.must(t, ResetPhases()...)
	if got := m.read(t, hostConf); !strings.Contains(got, "slots: s1") || m.Ledger.Has(host.KindFile, hostConf) {
		t.Errorf("reset did not leave the edited file:\n%s", got)
	}
	if m.Files.Exists(appliedFile) {
		t.Errorf("%s is left", appliedFile)
	}
}

func TestHostConfThatIsNotYAML(t *testing.T) {
	m := newMachine(t)
	for _, text := range []string{"networks = ['eth0/br0/192.0.2.10']\n", "- a list\n", "a: [\n"} {
		m.put(t, hostConf, text, 0o644)
		if _, err := m.run(t, hostConfPhase()); code(err) != CodeHostConf {
			t.Errorf("%q: %v", text, err)
		}
		if got := m.read(t, hostConf); got != text {
			t.Errorf("changed to %q", got)
		}
	}
}

func TestHostNetworks(t *testing.T) {
	own := nic("eth0", "192.0.2.10/24", "fe80::1/64")
	tests := map[string]struct {
		network string
		change  func(*host.Interface)
		more    []host.Interface
		want    string // code
		says    string
	}{
		"good":                     {network: "eth0/br0/192.0.2.10"},
		"after the agent moved it": {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Prefixes, i.Master, i.MasterKind = nil, "ovs-system", kindSwitch }, more: []host.Interface{{Name: "br0", Kind: kindSwitch, Prefixes: own.Prefixes}}},
		"no such interface":        {network: "eth1/br0/192.0.2.10", want: CodeNetwork, says: "no interface eth1, only eth0"},
		"no such address":          {network: "eth0/br0/192.0.2.11", want: CodeNetwork, says: "not the address 192.0.2.11 but 192.0.2.10"},
		"a Linux bridge":           {network: "eth0/br0/192.0.2.10", more: []host.Interface{{Name: "br0", Kind: "bridge"}}, want: CodeNetwork, says: "not a bridge of Open vSwitch"},
		"part of a bond":           {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Master, i.MasterKind = "bond0", "bond" }, want: CodeNetwork, says: "part of bond0"},
		"loopback":                 {network: "lo/br0/192.0.2.10", more: []host.Interface{nic("lo", "192.0.2.10/32")}, want: CodeNetwork, says: "no interface to the outside"},
		"a wire and an address":    {network: "eth0/br0/bcast0", want: CodeNetwork, says: "give eth0/br0/192.0.2.10"},
		"a wire":                   {network: "eth1/br1/bcast0", more: []host.Interface{nic("eth1", "fe80::2/64")}},
		"leased":                   {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Leased = []netip.Addr{netip.MustParseAddr("192.0.2.10")} }, want: CodeNetworkRisk, says: "DHCP"},
		"wireless":                 {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Wireless = true }, want: CodeNetworkRisk, says: "wireless"},
		"VLAN":                     {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Kind = "vlan" }, want: CodeNetworkRisk, says: "VLAN"},
		"another address than the node's": {network: "eth0/br0/198.51.100.1", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("198.51.100.1/24"))
		}, want: CodeNetworkRisk, says: "by which the cluster knows this node"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			i := own
			if tt.change != nil {
				tt.change(&i)
			}
			m.Facts.Interfaces = append([]host.Interface{i}, tt.more...)
			m.Config.Node.HostNetworks = []string{tt.network}
			got := HostNetworks(m.Host)
			if tt.want == "" {
				if len(got) > 0 {
					t.Errorf("%+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Code != tt.want || !strings.Contains(got[0].Cause, tt.says) {
				t.Fatalf("%+v", got)
			}
			m.Config.Run.Force = true
			if forced := HostNetworks(m.Host); (len(forced) == 0) != (tt.want == CodeNetworkRisk) {
				t.Errorf("with --force: %+v", forced)
			}
		})
	}
}

func TestListenInterface(t *testing.T) {
	for name, want := range map[string]string{"br0": "", "eth1": "", "eth0": "give --listen-interface br0", "eth2": "no address", "eth9": "no interface eth9"} {
		m := newMachine(t)
		m.Facts.Interfaces = append(m.Facts.Interfaces, nic("eth1", "198.51.100.1/24"), nic("eth2"))
		m.Config.Node.HostNetworks, m.Config.Node.ListenInterface = []string{"eth0/br0/192.0.2.10"}, name
		got := HostNetworks(m.Host)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Code != CodeListenInterface || !strings.Contains(got[0].Cause, want)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestHostName(t *testing.T) {
	for _, tt := range []struct {
		node, machine string
		severity      finding.Severity
	}{{"node2", "node2", ""}, {"node2", "NODE2.example.org", ""}, {"2node", "2node", finding.Error}, {"a.b", "a.b", finding.Error}, {"node2", "other", finding.Warning}} {
		m := newMachine(t)
		m.Config.Node.Name, m.Facts.Hostname = tt.node, tt.machine
		got := HostName(m.Host)
		if tt.severity == "" && len(got) > 0 || tt.severity != "" && (len(got) != 1 || got[0].Severity != tt.severity) {
			t.Errorf("%+v: %+v", tt, got)
		}
	}
}

// merge keeps every key that it does not set, whatever the file holds.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{nodefiles.Host, "", "a: b\n", "networks: [x]\n", "networks:\n  - y # c\n", "{a: 1}", "---\na: &x 1\nb: *x\n", "? [a]\n: b\n"} {
		f.Add(s)
	}
	want := map[string]any{"disable_probe_kubelet": true, "networks": []any{"eth0/br0/192.0.2.10"}}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := merge(text, nil, want)
		if err != nil {
			return
		}
		again, err := merge(m.text, nil, want)
		if err != nil || len(again.set) > 0 {
			t.Fatalf("merged once %q, then %v, %v", m.text, again.set, err)
		}
		if before, after := keysOf(t, text), keysOf(t, m.text); !isSubset(before, after) {
			t.Errorf("lost keys: %v, then %v", before, after)
		}
	})
}

func isSubset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(k string) bool { return !slices.Contains(b, k) })
}

func keysOf(t *testing.T, text string) []string {
	t.Helper()
	have := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &have); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return slices.Sorted(maps.Keys(have))
}
