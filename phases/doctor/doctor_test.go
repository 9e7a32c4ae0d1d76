// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// machine is a healthy compute node in a directory, until a test changes it.
type machine struct {
	*host.Host
	root string
	// answers maps commands to their output; unlisted commands fail.
	answers map[string]string
}

const goodConf = `listen_interface: br0
networks: [eth0/br0/192.0.2.10]
disable_probe_kubelet: true
enable_remote_executor: true
local_image_path: [/opt/cloud/workspace/disks]
`

func show(unit, property string) string {
	return "systemctl show " + unit + " --property=" + property + " --value"
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	fill(t, 50)
	m := &machine{root: t.TempDir(), answers: map[string]string{
		show(executor.UnitName, "ActiveState"):        "active\n",
		show(executor.UnitName, "KillMode"):           "process\n",
		show("containerd.service", "ActiveState"):     "active\n",
		show("kubelet.service", "ActiveState"):        "active\n",
		"timedatectl show -p NTPSynchronized --value": "yes\n",
	}}
	m.put(t, "/etc/os-release", "ID=debian\n")
	m.put(t, "/proc/sys/kernel/osrelease", "6.1.0\n")
	m.put(t, "/proc/sys/kernel/hostname", "node2\n")
	m.put(t, "/lib/modules/6.1.0/modules.dep", "")
	m.put(t, "/lib/modules/6.1.0/modules.builtin", "kernel/tun.ko\nkernel/ifb.ko\nkernel/openvswitch.ko\nkernel/vhost_net.ko\nkernel/kvm-intel.ko\nkernel/kvm-amd.ko\n"+
		"kernel/geneve.ko\nkernel/nbd.ko\nkernel/vfio.ko\n")
	for _, p := range []string{"python3", "bash", "ip", "tc", "modprobe", "mount", "findmnt", "mountpoint", "losetup", "lsblk", "df", "ps", "awk", "grep",
		"systemctl", "nc", "chattr", "ionice", "qemu-img", "qemu-nbd", "ethtool", "qemu-system-x86_64"} {
		m.put(t, "/usr/bin/"+p, "")
	}
	for _, dir := range []string{"/opt/cloud/workspace/disks", "/usr/local", "/dev", "/sys", "/tmp", podLogDir} {
		require.NoError(t, os.MkdirAll(filepath.Join(m.root, dir), 0o755))
	}
	m.put(t, hostConf, goodConf)
	m.put(t, unitFile, "")
	rec := &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		if out, ok := m.answers[strings.Join(append([]string{c.Path}, c.Args...), " ")]; ok {
			return exec.Result{Stdout: out}, nil
		}
		return exec.Result{ExitCode: 1}, errors.New("exit status 1")
	}}
	h, err := host.Fake(t.Context(), m.root, &config.Config{}, rec)
	require.NoError(t, err)
	h.Facts.Interfaces = []host.Interface{{Name: "eth0", Up: true}, {Name: "br0", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")}}}
	m.Host = h
	return m
}

func (m *machine) put(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(m.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
}

func (m *machine) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(filepath.Join(m.root, name)))
}

// serve runs an executor on the machine.
func (m *machine) serve(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	socket := filepath.Join(m.root, executor.DefaultSocket)
	go func() { ended <- executor.Run(ctx, executor.Options{Socket: socket, StopTimeout: time.Millisecond}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		// The file exists before the server listens.
		if c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatal("the executor did not start")
		}
	}
}

func TestHealthyNode(t *testing.T) {
	m := newMachine(t)
	m.serve(t)
	if got := Gather(t.Context(), m.Host); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

const pod = podLogDir + "/onecloud_default-host-x7k2p_1234"

// line returns a log line in the runtime's format.
func line(text string) string { return "2026-11-20T08:14:02.123456789Z stderr F " + text + "\n" }

func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		// The code, and a part of what, cause or remedy. A leading w means a warning.
		code, want string
	}{
		"no compute node": {func(m *machine) { // as host-deployer leaves a controller
			m.remove(t, unitFile)
			m.put(t, podLogDir+"/onecloud_default-host-deployer-x7k2p_1234/host-deployer/0.log", line("starting"))
		}, "OCA-7100", "no host agent has run on it"},
		"unit not installed": {func(m *machine) {
			m.remove(t, unitFile)
			m.put(t, pod+"/host/0.log", line("starting"))
			m.answers[show(executor.UnitName, "ActiveState")], m.answers[show(executor.UnitName, "LoadState")] = "inactive\n", "not-found\n"
		}, "OCA-7102", "is not installed"},
		"unit failed": {func(m *machine) {
			m.answers[show(executor.UnitName, "ActiveState")], m.answers[show(executor.UnitName, "LoadState")] = "failed\n", "loaded\n"
		}, "OCA-7102", "systemd reports failed"},
		"no systemd": {func(m *machine) { clear(m.answers) }, "OCA-7102", "systemd does not answer"},
		"kill mode":  {func(m *machine) { m.answers[show(executor.UnitName, "KillMode")] = "control-group\n" }, "OCA-7103", "do not restart the unit"},
		"kubelet":    {func(m *machine) { m.answers[show("kubelet.service", "ActiveState")] = "activating\n" }, "OCA-7108", "journalctl -u kubelet.service"},
		"python3":    {func(m *machine) { m.remove(t, "/usr/bin/python3") }, "OCA-1101", "python3"},
		"module":     {func(m *machine) { m.put(t, "/lib/modules/6.1.0/modules.builtin", "kernel/tun.ko\nkernel/ifb.ko\n") }, "OCA-1103", "openvswitch"},
		"directory":  {func(m *machine) { m.remove(t, "/usr/local") }, "OCA-7105", "mkdir -p /usr/local"},
		"clock":      {func(m *machine) { m.answers["timedatectl show -p NTPSynchronized --value"] = "no\n" }, "wOCA-1018", "not synchronised"},
		"another way to write it": {func(m *machine) { m.edit(t, "eth0/br0/192.0.2.10", "eth0/br0/192.0.2.10/2001:DB8::10") },
			"OCA-7135", "2001:DB8::10 is on neither"},
		"broken conf":   {func(m *machine) { m.put(t, hostConf, "networks: [eth0\nbroken") }, "OCA-7106", "cannot be parsed"},
		"entry":         {func(m *machine) { m.put(t, hostConf, goodConf+"x: 1\n"); m.edit(t, "eth0/br0/192.0.2.10", "eth0/br0") }, "OCA-7106", "eth0/br0"},
		"docker":        {func(m *machine) { m.edit(t, "disable_probe_kubelet: true", "") }, "OCA-7111", "Docker"},
		"no effect":     {func(m *machine) { m.put(t, hostConf, goodConf+"default_qemu_version: 10.0.7\n") }, "wOCA-7107", "default_qemu_version"},
		"no NIC":        {func(m *machine) { m.edit(t, "eth0/", "eth7/") }, "OCA-7135", "eth7 does not exist"},
		"no address":    {func(m *machine) { m.edit(t, "192.0.2.10", "192.0.2.99") }, "OCA-7135", "192.0.2.99 is on neither eth0 nor br0"},
		"listen":        {func(m *machine) { m.edit(t, "listen_interface: br0", "listen_interface: br9") }, "OCA-7138", "br9 does not exist"},
		"no image path": {func(m *machine) { m.edit(t, "local_image_path: [/opt/cloud/workspace/disks]", "") }, "OCA-7117", "no local_image_path"},
		"no huge pages": {func(m *machine) { m.put(t, hostConf, goodConf+"hugepages_option: native\n") }, "OCA-7118", "No huge pages"},
		"log":           {func(m *machine) { m.put(t, pod+"/host/0.log", line("Not enough storage space!")) }, "OCA-7117", "pod default-host-x7k2p, container host (once)"},
		"log of a start": {func(m *machine) {
			m.put(t, pod+"/host/9.log", line("try create network: find_matched == false"))
			m.put(t, pod+"/host/10.log", line("starting"))
		}, "OCA-7130", "climc network-create"},
		"cut line": {func(m *machine) {
			m.put(t, pod+"/host/0.log", "2026-11-20T08:14:02Z stderr P duplicate manager\n2026-11-20T08:14:02Z stderr F _uri https://192.0.2.10:8885\n")
		}, "OCA-7140", "https://192.0.2.10:8885"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.serve(t)
			c.change(m)
			severity, code := finding.Error, c.code
			if after, ok := strings.CutPrefix(code, "w"); ok {
				severity, code = finding.Warning, after
			}
			got := Gather(t.Context(), m.Host)
			i := slices.IndexFunc(got, func(f finding.Finding) bool { return f.Code == code })
			if i < 0 {
				t.Fatalf("no %s in %+v", code, got)
			}
			f := got[i]
			if all := strings.Join(append([]string{f.What, f.Cause, f.Remedy}, f.Evidence...), "\n"); f.Severity != severity || !strings.Contains(all, c.want) || f.Remedy == "" || f.Check != "" {
				t.Errorf("%+v, want %q", f, c.want)
			}
			if len(got) != 1 && name != "no systemd" && name != "module" {
				t.Errorf("more than one: %+v", got)
			}
		})
	}
}

func (m *machine) edit(t *testing.T, old, new string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(m.root, hostConf))
	if err != nil || !strings.Contains(string(raw), old) {
		t.Fatalf("host.conf has no %q (%v)", old, err)
	}
	m.put(t, hostConf, strings.ReplaceAll(string(raw), old, new))
}

func TestExecutorDoesNotAnswer(t *testing.T) {
	m := newMachine(t)
	got := Gather(t.Context(), m.Host)
	if len(got) != 1 || got[0].Code != CodeExecutorSilent || !strings.Contains(got[0].Cause, "no such file") {
		t.Errorf("%+v", got)
	}
}

// Other pods' logs are not read; of an agent, only the last two starts count.
func TestOtherLogsAreNotRead(t *testing.T) {
	m := newMachine(t)
	m.serve(t)
	m.put(t, podLogDir+"/onecloud_default-region-abc_1/region/0.log", line("duplicate manager_uri https://192.0.2.77:8885"))
	m.put(t, podLogDir+"/onecloud_default-webhost_1/web/0.log", line("Not enough storage space!"))
	m.put(t, pod+"/host/1.log", line("Not enough storage space!"))
	m.put(t, pod+"/host/2.log", line("fine"))
	m.put(t, pod+"/host/3.log", line("fine"))
	m.put(t, pod+"/host/3.log.20261120.gz", "Not enough storage space!")
	if got := Gather(t.Context(), m.Host); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestHostConfOfLines(t *testing.T) {
	got, err := parse("# comment\n[DEFAULT]\nlisten_interface = br0\nlocal_image_path = '/opt/cloud'\n")
	if err != nil || got["listen_interface"] != "br0" || !slices.Equal(texts(got["local_image_path"]), []string{"/opt/cloud"}) {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzHostConf(f *testing.F) {
	f.Add(goodConf)
	f.Add("a = b\nnetworks = [")
	f.Add("networks: {a: [1, null]}\nlocal_image_path: 7\nhugepages_option: native\nhugepage_size_mb: x")
	f.Fuzz(func(t *testing.T, text string) {
		conf, err := parse(text)
		if err == nil {
			judgeNetworks(conf, host.Facts{})
			texts(conf["local_image_path"])
		}
	})
}

// fill makes every disk used to a percentage.
func fill(t *testing.T, percent uint64) {
	t.Helper()
	original := statfs
	t.Cleanup(func() { statfs = original })
	statfs = func(path string, fs *unix.Statfs_t) error {
		err := original(path, fs)
		fs.Blocks, fs.Bavail, fs.Bsize = 100, 100-percent, 1<<30
		return err
	}
}

func TestFullDisk(t *testing.T) {
	m := newMachine(t)
	for settings, limit := range map[string]uint64{
		"": 86, // the kubelet's defaults
		"imageGCHighThresholdPercent: 95\nevictionHard: {nodefs.available: 1Gi}\n":    96,
		"imageGCHighThresholdPercent: 95\nevictionHard: {nodefs.available: \"8%\"}\n": 89,
	} {
		m.put(t, kubernetes.KubeletConfigFile, settings)
		for percent, want := range map[uint64]int{limit - 1: 0, limit: 1} {
			fill(t, percent)
			if got := disks(t.Context(), m.Host); len(got) != want {
				t.Errorf("%q %d %%: %+v", settings, percent, got)
			}
		}
	}
}
