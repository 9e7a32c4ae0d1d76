// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"encoding/hex"
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
	"yunion.io/x/ocadm/internal/lists"
)

// Facts describes the machine as far as phases need it. It is a snapshot: changes made by a run do not update it.
type Facts struct {
	OS       OS     `json:"os"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"` // a GOARCH
	Hostname string `json:"hostname"`
	UID      int    `json:"uid"`
	CPUs     int    `json:"cpus"`
	Memory   uint64 `json:"memory"` // bytes
	// Swap lists the swap devices and files in use.
	Swap []string `json:"swap,omitempty"`
	// Cgroup is the version, 1 or 2, or 0 without cgroups.
	Cgroup  int  `json:"cgroup"`
	Systemd bool `json:"systemd"`
	// Address is this machine's source address on the default route. It is invalid without such a route.
	Address    netip.Addr  `json:"address"`
	Interface  string      `json:"interface,omitempty"` // the interface of Address
	Gateway    netip.Addr  `json:"gateway"`             // of the default route; invalid without one
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Programs holds the node programs that were already on the machine, by name.
	Programs map[string]Program `json:"programs,omitempty"`
}

// Named returns the interface with this name.
func (f Facts) Named(name string) (Interface, bool) {
	return f.first(func(i Interface) bool { return i.Name == name })
}

// With returns the interface that has an address, and the address with its prefix length.
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

// OS is the operating system as /etc/os-release describes it.
type OS struct {
	ID      string   `json:"id"` // lowercase
	Like    []string `json:"like,omitempty"`
	Version string   `json:"version"`
	Name    string   `json:"name"`
	// Managers lists the package managers found on the machine.
	Managers []string `json:"managers,omitempty"`
}

// Interface is a network interface, up or down.
type Interface struct {
	Name     string         `json:"name"`
	MAC      string         `json:"mac,omitempty"`
	Up       bool           `json:"up"`
	Prefixes []netip.Prefix `json:"prefixes,omitempty"`
	// Kind is the kernel's type of the link: "device" for hardware, otherwise for example "bridge", "bond", "vlan", "veth", "openvswitch".
	Kind string `json:"kind,omitempty"`
	// Master is the bond or bridge that the interface belongs to, MasterKind its kind.
	Master     string `json:"master,omitempty"`
	MasterKind string `json:"masterKind,omitempty"`
	Wireless   bool   `json:"wireless,omitempty"`
	// Leased holds the addresses with a limited lifetime, such as those from DHCP.
	Leased []netip.Addr `json:"leased,omitempty"`
}

// Route is an IPv4 route.
type Route struct {
	Link string
	To   netip.Prefix
	// Gateway is unspecified for a network of the link.
	Gateway netip.Addr
	Metric  string
}

// Routes returns the IPv4 routes of this machine: proc(5), /proc/net/route.
func (f Files) Routes() (out []Route) {
	for line := range strings.Lines(f.Text("/proc/net/route")) {
		const to, gateway, metric, mask = 1, 2, 6, 7
		w := strings.Fields(line)
		if len(w) <= mask {
			continue
		}
		raw, err := hex.DecodeString(w[to] + w[gateway] + w[mask])
		if err != nil || len(raw) != 12 {
			continue
		}
		slices.Reverse(raw) // little-endian, like every architecture that Kubernetes is built for here
		bits, _ := net.IPMask(raw[:4]).Size()
		out = append(out, Route{w[0], netip.PrefixFrom(netip.AddrFrom4([4]byte(raw[8:])), bits), netip.AddrFrom4([4]byte(raw[4:8])), w[metric]})
	}
	return out
}

// Program is an executable and its version, "v1.2.3", or "" if it prints none.
type Program struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Gather collects the facts. Facts that cannot be determined stay empty; preflight judges them. If files has its own root (in a test), Gather asks
// nothing of this process's kernel.
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
	f.OS.Managers = lists.Pick(packageManagers(), func(m packageManager) (string, bool) { return m.program, files.Exists("/usr/bin/" + m.program) })
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

// DefaultAddress returns this machine's source address on the default route. It is invalid without such a route.
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

var versionNumber = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)`)

// versionTimeout bounds a program's printing of its version. A newly written kubelet took over five seconds on a busy machine with a slow disk.
const versionTimeout = 30 * time.Second

// LoginPath is the PATH of a root login shell. That of Debian's su lacks sbin, that of sudo in the Red Hat family /usr/local.
const LoginPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// LookPath returns the path of a program, searching the directories of a login shell.
func LookPath(files Files, name string) (string, bool) {
	for _, dir := range filepath.SplitList(LoginPath) {
		path := filepath.Join(dir, name)
		if st, err := files.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// FindProgram is LookPath plus the program's version.
func FindProgram(ctx context.Context, files Files, run exec.Runner, name string) (Program, bool) {
	path, ok := LookPath(files, name)
	if !ok {
		return Program{}, false
	}
	return Program{Path: path, Version: ProgramVersion(ctx, run, path)}, true
}

// ProgramVersion runs a program and returns its version, "v1.2.3", or "" if it prints none.
func ProgramVersion(ctx context.Context, run exec.Runner, path string) string {
	v, err := AskVersion(ctx, run, path)
	if err != nil {
		return ""
	}
	return v
}

// AskVersion is ProgramVersion that also returns why there is no version.
func AskVersion(ctx context.Context, run exec.Runner, path string) (string, error) {
	args := []string{"--version"}
	if filepath.Base(path) == "kubectl" {
		args = []string{"version", "--client"}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	res, err := run.Run(ctx, exec.Command{Path: path, Args: args})
	if err != nil {
		return "", fmt.Errorf("reading the version: %w", err)
	}
	m := versionNumber.FindStringSubmatch(res.Stdout)
	if m == nil {
		return "", fmt.Errorf("reading the version: %q contains none", res.Stdout)
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
			if p.Addr().Is4() && a.Flags&unix.IFA_F_PERMANENT == 0 { // the kernel removes it when its lifetime ends
				i.Leased = append(i.Leased, p.Addr())
			}
		}
		out = append(out, i)
	}
	return out, names
}

// defaultRoute returns the interface of the default route, its address and the gateway. The address is the one that the kernel uses as source: that of the route,
// else the first IPv4 address of the interface in the network of the gateway, else its first one.
func defaultRoute(list []Interface, names map[int]string) (string, netip.Addr, netip.Addr) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return "", netip.Addr{}, netip.Addr{}
	}
	return defaultOf(routes, list, names)
}

func defaultOf(routes []netlink.Route, list []Interface, names map[int]string) (string, netip.Addr, netip.Addr) {
	slices.SortStableFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		link, via := r.LinkIndex, r.Gw
		if len(r.MultiPath) > 0 { // several ways at once: the kernel names them only here
			link, via = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
		}
		gateway, _ := netip.AddrFromSlice(via.To4())
		if a, ok := netip.AddrFromSlice(r.Src.To4()); ok {
			return names[link], a, gateway
		}
		for _, i := range list {
			own := lists.Filter(i.Prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() })
			if i.Name == names[link] && len(own) > 0 {
				at := max(0, slices.IndexFunc(own, func(p netip.Prefix) bool { return p.Contains(gateway) }))
				return i.Name, own[at].Addr(), gateway
			}
		}
	}
	return "", netip.Addr{}, netip.Addr{}
}
