// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/operatorctl/machine"
)

// Facts are what a machine says of itself before ocadm is on it.
type Facts struct {
	Hostname, MachineID, Architecture string
	// Address, MAC and MTU are those of the interface with the default route.
	Address, MAC string
	MTU          int
	// Authority is the digest of the certificate of the cluster that the machine belongs to, "" if it belongs to none.
	Authority string
	// Ours reports whether ocadm made a node of it, Administrator whether it is a control-plane node.
	Ours, Administrator bool
	// Curl reports whether the machine has curl.
	Curl bool
	// Offset is how far its clock is ahead of that of this machine.
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
	! command -v curl >/dev/null 2>&1 || say curl yes
	say clock "$(date +%s.%N)"
}
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
main </dev/null
`

// gather asks a machine.
func gather(ctx context.Context, name string, c *ssh.Conn) (Facts, error) {
	values := map[string]string{}
	var before, after time.Time
	before = time.Now()
	r, err := c.Script(ctx, factsScript, nil, func(l string) {
		key, value, _ := strings.Cut(l, "=")
		values[key] = value
		after = time.Now()
	})
	if err != nil {
		return Facts{}, err
	}
	if r.Exit != 0 || values["clock"] == "" {
		return Facts{}, finding.New("OCA-7607", "Machine "+name+" does not say what it is", cmp.Or(r.Stderr, "it printed nothing"),
			"log in to the machine: it needs sh, awk, ip and coreutils")
	}
	return parse(values, before, after), nil
}

// parse is pure.
func parse(v map[string]string, before, after time.Time) Facts {
	f := Facts{Hostname: v["hostname"], MachineID: v["machineid"], Address: v["address"], MAC: v["mac"], Authority: v["authority"],
		Ours: v["ours"] != "", Administrator: v["administrator"] != "", Curl: v["curl"] != ""}
	f.MTU, _ = strconv.Atoi(v["mtu"]) // 0 is not known
	f.Architecture = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}[v["arch"]]
	if f.Architecture == "" {
		f.Architecture = v["arch"]
	}
	f.Offset = machine.Offset(v["clock"], before, after)
	return f
}

// pairs compares machines with each other, by name. first is the node that init makes, known is the digest of the authority of the cluster that the
// directory of the fleet has, "" if there is none yet. It is pure.
func pairs(all map[string]Facts, first, known string) map[string]finding.List {
	out := map[string]finding.List{}
	names := slices.Sorted(maps.Keys(all))
	add := func(name string, f finding.Finding) { out[name] = append(out[name], f) }
	for _, own := range []struct {
		what string
		of   func(Facts) string
	}{
		{"machine id", func(f Facts) string { return f.MachineID }},
		{"MAC address", func(f Facts) string { return f.MAC }},
		{"IP address", func(f Facts) string { return f.Address }},
	} {
		seen := map[string]string{}
		for _, n := range names {
			v := own.of(all[n])
			if other := seen[v]; v != "" && other != "" {
				add(n, finding.New("OCA-7642", fmt.Sprintf("%s and %s have the same %s", n, other, own.what), v, remedyOfTwins(own.what)))
			}
			seen[v] = cmp.Or(seen[v], n)
		}
	}
	authority := cmp.Or(all[first].Authority, known)
	if f, there := all[first]; there && !f.Administrator && f.Authority != "" {
		authority = "none" // it is a worker of another cluster
	}
	for _, n := range names {
		if a := all[n].Authority; a != "" && a != authority {
			add(n, finding.New("OCA-7643", "Machine "+n+" belongs to another cluster", "the authority in its /etc/kubernetes is not that of this fleet",
				"take it out of that cluster: ocadm reset on it; or take it out of the file"))
		}
	}
	middle := median(all)
	for _, n := range names {
		f := all[n]
		for _, one := range machine.CheckClock(n, f.Offset-middle) {
			add(n, one)
		}
		if a := all[first]; f.MTU != 0 && a.MTU != 0 && f.MTU != a.MTU {
			add(n, finding.Warn("OCA-7645", fmt.Sprintf("%s has MTU %d, and %s has %d", n, f.MTU, first, a.MTU), "large packets between their pods may be lost",
				"give all machines the same MTU"))
		}
	}
	return out
}

func remedyOfTwins(what string) string {
	if what == "machine id" {
		return "on one of them: rm /etc/machine-id && systemd-machine-id-setup, then reboot"
	}
	return "check whether both names in the file mean one machine, and give each machine its own"
}

// median is the offset of the clock in the middle.
func median(all map[string]Facts) time.Duration {
	var offsets []time.Duration
	for _, f := range all {
		offsets = append(offsets, f.Offset)
	}
	if len(offsets) == 0 {
		return 0
	}
	slices.Sort(offsets)
	return offsets[len(offsets)/2]
}
