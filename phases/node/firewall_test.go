// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// firewalld answers like firewall-cmd and firewall-offline-cmd, and refuses what they refuse: an unknown option, a zone that does not exist, an opening that
// already exists or does not.
type firewalld struct {
	running bool
	broken  bool                       // firewall-cmd fails
	zones   map[string]string          // by interface, at run time
	open    map[string]map[string]bool // "permanent public port" and "runtime public port" → what
}

func newFirewalld() *firewalld {
	return &firewalld{running: true, zones: map[string]string{"eth1": "public"}, open: map[string]map[string]bool{
		"permanent internal port": {"22/tcp": true, "6443/tcp": true}, "runtime internal port": {"22/tcp": true, "6443/tcp": true},
	}}
}

func (f *firewalld) run(c exec.Command) (exec.Result, error) {
	fail := func(stderr string) (exec.Result, error) {
		return exec.Result{ExitCode: 1, Stderr: stderr}, &exec.Error{Argv: append([]string{c.Path}, c.Args...), ExitCode: 1, Err: errors.New(stderr)}
	}
	if !f.running && c.Path == firewallCmd {
		return exec.Result{ExitCode: notRunning}, errors.New("FirewallD is not running")
	}
	if f.broken && c.Path == firewallCmd {
		return fail("ModuleNotFoundError: No module named 'gi'")
	}
	lifetime, zone := "runtime", ""
	if c.Path == firewallOffline {
		lifetime = "permanent"
	}
	for _, a := range c.Args {
		key, value, _ := strings.Cut(a, "=")
		switch verb, kind, _ := strings.Cut(strings.TrimPrefix(key, "--"), "-"); {
		case a == "--state":
			return exec.Result{Stdout: "running\n"}, nil
		case a == "--get-default-zone":
			return exec.Result{Stdout: "internal\n"}, nil
		case key == "--get-zone-of-interface":
			if z := f.zones[value]; z != "" {
				return exec.Result{Stdout: z + "\n"}, nil
			}
			return exec.Result{ExitCode: 2, Stdout: "no zone\n"}, errors.New("exit status 2")
		case a == "--permanent" && c.Path == firewallCmd:
			lifetime = "permanent"
		case key == "--zone":
			if zone = value; !slices.Contains([]string{"public", "internal", "trusted"}, zone) {
				return fail("Error: INVALID_ZONE: " + zone)
			}
		case verb == "list" && slices.Contains([]string{"ports", "protocols", "interfaces"}, kind):
			var out []string
			for w := range f.open[lifetime+" "+zone+" "+strings.TrimSuffix(kind, "s")] {
				out = append(out, w)
			}
			slices.Sort(out)
			return exec.Result{Stdout: strings.Join(out, " ") + "\n"}, nil
		case (verb == "add" || verb == "remove") && (kind == "port" || kind == "protocol" || kind == "interface"):
			at := lifetime + " " + zone + " " + kind
			if f.open[at] == nil {
				f.open[at] = map[string]bool{}
			}
			if f.open[at][value] == (verb == "add") {
				return fail("Error: " + map[string]string{"add": "ALREADY_ENABLED", "remove": "NOT_ENABLED"}[verb] + ": " + value)
			}
			if f.open[at][value] = true; verb == "remove" {
				delete(f.open[at], value)
			}
		default:
			return fail("usage: see " + c.Path + " man page: unrecognized arguments: " + a)
		}
	}
	return exec.Result{}, nil
}

// state returns the openings, sorted.
func (f *firewalld) state() []string {
	var out []string
	for at, set := range f.open {
		for w := range set {
			out = append(out, at+" "+w)
		}
	}
	slices.Sort(out)
	return out
}

func newFirewalledMachine(t *testing.T, f *firewalld) *machine {
	m := newMachine(t)
	m.rec.Answer = func(c exec.Command) (exec.Result, error) {
		if c.Path == firewallCmd || c.Path == firewallOffline {
			return f.run(c)
		}
		return m.answer(c)
	}
	return m
}

func TestFirewallOpensAndCloses(t *testing.T) {
	for name, stopped := range map[string]bool{"running at reset": false, "stopped at reset": true} {
		t.Run(name, func(t *testing.T) {
			f := newFirewalld()
			before := f.state()
			m := newFirewalledMachine(t, f)
			m.Config.Cluster.VirtualAddress = "192.0.2.100"
			m.put(t, "/usr/bin/"+firewallOffline, "")
			m.must(t, Firewall(true))
			for _, want := range []string{
				"permanent internal port 10250/tcp", "runtime internal port 10250/tcp", "runtime internal port 8472/udp",
				"permanent internal port 30000-32767/tcp",
				"permanent internal protocol vrrp", "runtime internal protocol vrrp", "permanent trusted interface cni0", "runtime trusted interface flannel.1",
			} {
				if !slices.Contains(f.state(), want) {
					t.Errorf("%s is not open: %q", want, f.state())
				}
			}
			if m.ran("reload") {
				t.Error("firewalld was reloaded")
			}
			m.done(t, Firewall(true))
			want := before
			if f.running = !stopped; stopped { // its run-time half is lost
				want = slices.DeleteFunc(slices.Clone(before), func(s string) bool { return strings.HasPrefix(s, "runtime") })
				maps := f.open
				for at := range maps {
					if strings.HasPrefix(at, "runtime") {
						delete(maps, at)
					}
				}
			}
			m.undo(t, Firewall(true))
			if d := cmp.Diff(want, f.state()); d != "" {
				t.Errorf("reset did not give back what was there (-want +got):\n%s", d)
			}
		})
	}
}

// A firewall-cmd that fails while firewalld runs does not mean that no port is closed.
func TestFirewallThatDoesNotTell(t *testing.T) {
	f := newFirewalld()
	f.broken = true
	m := newFirewalledMachine(t, f)
	if _, err := m.do(t, Firewall(true)); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != CodeFirewall {
		t.Errorf("%v", err)
	}
	m.failures["systemctl is-active "+firewalldUnit] = true
	m.done(t, Firewall(true))
}

func TestFirewallThatIsOffOrManual(t *testing.T) {
	f := newFirewalld()
	f.running = false
	m := newFirewalledMachine(t, f)
	m.done(t, Firewall(true))
	f.running = true
	m.Config.Node.Firewall = config.FirewallManual
	if Firewall(true).Skip(m.Host) == "" {
		t.Error("--firewall manual opens ports")
	}
	// The ports are opened in the zone of the interface with the node's address.
	m.Config.Node.IP = "192.0.2.11"
	m.Facts.Interfaces = []host.Interface{{Name: "eth1", Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24")}}}
	if got, err := FirewallMissing(t.Context(), m.Host, true); err != nil || !strings.HasPrefix(got[0], "firewall-cmd --permanent --zone=public --add-port=10250/tcp") {
		t.Errorf("with an address on eth1: %q", got)
	}
	m.Config.Node.IP = ""
	// Pod interfaces that an administrator put into a zone stay there.
	f.zones["cni0"] = "internal"
	got, err := FirewallMissing(t.Context(), m.Host, false)
	require.NoError(t, err)
	for _, c := range got {
		if strings.Contains(c, "cni0") || !strings.HasPrefix(c, "firewall-cmd ") || strings.Contains(c, "6443") {
			t.Errorf("unexpected: %s", c)
		}
	}
}

// The host agent moves the node's address to a bridge, which would otherwise be in the default zone, where nothing is open.
func TestFirewallZoneOfTheBridge(t *testing.T) {
	for name, c := range map[string]struct {
		nic     string
		bridges map[string]string
		unnamed bool
		want    bool
	}{
		"of another zone":         {"eth1", nil, false, true},
		"of the default zone":     {"eth0", nil, false, false},
		"whose bridge has a zone": {"eth1", map[string]string{"br0": "internal"}, false, false},
		"of the default route":    {"eth1", nil, true, true},
	} {
		f := newFirewalld()
		for b, z := range c.bridges {
			f.zones[b] = z
		}
		m := newFirewalledMachine(t, f)
		m.Config.Node.IP, m.Config.Node.EnableHostAgent = "192.0.2.10", true
		m.Config.Node.HostNetworks = []string{c.nic + "/br0/192.0.2.10", "eth7/br7/203.0.113.10"}
		if c.unnamed {
			m.Config.Node.HostNetworks = nil
		}
		m.Facts.Interfaces = []host.Interface{{Name: c.nic, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")}}}
		m.Facts.Interface, m.Facts.Address = c.nic, netip.MustParseAddr("192.0.2.10")
		m.must(t, Firewall(false))
		state := strings.Join(f.state(), "\n")
		if got := strings.Contains(state, "permanent public interface br0") && strings.Contains(state, "runtime public interface br0"); got != c.want || strings.Contains(state, "br7") {
			t.Errorf("%s:\n%s", name, state)
		}
	}
}

func TestUFW(t *testing.T) {
	c := &config.Config{Addons: config.Addons{CNI: "flannel"}}
	for name, status := range map[string]string{"inactive": "Status: inactive\n", "not installed": ""} {
		if got := UFWMissing(c, true, status); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	// The format of "ufw status" from ufw(8), written by hand. A port open to some sources counts as open; a denied one does not.
	status := `Status: active

To                         Action      From
--                         ------      ----
22/tcp                     ALLOW       Anywhere
10250/tcp                  ALLOW       192.0.2.0/24
30000:32767/tcp            DENY        Anywhere
8472/udp                   ALLOW       Anywhere                   # flannel
Anywhere on cni0           ALLOW       Anywhere
Anywhere on flannel.1      ALLOW       Anywhere
8472/udp (v6)              ALLOW       Anywhere (v6)

Anywhere                   ALLOW FWD   Anywhere on cni0
Anywhere on cni0           ALLOW FWD   Anywhere
Anywhere                   ALLOW FWD   Anywhere on flannel.1
`
	want := []string{"ufw allow 30000:32767/tcp", "ufw route allow out on flannel.1"}
	if d := cmp.Diff(want, UFWMissing(c, false, status)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// A control-plane node must receive VRRP from the nodes with which it shares the virtual address. The line is from ufw 0.36.2.
	c.Join.ControlPlane = true
	if got := UFWMissing(c, true, status); !strings.Contains(strings.Join(got, "\n"), "\nufw allow proto vrrp from any to any   # before ufw 0.36.2: ufw allow from NETWORK") {
		t.Errorf("VRRP is not asked for: %q", got)
	}
	for _, line := range []string{"Anywhere/vrrp              ALLOW       Anywhere/vrrp\n", "Anywhere                   ALLOW       192.0.2.0/24\n"} {
		if got := strings.Join(UFWMissing(c, true, status+line), "\n"); strings.Contains(got, "vrrp") {
			t.Errorf("VRRP is let through, and still asked for: %q", got)
		}
	}
}
