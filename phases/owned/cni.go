// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
)

// Conflist is the configuration of the pod network, which flannel writes.
const Conflist = cniConfigDir + "/10-flannel.conflist"

const (
	// network is the name of the pod network in flannel's configuration (templates/addons/flannel).
	network        = "cbr0"
	flannelSubnet  = "/run/flannel/subnet.env"
	flannelPartial = "/run/flannel/.subnet.env" // while flannel writes it: pkg/subnet/subnet.go
	podNamespaceIn = "K8S_POD_NAMESPACE"
)

// CNIConfigs returns the files from which containerd selects the pod network, by name. Source: go-cni opts.go, loadFromConfDir.
func CNIConfigs(files host.Files) []string {
	out := files.Glob(cniConfigDir+"/*.conf", cniConfigDir+"/*.conflist", cniConfigDir+"/*.json")
	slices.Sort(out)
	return out
}

// cniCandidates returns the existing files that belong to the pod network by their names alone.
func cniCandidates(h *host.Host) []string {
	return slices.DeleteFunc([]string{path.Join(cniStateDir, "networks", network), Conflist, flannelSubnet, flannelPartial},
		func(p string) bool { return !h.Files.Exists(p) })
}

// cached is the part of libcni's cache of a container's network that identifies the container. Source: containernetworking/cni libcni/api.go (cachedInfo).
type cached struct {
	ContainerID string      `json:"containerId"`
	Args        [][2]string `json:"cniArgs"`
	Result      struct {
		Interfaces []struct {
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
	} `json:"result"`
}

func (c cached) ofPod() bool {
	return slices.ContainsFunc(c.Args, func(a [2]string) bool { return a[0] == podNamespaceIn })
}

// caches returns libcni's cache files, those of pods separate from all others.
func caches(h *host.Host) (pods, others map[string]cached) {
	pods, others = map[string]cached{}, map[string]cached{}
	for _, dir := range []string{"results", "cache/results"} {
		for _, f := range Content(h, path.Join(cniStateDir, dir)) {
			var c cached
			raw, err := h.Files.ReadFile(f)
			if err == nil && json.Unmarshal(raw, &c) == nil && c.ofPod() {
				pods[f] = c
			} else {
				others[f] = c
			}
		}
	}
	return pods, others
}

// CNIState returns the files of this node's pod network: its addresses, the caches of libcni and flannel about its pods, and its configuration. Other
// users of CNI, such as nerdctl and podman, share /var/lib/cni.
func CNIState(h *host.Host) []string {
	if !NodeOf(h).Made {
		return nil
	}
	out := cniCandidates(h)
	pods, _ := caches(h)
	for f := range pods {
		out = append(out, f)
	}
	for _, f := range Content(h, path.Join(cniStateDir, "flannel")) {
		var c struct{ Name string }
		if raw, err := h.Files.ReadFile(f); err == nil && json.Unmarshal(raw, &c) == nil && c.Name == network {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(out, func(p string) bool { return theirs(h, p) })
}

// otherCNI reports whether another program uses CNI on this machine: chains that plugins share then do not belong to the node alone.
func otherCNI(h *host.Host) bool {
	for _, f := range Content(h, path.Join(cniStateDir, "networks")) {
		if path.Base(f) != network {
			return true
		}
	}
	if _, others := caches(h); len(others) > 0 {
		return true
	}
	return slices.ContainsFunc(Content(h, cniConfigDir), func(f string) bool { return f != Conflist && !strings.HasSuffix(f, ".ocadm") })
}

// hostportTable is the table of the portmap plugin's nftables back end, one per address family. The containers of all CNI networks share it. A rule's
// comment is the ID of its container. Source: containernetworking/plugins plugins/meta/portmap/portmap_nftables.go.
const hostportTable = "cni_hostport"

// hostportRules returns the rules of this node's pods in such a table, as arguments of "nft delete rule". They are needed only if other programs use
// CNI: otherwise the whole table is deleted.
func hostportRules(ctx context.Context, h *host.Host, table string) ([]string, error) {
	argv := append([]string{"-j", "list", "table"}, strings.Fields(table)...)
	res, err := h.Exec.Run(ctx, exec.Command{Path: "nft", Args: argv})
	if err != nil {
		return nil, cannotLook("packet rules", "nft "+strings.Join(argv, " "), h.Facts.OS.Install("nft"), err)
	}
	var list struct {
		Nftables []struct {
			Rule *struct {
				Chain, Comment string
				Handle         int
			} `json:"rule"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(res.Stdout), &list); err != nil {
		return nil, cannotLook("packet rules", "nft "+strings.Join(argv, " "), "update nftables", err)
	}
	pods, _ := caches(h)
	var out []string
	for _, o := range list.Nftables {
		if r := o.Rule; r != nil && slices.Contains(containers(pods), r.Comment) {
			out = append(out, fmt.Sprintf("%s %s handle %d", table, r.Chain, r.Handle))
		}
	}
	return out, nil
}

// containers returns the container IDs in libcni's cache.
func containers(pods map[string]cached) []string {
	var ids []string
	for _, p := range pods {
		if p.ContainerID != "" {
			ids = append(ids, p.ContainerID)
		}
	}
	return ids
}
