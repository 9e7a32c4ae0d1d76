// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ssh"
)

// Facts are what a machine reports about itself before it has ocadm.
type Facts struct {
	Hostname, MachineID, Architecture string
	// Address, MAC and MTU are those of the interface with the default route.
	Address, MAC string
	MTU          int
	// Authority is the digest of the CA certificate of the machine's cluster, "" if it belongs to none.
	Authority string
	// Ours reports whether ocadm made it a node, Administrator whether it is a control-plane node, Joined whether it became one by join.
	Ours, Administrator, Joined bool
	// Firewalld reports whether firewalld runs: join opens the ports of a node in it.
	Firewalld bool
	// Offset is how far its clock is ahead of this machine's.
	Offset time.Duration
}

const factsScript = `#!/bin/sh
main() {
	say() { printf '%s=%s\n' "$1" "$2"; }
	say hostname "$(cat /proc/sys/kernel/hostname)"
	say machineid "$(cat /etc/machine-id 2>/dev/null)"
	say arch "$(uname -m)"
	dev=$(awk '$2 == "00000000" && $8 == "00000000" { print $1; exit }' /proc/net/route)
	if [ -n "$dev" ]; then
		say mac "$(cat "/sys/class/net/$dev/address")"
		say mtu "$(cat "/sys/class/net/$dev/mtu")"
		say address "$(ip -o -4 addr show dev "$dev" scope global 2>/dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')"
	fi
	if [ -e /etc/kubernetes/kubelet.conf ] || [ -e /etc/kubernetes/admin.conf ]; then
		if [ -e /etc/kubernetes/pki/ca.crt ]; then say authority "$(sha256sum </etc/kubernetes/pki/ca.crt | cut -c 1-64)"; else say authority unknown; fi
	fi
	[ ! -e /etc/kubernetes/admin.conf ] || say administrator yes
	[ ! -e /var/lib/ocadm/ledger.jsonl ] || say ours yes
	! grep -qs '^kind: JoinConfiguration' /etc/ocadm/kubeadm.yaml || say joined yes
	! firewall-cmd --state >/dev/null 2>&1 || say firewalld yes
	say clock "$(date +%s.%N)"
}
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
main </dev/null
`

// Gather reads the facts of a machine.
func Gather(ctx context.Context, name string, c *ssh.Conn) (Facts, error) {
	values := map[string]string{}
	var before, after time.Time
	before = time.Now()
	r, err := c.Script(ctx, factsScript, nil, func(l string) {
		note(values, l)
		after = time.Now()
	})
	if err != nil {
		return Facts{}, err
	}
	if r.Exit != 0 || values["clock"] == "" {
		return Facts{}, finding.New("OCA-7607", "The facts of machine "+name+" cannot be read", cmp.Or(r.Stderr, "it printed nothing"),
			"log in to the machine and check that it has sh, awk, ip and coreutils")
	}
	return parse(values, before, after), nil
}

// factNames are the keys in the script's output.
var factNames = []string{"hostname", "machineid", "arch", "mac", "mtu", "address", "authority", "administrator", "joined", "ours", "firewalld", "clock"}

// note stores a line of the script. The machine is not trusted: its values go to statuses, and it may print an endless number of lines.
func note(values map[string]string, line string) {
	if key, value, _ := strings.Cut(line, "="); slices.Contains(factNames, key) {
		values[key] = callin.Text(value)
	}
}

// parse converts the script's values. It is pure.
func parse(v map[string]string, before, after time.Time) Facts {
	f := Facts{Hostname: v["hostname"], MachineID: v["machineid"], Address: v["address"], MAC: v["mac"], Authority: v["authority"],
		Ours: v["ours"] != "", Administrator: v["administrator"] != "", Joined: v["joined"] != "", Firewalld: v["firewalld"] != ""}
	f.MTU, _ = strconv.Atoi(v["mtu"]) // 0 is unknown
	f.Architecture = cmp.Or(map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[v["arch"]], v["arch"])
	f.Offset = Offset(v["clock"], before, after)
	return f
}

// Group describes the cluster of the compared machines.
type Group struct {
	// First is the node that creates the cluster; "" if the cluster exists, and membership is not checked.
	First string
	// Authority is the digest of the CA of the cluster that they join, "" if it is unknown.
	Authority string
}

// Compare compares machines with each other, by name. It is pure.
func Compare(all map[string]Facts, g Group) map[string]finding.List {
	out := map[string]finding.List{}
	names := slices.Sorted(maps.Keys(all))
	if len(names) == 0 {
		return out
	}
	add := func(name string, f finding.Finding) { out[name] = append(out[name], f) }
	twins(all, names, add)
	first := cmp.Or(g.First, names[0])
	if g.First != "" {
		otherClusters(all, names, first, g.Authority, add)
	}
	middle := median(all)
	for _, n := range names {
		f := all[n]
		for _, one := range CheckClock(n, f.Offset-middle) {
			add(n, one)
		}
		if a := all[first]; f.MTU != 0 && a.MTU != 0 && f.MTU != a.MTU {
			add(n, finding.Warn("OCA-7645", fmt.Sprintf("%s has MTU %d, but %s has %d", n, f.MTU, first, a.MTU), "large packets between their pods may be lost",
				"set the same MTU on all machines"))
		}
	}
	return out
}

// twins finds machines that share something unique. A host name need not be unique: nodes have the names of their resources.
func twins(all map[string]Facts, names []string, add func(string, finding.Finding)) {
	for _, own := range []struct {
		what string
		of   func(Facts) string
		warn bool
	}{
		{"machine id", func(f Facts) string { return f.MachineID }, false},
		{"MAC address", func(f Facts) string { return f.MAC }, false},
		{"IP address", func(f Facts) string { return f.Address }, false},
		{"host name", func(f Facts) string { return f.Hostname }, true},
	} {
		seen := map[string]string{}
		for _, n := range names {
			v := own.of(all[n])
			if other := seen[v]; v != "" && other != "" {
				f := finding.New("OCA-7642", fmt.Sprintf("%s and %s have the same %s", n, other, own.what), v, remedyOfTwins(own.what))
				if own.warn {
					f.Severity = finding.Warning
				}
				add(n, f)
			}
			seen[v] = cmp.Or(seen[v], n)
		}
	}
}

// otherClusters finds machines that belong to another cluster, or would create one. The CA of the first node overrides the one in the fleet's directory, which is out of date
// after the CAs were replaced. But if another machine has the one in the directory, the address of the first node leads to another cluster.
func otherClusters(all map[string]Facts, names []string, first, known string, add func(string, finding.Finding)) {
	authority := cmp.Or(all[first].Authority, known)
	members := lists.Filter(names, func(n string) bool { return known != "" && all[n].Authority == known })
	switch f, there := all[first]; {
	case len(members) > 0 && authority != known:
		authority = known
	case there && f.Authority == "" && len(members) > 0:
		add(first, secondCluster(first, members))
	case there && f.Authority != "" && !f.Administrator:
		authority = "none" // it is a worker of another cluster
	}
	for _, n := range names {
		if a := all[n].Authority; a != "" && a != authority {
			add(n, finding.New("OCA-7643", "Machine "+n+" belongs to another cluster", "the CA in its /etc/kubernetes differs from the CA of this fleet",
				"remove it from that cluster: ocadm reset on it; or remove it from the file"))
		}
	}
}

// secondCluster reports that the first node is not in the cluster that other machines belong to: it was replaced or reset.
func secondCluster(first string, members []string) finding.Finding {
	return finding.New("OCA-7654", "Machine "+first+" would create a second cluster",
		"it is the first in the file, and not a node, but the cluster of the fleet exists: "+strings.Join(members, ", "),
		"if another control-plane node works, there: ocadm node remove "+first+"; ocadm token create --print-join-command --control-plane; "+
			"run the printed command on "+first+", then the same command again; if the cluster is lost: ocadm fleet reset, then ocadm fleet apply")
}

func remedyOfTwins(what string) string {
	switch what {
	case "machine id":
		return "on one of them: rm -f /etc/machine-id /var/lib/dbus/machine-id && systemd-machine-id-setup, then reboot"
	case "host name":
		return "on one of them: hostnamectl set-hostname NAME"
	}
	return "check whether both names in the file refer to the same machine; otherwise give each machine a different one"
}

func median(all map[string]Facts) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(maps.Values(all), func(a, b Facts) int { return cmp.Compare(a.Offset, b.Offset) })
	return sorted[len(sorted)/2].Offset
}
