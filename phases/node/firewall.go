// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// FirewallPhase is the name of Firewall.
const FirewallPhase = "node-firewall"

const (
	firewallCmd     = "firewall-cmd"
	firewallOffline = "firewall-offline-cmd"
	firewalldUnit   = "firewalld"
	// notRunning is the exit status of firewall-cmd if firewalld does not run.
	notRunning = 252
	// trustedZone is the firewalld zone that accepts everything.
	trustedZone = "trusted"
)

// Firewall opens what a node needs in firewalld, at run time and permanently. It never reloads firewalld: a reload drops rules that others added at run time
// and, with the iptables backend, flushes the tables. Hence it only uses existing zones: a new zone or service would need a reload. The ledger records each
// opening separately, and reset reverts only those.
func Firewall(controlPlane bool) host.Phase {
	return host.Phase{
		Name: FirewallPhase, Short: "Open the node's ports in firewalld",
		Long: "Where firewalld runs, opens the ports that other machines must reach, in the zone of this node's interface, and puts the interfaces of\n" +
			"pods into the zone trusted, at run time and permanently. reset undoes it. --firewall manual changes nothing.",
		After: []string{"preflight"},
		Skip:  workflow.SkipIf("--firewall manual", func(h *host.Host) bool { return h.Config.Node.Firewall == config.FirewallManual }),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			missing, err := missingOpenings(ctx, h, controlPlane)
			if err != nil {
				return err
			}
			for _, o := range missing {
				if err := h.Ledger.Record(host.Entry{Kind: host.KindFirewall, Name: o.String(), Op: host.Created}); err != nil {
					return err
				}
			}
			for _, args := range commandsFor(missing) {
				line := strings.Join(append([]string{firewallCmd}, args...), " ")
				if _, err := h.Exec.Run(ctx, exec.Command{Path: firewallCmd, Args: args}); err != nil {
					if canceled(ctx) {
						return err
					}
					return finding.Errorf(CodeFirewall, "firewalld refuses to open the node's ports",
						line+"   # or configure the firewall yourself: --firewall manual", "%w", err)
				}
				r.Changed("%s", line)
			}
			return nil
		},
		Undo: undoFirewall,
	}.Todo(func(ctx context.Context, h *host.Host) ([]string, error) {
		missing, err := FirewallMissing(ctx, h, controlPlane)
		return workflow.Lines("run ", missing), err
	})
}

// firewalldRuns reports whether firewalld is active on this machine. It fails if firewalld's unit is active and firewall-cmd does not work.
func firewalldRuns(ctx context.Context, h *host.Host) (bool, error) {
	res, err := h.Exec.Run(ctx, exec.Command{Path: firewallCmd, Args: []string{"--state"}})
	if err == nil {
		return strings.TrimSpace(res.Stdout) == "running", nil
	}
	if res.ExitCode == 0 || res.ExitCode == notRunning { // 0: there is no such program
		return false, nil
	}
	if _, inactive := h.Systemctl(ctx, "is-active", firewalldUnit); inactive != nil && !canceled(ctx) {
		return false, nil // for example without D-Bus
	}
	return false, finding.Errorf(CodeFirewall, "The state of firewalld cannot be read", firewallCmd+" --state   # or configure the firewall yourself: --firewall manual", "%w", err)
}

// opening is one thing that firewalld lets through.
type opening struct {
	permanent  bool
	zone, kind string // kind is port, protocol or interface
	what       string
}

func (o opening) scope() []string {
	if o.permanent {
		return []string{"--permanent", "--zone=" + o.zone}
	}
	return []string{"--zone=" + o.zone}
}

func (o opening) add() string { return "--add-" + o.kind + "=" + o.what }

// String returns the firewall-cmd arguments that make the opening: its name in the ledger.
func (o opening) String() string { return strings.Join(append(o.scope(), o.add()), " ") }

// commandsFor returns the firewall-cmd arguments for all openings, one command per zone and lifetime.
func commandsFor(list []opening) [][]string {
	var out [][]string
	for i, o := range list {
		if i == 0 || !slices.Equal(list[i-1].scope(), o.scope()) {
			out = append(out, o.scope())
		}
		out[len(out)-1] = append(out[len(out)-1], o.add())
	}
	return out
}

// FirewallMissing returns the commands that open what the node needs and firewalld does not let through yet. It returns none if firewalld does not run.
func FirewallMissing(ctx context.Context, h *host.Host, controlPlane bool) ([]string, error) {
	missing, err := missingOpenings(ctx, h, controlPlane)
	return lists.Map(commandsFor(missing), func(args []string) string { return firewallCmd + " " + strings.Join(args, " ") }), err
}

func missingOpenings(ctx context.Context, h *host.Host, controlPlane bool) ([]opening, error) {
	if runs, err := firewalldRuns(ctx, h); !runs {
		return nil, err
	}
	ask := func(args ...string) string {
		res, err := h.Exec.Run(ctx, exec.Command{Path: firewallCmd, Args: args})
		if err != nil {
			return ""
		}
		return strings.TrimSpace(res.Stdout)
	}
	zoneOf := func(name string) string { // firewalld may print "no zone"
		if z := ask("--get-zone-of-interface=" + name); !strings.Contains(z, " ") {
			return z
		}
		return ""
	}
	nic := nodeInterface(h)
	byDefault := ask("--get-default-zone")
	zone := cmp.Or(zoneOf(nic), byDefault, "public")
	bridges := slices.DeleteFunc(bridgesOf(h, nic), func(b string) bool {
		z := zoneOf(b)
		return zone == byDefault || z != "" && z != zone // an administrator chose the other
	})
	ports := lists.Pick(config.Ports(h.Config, controlPlane), func(p config.PortUse) (string, bool) { return p.String(), p.Reached })
	var interfaces []string
	if h.Config.Addons.CNI != "none" {
		for _, i := range config.PodInterfaces() {
			if z := zoneOf(i); z == "" || z == trustedZone { // an administrator chose any other zone
				interfaces = append(interfaces, i)
			}
		}
	}
	var out []opening
	need := func(zone, kind string, wanted []string) {
		for _, permanent := range []bool{true, false} {
			have := strings.Fields(ask(append(opening{permanent: permanent, zone: zone}.scope(), "--list-"+kind+"s")...))
			for _, w := range wanted {
				if !slices.Contains(have, w) {
					out = append(out, opening{permanent, zone, kind, w})
				}
			}
		}
	}
	need(zone, "port", ports)
	need(zone, "protocol", config.Protocols(h.Config, controlPlane))
	need(zone, "interface", bridges)
	need(trustedZone, "interface", interfaces)
	return out, nil
}

// bridgesOf returns the bridges to which the host agent moves the addresses of an interface. A bridge without a zone of its own is in the default one, where
// the node's ports may not be open.
func bridgesOf(h *host.Host, nic string) []string {
	if !h.Config.Node.EnableHostAgent {
		return nil
	}
	list, _ := compute.Networks(h)
	return lists.Pick(list, func(n config.HostNetwork) (string, bool) { return n.Bridge, n.NIC == nic && n.Bridge != nic })
}

// nodeInterface returns the interface with the node's address.
func nodeInterface(h *host.Host) string {
	ip, _ := netip.ParseAddr(h.Config.Node.IP) // no interface has an invalid address
	if l, _, found := h.Facts.With(ip); found {
		return l.Name
	}
	return h.Facts.Interface
}

// undoFirewall closes what was opened. If firewalld is stopped or does not report its state, it uses the offline tool, which covers only the permanent half.
func undoFirewall(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	runs, _ := firewalldRuns(ctx, h)
	for _, e := range h.Ledger.Created(host.KindFirewall) {
		program, args := firewallCmd, strings.Fields(strings.Replace(e.Name, "--add-", "--remove-", 1))
		lasting := slices.Contains(args, "--permanent")
		if !runs {
			program, args = firewallOffline, slices.DeleteFunc(args, func(a string) bool { return a == "--permanent" })
		}
		if runs || lasting && h.Files.Exists("/usr/bin/"+firewallOffline) {
			if res, err := h.Exec.Run(ctx, exec.Command{Path: program, Args: args}); err != nil && !strings.Contains(res.Stderr, "NOT_ENABLED") {
				return fmt.Errorf("closing the ports that were opened in firewalld: %w", err)
			}
			r.Changed("%s %s", program, strings.Join(args, " "))
		}
		if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// ufwFrom matches a rule that accepts everything from an address or network. ufw before 0.36.2 has no rules for VRRP alone.
var ufwFrom = regexp.MustCompile(`^Anywhere ALLOW \d`)

// UFWMissing returns the commands that let through what the node needs if ufw is active and has no such rules; none otherwise. status is the output of "ufw
// status".
func UFWMissing(c *config.Config, controlPlane bool, status string) []string {
	if !strings.HasPrefix(status, "Status: active") {
		return nil
	}
	var have []string
	for line := range strings.Lines(status) {
		if line = strings.Join(strings.Fields(line), " "); !strings.Contains(line, "(v6)") {
			have = append(have, line)
		}
	}
	var out []string
	need := func(command, rule string) {
		if !slices.ContainsFunc(have, func(line string) bool { return strings.HasPrefix(line+" ", rule+" ") }) {
			out = append(out, command)
		}
	}
	for _, p := range config.Ports(c, controlPlane) {
		if !p.Reached {
			continue
		}
		name := strings.Replace(p.String(), "-", ":", 1)
		need("ufw allow "+name, name+" ALLOW") // from any source that the user chose
	}
	for _, p := range config.Protocols(c, controlPlane) {
		if !slices.ContainsFunc(have, ufwFrom.MatchString) {
			need("ufw allow proto "+p+" from any to any   # before ufw 0.36.2: ufw allow from NETWORK, with that of the nodes", "Anywhere/"+p+" ALLOW")
		}
	}
	if c.Addons.CNI == "none" {
		return out
	}
	for _, i := range config.PodInterfaces() {
		need("ufw allow in on "+i, "Anywhere on "+i+" ALLOW Anywhere")
		need("ufw route allow in on "+i, "Anywhere ALLOW FWD Anywhere on "+i)
		need("ufw route allow out on "+i, "Anywhere on "+i+" ALLOW FWD Anywhere")
	}
	return out
}
