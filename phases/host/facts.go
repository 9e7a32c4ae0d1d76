// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/exec"
)

// Facts are what the machine is, as far as phases ask. They are a snapshot; what a run changes does not change them.
type Facts struct {
	OS       OS     `json:"os"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"` // as Go names it
	Hostname string `json:"hostname"`
	UID      int    `json:"uid"`
	CPUs     int    `json:"cpus"`
	Memory   uint64 `json:"memory"` // bytes
	// Swap are the devices and files that are in use.
	Swap []string `json:"swap,omitempty"`
	// Cgroup is the version, 1 or 2; 0 where there is none.
	Cgroup  int  `json:"cgroup"`
	Systemd bool `json:"systemd"`
	// Address is the one from which this machine speaks to others: that of the default route. Invalid without such a route.
	Address    netip.Addr  `json:"address"`
	Interface  string      `json:"interface,omitempty"` // that it is on
	Gateway    netip.Addr  `json:"gateway"`             // of the default route; invalid without one
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Programs of a node that were there before, by name.
	Programs map[string]Program `json:"programs,omitempty"`
}

// Named is the interface with a name.
func (f Facts) Named(name string) (Interface, bool) {
	return f.first(func(i Interface) bool { return i.Name == name })
}

// With is the interface that has an address, and the address with its network.
func (f Facts) With(a netip.Addr) (i Interface, p netip.Prefix, ok bool) {
	i, ok = f.first(func(i Interface) bool {
		at := slices.IndexFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr() == a })
		if at >= 0 {
			p = i.Prefixes[at]
		}
		return at >= 0
	})
	return i, p, ok
}

func (f Facts) first(is func(Interface) bool) (Interface, bool) {
	i := slices.IndexFunc(f.Interfaces, is)
	if i < 0 {
		return Interface{}, false
	}
	return f.Interfaces[i], true
}

// OS is what /etc/os-release says.
type OS struct {
	ID      string   `json:"id"` // in lower case
	Like    []string `json:"like,omitempty"`
	Version string   `json:"version"`
	Name    string   `json:"name"`
	// Managers are the programs of package managers on the machine.
	Managers []string `json:"managers,omitempty"`
}

// Interface is a network interface that is up, or could be.
type Interface struct {
	Name     string         `json:"name"`
	MAC      string         `json:"mac,omitempty"`
	Up       bool           `json:"up"`
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Kind is what the kernel calls the link: "device" for hardware, else for example "bridge", "bond", "vlan", "veth", "openvswitch".
	Kind string `json:"kind,omitempty"`
	// Master is the bond or bridge that the interface is part of, MasterKind its kind.
	Master     string `json:"master,omitempty"`
	MasterKind string `json:"masterKind,omitempty"`
	Wireless   bool   `json:"wireless,omitempty"`
	// Leased are the addresses that end unless they are renewed, as those from DHCP do.
	Leased []netip.Addr `json:"leased,omitempty"`
}

// Program is an executable and its version, "v1.2.3", empty if it prints none.
type Program struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Gather collects the facts. What cannot be found out stays empty: judging is preflight's business. In a machine with a root of its
// own (a test) nothing is asked of this process's kernel.
func Gather(ctx context.Context, files Files, run exec.Runner) Facts {
	f := Facts{
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), UID: os.Geteuid(),
		OS:       osRelease(cmp.Or(files.Text("/etc/os-release"), files.Text("/usr/lib/os-release"))),
		Kernel:   strings.TrimSpace(files.Text("/proc/sys/kernel/osrelease")),
		Hostname: strings.TrimSpace(files.Text("/proc/sys/kernel/hostname")),
		Memory:   memory(files.Text("/proc/meminfo")),
		Swap:     swaps(files.Text("/proc/swaps")),
		Systemd:  files.Exists("/run/systemd/system"),
		Programs: map[string]Program{},
	}
	switch {
	case files.Exists("/sys/fs/cgroup/cgroup.controllers"):
		f.Cgroup = 2
	case files.Exists("/sys/fs/cgroup/memory") || files.Exists("/sys/fs/cgroup/systemd"):
		f.Cgroup = 1
	}
	for _, m := range packageManagers() {
		if files.Exists("/usr/bin/" + m.program) {
			f.OS.Managers = append(f.OS.Managers, m.program)
		}
	}
	for _, name := range []string{"containerd", "ctr", "runc", "kubelet", "kubectl"} {
		if p, ok := FindProgram(ctx, files, run, name); ok {
			f.Programs[name] = p
		}
	}
	if files.Root == "" {
		var names map[int]string
		f.Interfaces, names = interfaces()
		f.Interface, f.Address, f.Gateway = defaultRoute(f.Interfaces, names)
	}
	return f
}

// DefaultAddress is the one from which this machine speaks to others: that of the default route. It is invalid without such a route.
func DefaultAddress() netip.Addr {
	list, names := interfaces()
	_, address, _ := defaultRoute(list, names)
	return address
}

func osRelease(s string) OS {
	m := map[string]string{}
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			m[k] = strings.Trim(v, `"'`)
		}
	}
	return OS{ID: strings.ToLower(m["ID"]), Like: strings.Fields(strings.ToLower(m["ID_LIKE"])), Version: m["VERSION_ID"], Name: m["PRETTY_NAME"]}
}

func memory(meminfo string) uint64 {
	for line := range strings.Lines(meminfo) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseUint(f[1], 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return 0
}

func swaps(s string) []string {
	var out []string
	for i, line := range strings.Split(s, "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 0 {
			out = append(out, f[0])
		}
	}
	return out
}

// programPath are the directories in which a machine's programs are looked for.
func programPath() []string {
	return []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
}

var versionNumber = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)`)

// versionTimeout is how long a program may take to print its version. The kubelet, just written, took over five seconds on a busy machine with a slow disk.
const versionTimeout = 30 * time.Second

// LookPath returns the path of a program, looking where a login shell would.
func LookPath(files Files, name string) (string, bool) {
	for _, dir := range programPath() {
		path := filepath.Join(dir, name)
		if st, err := files.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// FindProgram is LookPath that also asks the program for its version.
func FindProgram(ctx context.Context, files Files, run exec.Runner, name string) (Program, bool) {
	path, ok := LookPath(files, name)
	if !ok {
		return Program{}, false
	}
	return Program{Path: path, Version: ProgramVersion(ctx, run, path)}, true
}

// ProgramVersion asks a program for its version: "v1.2.3", or "" if it prints none.
func ProgramVersion(ctx context.Context, run exec.Runner, path string) string {
	v, err := AskVersion(ctx, run, path)
	if err != nil {
		return ""
	}
	return v
}

// AskVersion is ProgramVersion that also returns why there is none.
func AskVersion(ctx context.Context, run exec.Runner, path string) (string, error) {
	args := []string{"--version"}
	if filepath.Base(path) == "kubectl" {
		args = []string{"version", "--client"}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	res, err := run.Run(ctx, exec.Command{Path: path, Args: args})
	if err != nil {
		return "", fmt.Errorf("asking for the version: %w", err)
	}
	m := versionNumber.FindStringSubmatch(res.Stdout)
	if m == nil {
		return "", fmt.Errorf("asking for the version: %q has none", res.Stdout)
	}
	return "v" + m[1], nil
}

// interfaces returns the links of this machine with their addresses, and the names of all links by index.
func interfaces() ([]Interface, map[int]string) {
	list, err := netlink.LinkList()
	if err != nil {
		return nil, nil
	}
	names, kinds := map[int]string{}, map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index], kinds[l.Attrs().Index] = l.Attrs().Name, l.Type()
	}
	var out []Interface
	for _, l := range list {
		a := l.Attrs()
		i := Interface{
			Name: a.Name, MAC: a.HardwareAddr.String(), Up: a.Flags&net.FlagUp != 0, Kind: l.Type(), Master: names[a.MasterIndex], MasterKind: kinds[a.MasterIndex],
		}
		_, err := os.Stat("/sys/class/net/" + a.Name + "/wireless")
		i.Wireless = err == nil
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			continue
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.IPNet.String())
			if err != nil {
				continue
			}
			i.Prefixes = append(i.Prefixes, p)
			if p.Addr().Is4() && a.Flags&unix.IFA_F_PERMANENT == 0 { // the kernel will remove it at a set time
				i.Leased = append(i.Leased, p.Addr())
			}
		}
		out = append(out, i)
	}
	return out, names
}

// defaultRoute returns the interface of the default route, the address it uses and its gateway. The address is the route's own source,
// or the first IPv4 address of the interface.
func defaultRoute(list []Interface, names map[int]string) (string, netip.Addr, netip.Addr) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", netip.Addr{}, netip.Addr{}
	}
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		gateway, _ := netip.AddrFromSlice(r.Gw.To4())
		if a, ok := netip.AddrFromSlice(r.Src.To4()); ok {
			return names[r.LinkIndex], a, gateway
		}
		for _, i := range list {
			for _, p := range i.Prefixes {
				if i.Name == names[r.LinkIndex] && p.Addr().Is4() {
					return i.Name, p.Addr(), gateway
				}
			}
		}
	}
	return "", netip.Addr{}, netip.Addr{}
}
