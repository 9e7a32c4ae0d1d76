// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"yunion.io/x/ocadm/internal/finding"
)

// systemChecks check how the machine is set up. What cannot be read is given the benefit of the doubt.
func systemChecks() []Check {
	return []Check{
		{Name: "NodeName", Short: "the node's name is short enough, and not a default name", Codes: []string{"OCA-1037"}, run: checkNodeName},
		{Name: "MachineID", Short: "the machine has its own identity", Codes: []string{"OCA-1038"}, run: checkMachineID},
		{Name: "Processor", Short: "the processor has the instructions that images need", Codes: []string{"OCA-1039"}, run: checkProcessor},
		{Name: "Date", Short: "the clock is not in the past", Codes: []string{"OCA-1040"}, run: checkDate},
		{Name: "AppArmor", Short: "containerd can load its AppArmor profile", Codes: []string{"OCA-1041"}, run: checkAppArmor},
		{Name: "Seccomp", Short: "the kernel filters system calls", Codes: []string{"OCA-1042"}, run: checkSeccomp},
		{Name: "KernelLog", Short: "the kubelet can read the messages of the kernel", Codes: []string{"OCA-1043"}, run: checkKernelLog},
		{Name: "BlockedModules", Short: "no rule of modprobe blocks a module that is needed", Codes: []string{"OCA-1044"}, run: checkBlockedModules},
		{Name: "OpenFiles", Short: "containers may open enough files", Codes: []string{"OCA-1045"}, run: tooLow("OCA-1045",
			"Too few files can be opened", "databases and other images need 1048576, and do not start with less", 1<<20, "fs.nr_open", "fs.file-max")},
		{Name: "Processes", Short: "enough processes can run", Codes: []string{"OCA-1046"}, run: tooLow("OCA-1046",
			"Too few processes can run", "a node with many pods runs out of them, and fork fails", 32768, "kernel.pid_max", "kernel.threads-max")},
		{Name: "FreeMemory", Short: "other programs leave enough memory", Codes: []string{"OCA-1047"}, run: checkFreeMemory},
		{Name: "Systemd", Short: "systemd can delegate cgroup v2", Codes: []string{"OCA-1048"}, run: checkSystemd},
		{Name: "ProgramControl", Short: "no access control keeps the installed programs from running", Codes: []string{"OCA-1049"}, run: checkProgramControl},
		{Name: "KubeletUnits", Short: "no package changes the units of kubelet and containerd", Codes: []string{"OCA-1051"}, run: checkKubeletUnits},
		{Name: "KernelSettings", Short: "no file reverts the kernel settings of ocadm at boot", Codes: []string{"OCA-1052"}, run: checkKernelSettings},
		{Name: "MachineUpdates", Short: "no program updates Kubernetes and containerd automatically", Codes: []string{"OCA-1053"}, run: checkMachineUpdates},
	}
}

func checkNodeName(_ context.Context, m *machine) []finding.Finding {
	const longest = 63
	name := m.h.Config.Node.Name
	switch {
	case name == "localhost" || strings.HasPrefix(name, "localhost."):
		return []finding.Finding{finding.New("OCA-1037", "The node would be named "+name, "every machine without a name has this name, and a cluster accepts it only once",
			"hostnamectl set-hostname NAME, or --node-name NAME")}
	case len(name) > longest:
		return []finding.Finding{finding.New("OCA-1037", "The name of the node is too long",
			fmt.Sprintf("it has %d characters; the label kubernetes.io/hostname allows %d", len(name), longest),
			"choose a shorter one: --node-name NAME")}
	}
	return nil
}

func checkMachineID(_ context.Context, m *machine) []finding.Finding {
	const file, bytes = "/etc/machine-id", 16
	if !m.h.Files.Exists(file) {
		return nil
	}
	id := strings.TrimSpace(m.h.Files.Text(file))
	if raw, err := hex.DecodeString(id); err == nil && len(raw) == bytes && strings.Trim(id, "0") != "" {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1038", "The machine has no identity", fmt.Sprintf("%s contains %q; DHCP, journald and the node's information use it", file, id),
		"systemd-machine-id-setup, then reboot")}
}

// neededFlags are the CPU flags of x86-64-v2, for which the glibc of current images is built.
var neededFlags = []string{"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"}

func checkProcessor(_ context.Context, m *machine) []finding.Finding {
	for line := range strings.Lines(m.h.Files.Text("/proc/cpuinfo")) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) != "flags" || m.h.Facts.Arch != "amd64" {
			continue
		}
		missing := without(neededFlags, strings.Fields(value))
		if len(missing) == 0 {
			return nil
		}
		return []finding.Finding{finding.Warn("OCA-1039", "Programs of current images will not start on this processor",
			"it lacks "+strings.Join(missing, ", ")+" (x86-64-v2); a virtual machine has them with a different processor model", "set the processor model of the virtual machine to host")}
	}
	return nil
}

// built is a date before every release: a clock earlier than that is wrong.
var built = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func checkDate(_ context.Context, m *machine) []finding.Finding {
	if now := m.now(); now.Before(built) {
		return []finding.Finding{finding.New("OCA-1040", "The clock of the machine is wrong", "it shows "+now.UTC().Format(time.DateTime)+" UTC: no certificate is valid yet",
			"timedatectl set-ntp true, or: timedatectl set-time 'YYYY-MM-DD HH:MM:SS'")}
	}
	return nil
}

func checkAppArmor(_ context.Context, m *machine) []finding.Finding {
	if strings.TrimSpace(m.h.Files.Text("/sys/module/apparmor/parameters/enabled")) != "Y" ||
		m.h.Files.Any("/sbin/apparmor_parser", "/usr/sbin/apparmor_parser") {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-1041", "AppArmor is on without its parser",
		"containerd loads profiles with apparmor_parser, which is not installed: it confines no container, and pods that request a profile do not start",
		m.h.Facts.OS.Install("apparmor_parser"))}
}

func checkSeccomp(_ context.Context, m *machine) []finding.Finding {
	status := m.h.Files.Text("/proc/self/status")
	if !strings.Contains(status, "\nPid:") || strings.Contains(status, "\nSeccomp:") {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1042", "The kernel cannot filter system calls",
		"pods with the profile RuntimeDefault do not start without CONFIG_SECCOMP_FILTER",
		"boot a kernel of the distribution")}
}

func checkKernelLog(_ context.Context, m *machine) []finding.Finding {
	if !m.h.Files.Exists("/dev/null") || m.h.Files.Exists("/dev/kmsg") {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1043", "The kubelet will not start: there is no /dev/kmsg",
		"it reads there which processes ran out of memory; containers of LXC lack the device",
		"give the container the device (lxc.mount.entry = /dev/kmsg dev/kmsg none defaults,bind,create=file), or use a virtual machine")}
}

var blocks = regexp.MustCompile(`(?m)^\s*install\s+(\S+)\s+(?:/usr)?/bin/(?:true|false)\b`)

func checkBlockedModules(_ context.Context, m *machine) []finding.Finding {
	for _, file := range m.h.Files.Glob("/etc/modprobe.d/*.conf") {
		for _, found := range blocks.FindAllStringSubmatch(m.h.Files.Text(file), -1) {
			for _, f := range features() {
				if strings.ReplaceAll(found[1], "-", "_") != f.module || f.applies != nil && !f.applies(m.h.Config) || m.h.Files.Exists("/sys/module/"+f.module) {
					continue
				}
				return []finding.Finding{finding.New("OCA-1044", "A rule keeps the kernel from loading "+f.module,
					file+" has \""+strings.TrimSpace(found[0])+"\", and "+f.why+" needs the module",
					"sed -i 's/^\\s*install\\s\\+"+found[1]+"\\s/#&/' "+file)}
			}
		}
	}
	return nil
}

// number returns the number in a file, 0 if there is none.
func (m *machine) number(file string) int {
	n, err := strconv.Atoi(strings.TrimSpace(m.h.Files.Text(file)))
	if err != nil {
		return 0
	}
	return n
}

// tooLow returns a check that warns about the first of these limits of the kernel that is below least.
func tooLow(code, what, why string, least int, names ...string) func(context.Context, *machine) []finding.Finding {
	return func(_ context.Context, m *machine) []finding.Finding {
		for _, name := range names {
			if have := m.number("/proc/sys/" + strings.ReplaceAll(name, ".", "/")); have > 0 && have < least {
				return []finding.Finding{finding.Warn(code, what, fmt.Sprintf("%s is %d; %s", name, have, why),
					fmt.Sprintf("sysctl -w %s=%d, and set it in /etc/sysctl.d", name, least))}
			}
		}
		return nil
	}
}

var available = regexp.MustCompile(`(?m)^MemAvailable:\s+(\d+) kB`)

func checkFreeMemory(_ context.Context, m *machine) []finding.Finding {
	found := available.FindStringSubmatch(m.h.Files.Text("/proc/meminfo"))
	if found == nil || m.joined() {
		return nil
	}
	kib, err := strconv.ParseUint(found[1], 10, 64)
	need := m.limits.MemoryJoin / 2
	if m.controlPlane() {
		need = m.limits.MemoryInit / 2
	}
	if free := kib << 10; err == nil && free < need {
		return []finding.Finding{finding.Warn("OCA-1047", "Other programs use most of the memory",
			fmt.Sprintf("%s are available, and at least %s are needed; huge pages count as used", bytesText(free), bytesText(need)),
			"stop what is not needed (ps aux --sort -rss | head), or reserve fewer huge pages (vm.nr_hugepages)")}
	}
	return nil
}

func checkSystemd(ctx context.Context, m *machine) []finding.Finding {
	const least = 244 // from runc's documentation: older ones cannot delegate the cpuset controller
	if m.h.Facts.Cgroup != 2 {
		return nil
	}
	out, ok := m.output(ctx, "systemctl", "--version")
	f := strings.Fields(out)
	if !ok || len(f) < 2 || f[0] != "systemd" {
		return nil
	}
	if have, err := strconv.Atoi(f[1]); err == nil && have < least {
		return []finding.Finding{finding.Warn("OCA-1048", "systemd is too old for cgroup v2",
			fmt.Sprintf("it is version %d; before version %d it cannot delegate all controllers, and limits of pods may not be enforced", have, least),
			"use a newer release of the distribution, or cgroup v1 with --allow-cgroup-v1")}
	}
	return nil
}

func checkProgramControl(ctx context.Context, m *machine) []finding.Finding {
	if _, active := m.output(ctx, "systemctl", "is-active", "--quiet", "fapolicyd"); !active {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-1049", "fapolicyd may keep the installed programs from running",
		"it allows only programs from packages; the programs of ocadm and of images are not from packages",
		"fapolicyd-cli --file add /usr/local/bin && fapolicyd-cli --file add /opt/cni/bin && fapolicyd-cli --file add /var/lib/containerd && fapolicyd-cli --update")}
}

func checkKubeletUnits(_ context.Context, m *machine) []finding.Finding {
	if m.ours() {
		return nil
	}
	for _, dir := range []string{"/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		found := m.h.Files.Glob(dir + "/kubelet.service.d/*.conf")
		if len(found) == 0 {
			continue
		}
		return []finding.Finding{finding.Warn("OCA-1051", "Files of another installation change the kubelet", "systemd adds "+strings.Join(found, ", ")+" to the unit of ocadm",
			"remove the package kubelet or kubeadm, or the files: rm "+strings.Join(found, " "))}
	}
	return nil
}

// undoes matches settings that decide about what ocadm needs, and their values.
var undoes = regexp.MustCompile(`(?m)^\s*-?(net[./]ipv4[./]ip_forward|net[./]ipv4[./]conf[./](?:all|default)[./]forwarding|` +
	`net[./]bridge[./]bridge-nf-call-iptables)\s*=\s*([01])\s*$`)

func checkKernelSettings(_ context.Context, m *machine) []finding.Finding {
	const own = "90-ocadm.conf"
	type setting struct{ file, line, value string }
	last := map[string]setting{}
	// systemd applies them by name, and the last one wins; sysctl.conf is 99-sysctl.conf. A later directory hides files of the same name.
	named := map[string]string{}
	for _, file := range m.h.Files.Glob("/usr/lib/sysctl.d/*.conf", "/usr/local/lib/sysctl.d/*.conf", "/etc/sysctl.d/*.conf") {
		named[path.Base(file)] = file
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		file := named[name]
		if name <= own {
			continue
		}
		for _, found := range undoes.FindAllStringSubmatch(m.h.Files.Text(file), -1) {
			last[strings.ReplaceAll(found[1], "/", ".")] = setting{file, strings.TrimSpace(found[0]), found[2]}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if s := last[key]; s.value == "0" {
			remedy := "remove the line from " + s.file
			if strings.HasPrefix(s.file, "/usr/") { // its package would write it again
				remedy = "echo '" + key + " = 1' >> /etc/sysctl.d/zz-local.conf"
			}
			return []finding.Finding{finding.New("OCA-1052", "Pods will lose their network at the next boot",
				s.file+" has \""+s.line+"\", and is applied after the settings of ocadm", remedy)}
		}
	}
	return nil
}

func checkMachineUpdates(_ context.Context, m *machine) []finding.Finding {
	on := regexp.MustCompile(`(?m)^\s*APT::Periodic::Unattended-Upgrade\s+"1"`).MatchString(m.h.Files.Text("/etc/apt/apt.conf.d/20auto-upgrades"))
	packaged := m.h.Facts.Programs["containerd"].Path == "/usr/bin/containerd"
	if !on || !packaged {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-1053", "containerd may be updated automatically",
		"unattended-upgrades is on, and restarts the containerd of the distribution at any time",
		"apt-mark hold containerd containerd.io")}
}

// brokenIPTables reports whether this release of iptables writes rules twice. Source: k3s, known issues.
func brokenIPTables(text string) bool {
	f := strings.Fields(text)
	if len(f) < 2 {
		return false
	}
	v, err := version.ParseGeneric(strings.TrimPrefix(f[1], "v"))
	return err == nil && v.AtLeast(version.MustParseGeneric("1.8.0")) && v.LessThan(version.MustParseGeneric("1.8.5"))
}
