// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/removal"
)

// A dry run shows what the run would do with volumes.
func TestDryRemovalShowsVolumes(t *testing.T) {
	had := removal.Inventory{Node: "node3", Volumes: []removal.Volume{{Name: "pvc-1", Claim: "onecloud/glance"}}}
	for volumes, want := range map[bool]string{false: "stays claimed", true: "is deleted"} {
		var out bytes.Buffer
		err := newApp(Streams{Out: &out}).printNodeRemoved(stepFlags{dryRun: true, output: ui.NewFormat("text", "json", "yaml")}, nodeRemoved{Had: had}, volumes, "Nothing to do")
		if err != nil || !strings.Contains(out.String(), "volume   onecloud/glance, , : "+want) {
			t.Errorf("--delete-volumes %t: %s, %v", volumes, &out, err)
		}
	}
}

// Nodes that lose their host agent are named, and a user is asked.
func TestLeavingNodesAreConfirmed(t *testing.T) {
	for _, tt := range []struct {
		nodes    []string
		accepted bool
		answer   string
		code     string // of the error
		asks     bool
	}{
		{nil, false, "", "", false},
		{[]string{"node2 (192.0.2.2)"}, true, "", "", false},
		{[]string{"node2 (192.0.2.2)"}, false, "y\n", "", true},
		{[]string{"node2 (192.0.2.2)"}, false, "n\n", "OCA-0406", true},
		{[]string{"node2 (192.0.2.2)"}, false, "", "OCA-0404", true},
	} {
		var said bytes.Buffer
		err := warnLeaving(t.Context(), newApp(Streams{In: strings.NewReader(tt.answer), Err: &said}), tt.nodes, tt.accepted)
		code := ""
		if l := finding.Of(err); len(l) > 0 {
			code = l[0].Code
		}
		if code != tt.code || strings.Contains(said.String(), "Continue?") != tt.asks {
			t.Errorf("%+v: %v, said %q", tt, err, said.String())
		}
		named := strings.Contains(said.String(), "stop on node2 (192.0.2.2)") && strings.Contains(said.String(), "climc server-list --host node2 ")
		if named != (len(tt.nodes) > 0) {
			t.Errorf("%+v: said %q", tt, said.String())
		}
	}
}

// A backup is restored only if no server of the database is left.
func TestRemedyForTheDatabaseOfALostNode(t *testing.T) {
	for name, c := range map[string]struct {
		other   string
		deleted bool
		want    string
	}{
		"one copy, given up": {"", true, "ocadm cluster backup restore FILE"},
		"one copy, kept":     {"", false, ""},
		"the other serves":   {dbpair.RolePrimary, true, ""},
		"the other does not": {dbpair.RoleReplica, true, "ocadm cluster database promote -n onecloud"},
	} {
		v := removal.Volume{Claim: "onecloud/data-ocadm-mysql-0", Database: true, OtherDatabase: c.other}
		got := strings.Join(nextForDatabase(v, c.deleted), "\n")
		if !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if restores := strings.Contains(got+databaseOn(v), "restore"); restores != (c.other == "") {
			t.Errorf("%s: %q, %q", name, databaseOn(v), got)
		}
	}
}

// A node keeps the address that it has registered, even if another one is the default now, unless the machine has lost it or a flag names another one.
func TestNodeKeepsItsAddress(t *testing.T) {
	facts := host.Facts{Address: netip.MustParseAddr("192.0.2.1"), Interfaces: []host.Interface{{Name: "eth0", Prefixes: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("198.51.100.1/24")}}}}
	for _, c := range []struct{ registered, flag, want string }{
		{"198.51.100.1", "", "198.51.100.1"}, {"198.51.100.1", "192.0.2.1", "192.0.2.1"}, {"203.0.113.9", "", "192.0.2.1"}, {"", "", "192.0.2.1"},
	} {
		cfg := config.Default()
		cfg.Node.IP = c.flag
		registered, _ := netip.ParseAddr(c.registered)
		if complete(&cfg, facts, "", registered); cfg.Node.IP != c.want {
			t.Errorf("registered %q, flag %q: %s", c.registered, c.flag, cfg.Node.IP)
		}
	}
}
