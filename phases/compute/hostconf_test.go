// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/templates/nodefiles"
	"yunion.io/x/ocadm/test/require"
)

func TestHostConf(t *testing.T) {
	const edited = "# my file\nreport_interval: 30 # mine\nnetworks: [bond0/br0/192.0.2.10]\n"
	tests := map[string]struct {
		before string // "" means no file
		set    func(*config.Node)
		want   string // the whole file, if not ""
		lines  []string
		says   string
	}{
		"no file": {"", func(n *config.Node) {}, strings.Replace(nodefiles.Host, "networks: []", "networks: [eth0/br0/192.0.2.10]", 1), nil, "creates the bridge br0, adds eth0 to it and moves 192.0.2.10"},
		"no file, with settings": {"", func(n *config.Node) {
			n.HostNetworks, n.ListenInterface, n.HostLocalImagePath, n.Hugepages = []string{"eth0/br0/192.0.2.10"}, "br0", []string{"/data"}, "disable"
		}, "", []string{"networks: [eth0/br0/192.0.2.10]", "listen_interface: br0", "local_image_path: [/data]", "image_cache_path: /data/image_cache", "hugepages_option: disable", "disable_probe_kubelet: true",
			"enable_remote_executor: true", "report_interval: 60", "# Settings of this node's host agent"}, "creates the bridge br0"},
		"the operator's": {nodefiles.Host, func(n *config.Node) { n.HostNetworks = []string{"eth0/br0/192.0.2.10"} }, "", []string{"networks: [eth0/br0/192.0.2.10]"}, ""},
		"the cache of a running agent": {nodefiles.Host, func(n *config.Node) { n.HostLocalImagePath = []string{"/data"} }, "",
			[]string{"local_image_path: [/data]", "image_cache_path: /opt/cloud/workspace/disks/image_cache"}, ""},
		"edited": {edited, func(n *config.Node) { n.HostNetworks = []string{"eth0/br0/192.0.2.10"} }, edited + "disable_probe_kubelet: true\nenable_remote_executor: true\n", nil,
			"networks is not changed"},
		"edited to the same": {edited, func(n *config.Node) { n.HostNetworks = []string{"bond0/br0/192.0.2.10"} }, edited + "disable_probe_kubelet: true\nenable_remote_executor: true\n", nil, ""},
		"empty":              {"\n", func(*config.Node) {}, "disable_probe_kubelet: true\nenable_remote_executor: true\nnetworks: [eth0/br0/192.0.2.10]\n", nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if tt.before != "" {
				m.put(t, hostConf, tt.before, 0o644)
			}
			m.Facts.Interfaces = append(m.Facts.Interfaces, nic("bond0", "192.0.2.10/24"))
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

// A crash between the record and host.conf leaves a value of ocadm in host.conf, although no user edited it.
func TestHostConfAfterCrash(t *testing.T) {
	for name, after := range map[string]func(*testing.T, *machine){
		"the same value": func(t *testing.T, m *machine) { m.must(t, hostConfPhase()) },
		"another value": func(t *testing.T, m *machine) {
			m.Config.Node.HostLocalImagePath = []string{"/data3"}
			m.must(t, hostConfPhase())
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, func(m *machine) { m.Config.Node.HostLocalImagePath = []string{"/data1"} })
			m.must(t, hostConfPhase())
			first := m.read(t, hostConf)
			m.boot(t)
			m.Config.Node.HostLocalImagePath = []string{"/data2"}
			m.crashBeforeHostConf(t)
			if m.read(t, hostConf) != first {
				t.Fatal("host.conf changed")
			}
			after(t, m)
			if got, want := m.read(t, hostConf), m.Config.Node.HostLocalImagePath[0]; !strings.Contains(got, want) {
				t.Errorf("host.conf lacks %s: %s", want, strings.Join(m.said, "\n"))
			}
			if a, err := lastApplied(m.Host); err != nil || len(a.Former) > 0 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	m := newMachine(t, func(m *machine) { m.Config.Node.HostLocalImagePath = []string{"/data1"} })
	m.must(t, hostConfPhase())
	m.boot(t)
	m.Config.Node.HostLocalImagePath = []string{"/data2"}
	m.crashBeforeHostConf(t)
	m.must(t, ResetPhases()...)
	if m.Files.Exists(hostConf) {
		t.Error("reset takes it for edited")
	}
}

// crashBeforeHostConf runs the phase while host.conf cannot be written: its temporary file cannot be created.
func (m *machine) crashBeforeHostConf(t *testing.T) {
	t.Helper()
	in := filepath.Join(host.Unfinished(filepath.Join(m.root, hostConf)), "the-way")
	require.NoError(t, os.MkdirAll(in, 0o755))
	if _, err := m.run(t, hostConfPhase()); err == nil {
		t.Fatal("host.conf was written")
	}
	require.NoError(t, os.RemoveAll(filepath.Dir(in)))
	m.boot(t)
}

func TestEditsOfHostConfSurvive(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.Config.Node.HostNetworks = []string{"eth0/br0/192.0.2.10"} })
	m.must(t, hostConfPhase())
	// With new values, ours follow.
	m.boot(t)
	m.Config.Node.HostNetworks, m.Config.Node.Hugepages = []string{"eth0/br1/192.0.2.10"}, "native"
	m.must(t, hostConfPhase())
	if got := m.read(t, hostConf); !strings.Contains(got, "eth0/br1/192.0.2.10") || !strings.Contains(got, "native") {
		t.Errorf("host.conf did not follow:\n%s", got)
	}
	// An edited value stays, the rest follows.
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

// Notes are all that a file without a key has.
func TestNotesInHostConfSurvive(t *testing.T) {
	m := newMachine(t)
	m.put(t, hostConf, "# rack 7, see ticket 4711", 0o644)
	m.must(t, hostConfPhase())
	if got := m.read(t, hostConf); !strings.HasPrefix(got, "# rack 7, see ticket 4711\n") || !strings.Contains(got, "\ndisable_probe_kubelet: true\n") {
		t.Errorf("host.conf:\n%s", got)
	}
}

// A later run that changes another key does not make the edits its own: reset leaves them.
func TestResetLeavesEditsOfHostConf(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.Config.Node.HostNetworks = []string{"eth0/br0/192.0.2.10"} })
	m.must(t, hostConfPhase())
	m.put(t, hostConf, m.read(t, hostConf)+"rack: r1\n", 0o644)
	for _, hugepages := range []string{"native", "disable"} {
		m.boot(t)
		m.Config.Node.Hugepages = hugepages
		m.must(t, hostConfPhase())
	}
	m.boot(t)
	m.must(t, ResetPhases()...)
	if !m.Files.Exists(hostConf) || !strings.Contains(m.read(t, hostConf), "rack: r1") {
		t.Error("reset removed the edited file")
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
		next    string
	}{
		"good":                     {network: "eth0/br0/192.0.2.10"},
		"after the agent moved it": {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Prefixes, i.Master, i.MasterKind = nil, "ovs-system", kindSwitch }, more: []host.Interface{{Name: "br0", Kind: kindSwitch, Prefixes: own.Prefixes}}},
		"no such interface":        {network: "eth1/br0/192.0.2.10", want: CodeNetwork, says: "no interface eth1, only eth0"},
		"no interface at all": {network: "eno1/br0/192.0.2.10", change: func(i *host.Interface) { i.Kind = "veth" }, want: CodeNetwork,
			says: "no interface eno1, and no other that the cloud can use"},
		"no such address":       {network: "eth0/br0/192.0.2.11", want: CodeNetwork, says: "not have the address 192.0.2.11, but 192.0.2.10"},
		"a Linux bridge":        {network: "eth0/br0/192.0.2.10", more: []host.Interface{{Name: "br0", Kind: "bridge"}}, want: CodeNetwork, says: "not an Open vSwitch bridge"},
		"part of a bond":        {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Master, i.MasterKind = "bond0", "bond" }, want: CodeNetwork, says: "part of bond0"},
		"loopback":              {network: "lo/br0/192.0.2.10", more: []host.Interface{nic("lo", "192.0.2.10/32")}, want: CodeNetwork, says: "not an interface to the outside"},
		"a wire and an address": {network: "eth0/br0/bcast0", want: CodeNetwork, says: "give eth0/br0/192.0.2.10"},
		"a wire":                {network: "eth1/br1/bcast0", more: []host.Interface{nic("eth1", "fe80::2/64")}},
		"leased":                {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Leased = []netip.Addr{netip.MustParseAddr("192.0.2.10")} }, want: CodeNetworkRisk, says: "DHCP"},
		"wireless":              {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Wireless = true }, want: CodeNetworkRisk, says: "wireless"},
		"VLAN":                  {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) { i.Kind = "vlan" }, want: CodeNetworkRisk, says: "VLAN"},
		"another address than the node's": {network: "eth0/br0/198.51.100.1", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("198.51.100.1/24"))
		}, want: CodeNetworkRisk, says: "the address of this node in the cluster"},
		"a further address": {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("198.51.100.1/24"))
		}, want: CodeNetworkRisk, says: "eth0 also has 198.51.100.1, which the host agent removes"},
		"IPv6 that is not named": {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("2001:db8::10/64"))
		}, want: CodeNetworkRisk, says: "eth0 also has 2001:db8::10", next: "--host-networks eth0/br0/192.0.2.10/2001:db8::10;"},
		"IPv4 and IPv6 that are not named": {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("2001:db8::10/64"), netip.MustParsePrefix("198.51.100.1/24"))
		}, want: CodeNetworkRisk, says: "2001:db8::10, 198.51.100.1", next: "correct it;"},
		"IPv6 that is named": {network: "eth0/br0/192.0.2.10/2001:db8::10", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("2001:db8::10/64"), netip.MustParsePrefix("2001:db8::abcd/64"))
		}},
		"the cluster's virtual address": {network: "eth0/br0/192.0.2.10", change: func(i *host.Interface) {
			i.Prefixes = append(slices.Clone(i.Prefixes), netip.MustParsePrefix("192.0.2.100/32"))
		}},
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
			if len(got) != 1 || got[0].Code != tt.want || !strings.Contains(got[0].Cause, tt.says) || !strings.Contains(got[0].Remedy, tt.next) {
				t.Fatalf("%+v", got)
			}
			m.Config.Run.Force = true
			if forced := HostNetworks(m.Host); (len(forced) == 0) != (tt.want == CodeNetworkRisk) {
				t.Errorf("with --force: %+v", forced)
			}
		})
	}
}

// Without --host-networks, the host agent uses the interface of the default route, which is judged like a named one.
func TestNetworksThatTheAgentChooses(t *testing.T) {
	leased := func(m *machine) { m.Facts.Interfaces[0].Leased = []netip.Addr{netip.MustParseAddr("192.0.2.10")} }
	conf := func(network string) func(*machine) {
		return func(m *machine) { m.put(t, hostConf, "networks: ["+network+"]\n", 0o644) }
	}
	tests := map[string]struct {
		change func(*machine)
		want   string // code
		says   string
	}{
		"good": {func(*machine) {}, "", ""},
		"in a form that the agent does not recognize": {conf("eth0/br0/2001:DB8::1"), CodeNetwork, "write 2001:DB8::1 as 2001:db8::1"},
		"leased":   {leased, CodeNetworkRisk, "nothing renews it once it is on br0"},
		"wireless": {func(m *machine) { m.Facts.Interfaces[0].Wireless = true }, CodeNetworkRisk, "wireless"},
		"VLAN":     {func(m *machine) { m.Facts.Interfaces[0].Kind = "vlan" }, CodeNetworkRisk, "VLAN"},
		"another name for the bridge": {func(m *machine) {
			leased(m)
			m.Facts.Interfaces = append(m.Facts.Interfaces, host.Interface{Name: "br0", Kind: "bridge"})
		}, CodeNetworkRisk, "br1"},
		"a Linux bridge":   {func(m *machine) { m.Facts.Interfaces[0].Kind = "bridge" }, CodeNetwork, "not an interface to the outside"},
		"no default route": {func(m *machine) { m.Facts.Interface, m.Facts.Address = "", netip.Addr{} }, CodeNetwork, "no default route"},
		"nothing is known": {func(m *machine) { m.Facts.Interfaces, m.Facts.Address = nil, netip.Addr{} }, "", ""},
		"moved already": {func(m *machine) {
			m.Facts.Interfaces = []host.Interface{{Name: "eth0", Kind: "vlan", Master: "ovs-system", MasterKind: kindSwitch},
				{Name: "br0", Kind: kindSwitch, Prefixes: m.Facts.Interfaces[0].Prefixes}}
			m.Facts.Interface = "br0"
		}, "", ""},
		"moved and noted by the agent": {func(m *machine) {
			m.Facts.Interfaces = []host.Interface{{Name: "eth0", Kind: "vlan", Master: "ovs-system", MasterKind: kindSwitch},
				{Name: "br0", Kind: kindSwitch, Prefixes: m.Facts.Interfaces[0].Prefixes}}
			m.Facts.Interface = "br0"
			conf("eth0/br0/192.0.2.10")(m)
		}, "", ""},
		"another one in host.conf": {func(m *machine) {
			leased(m)
			m.Facts.Interfaces = append(m.Facts.Interfaces, nic("eth1", "198.51.100.1/24"))
			conf("eth1/br1/198.51.100.1")(m)
		}, "", ""},
		"a wrong one in host.conf": {conf("eth7/br0/192.0.2.10"), CodeNetwork, "no interface eth7"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			tt.change(m)
			got := HostNetworks(m.Host)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || got[0].Code != tt.want || !strings.Contains(got[0].Cause, tt.says)) {
				t.Fatalf("%+v", got)
			}
			m.Config.Run.Force = true
			if forced := HostNetworks(m.Host); (len(forced) == 0) != (tt.want != CodeNetwork) {
				t.Errorf("with --force: %+v", forced)
			}
		})
	}
}

// "ocadm join phase compute" runs without preflight.
func TestPhaseRefusesWhatPreflightRefuses(t *testing.T) {
	for name, networks := range map[string][]string{"named": {"eth0/br0/192.0.2.10"}, "chosen by the agent": nil} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.Config.Node.HostNetworks = networks
			m.Facts.Interfaces[0].Leased = []netip.Addr{netip.MustParseAddr("192.0.2.10")}
			if _, err := hostConfPhase().Plan(t.Context(), m.Host); code(err) != CodeNetworkRisk {
				t.Errorf("a dry run: %v", err)
			}
			if err := writeHostConf(t.Context(), m.Host, m); code(err) != CodeNetworkRisk || m.Files.Exists(hostConf) {
				t.Fatalf("wrote host.conf: %v", err)
			}
			m.Config.Run.IgnorePreflightErrors = []string{CheckNetworks}
			if err := accepted(m.Host); err != nil {
				t.Errorf("with the check ignored: %v", err)
			}
			m.Config.Run.IgnorePreflightErrors, m.Config.Run.Force = nil, true
			m.must(t, hostConfPhase())
			if said := strings.Join(m.said, "\n"); !strings.Contains(said, "creates the bridge br0, adds eth0 to it") {
				t.Errorf("does not say what happens: %q", said)
			}
		})
	}
}

// merge keeps every key that it does not set, whatever the file holds.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{nodefiles.Host, "", "a: b\n", "networks: [x]\n", "networks:\n  - y # c\n", "{a: 1}", "---\na: &x 1\nb: *x\n", "? [a]\n: b\n"} {
		f.Add(s)
	}
	want := map[string]any{"disable_probe_kubelet": true, "networks": []any{"eth0/br0/192.0.2.10"}}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := merge(text, want)
		if err != nil {
			return
		}
		again, err := merge(m.text, want)
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
