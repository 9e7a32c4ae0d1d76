// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

// Inventory lists what a reset would remove from this machine and what it would keep, for the confirmation prompt. Value reports whether it removes data,
// which cannot be recovered.
type Inventory struct {
	Removes, Keeps []string
	Value          bool
}

// InventoryOf returns the inventory. It changes nothing.
func InventoryOf(ctx context.Context, h *host.Host) (Inventory, error) {
	var inv Inventory
	files := owned.Files(h)
	data := dataDirs(h)
	var others []string
	if len(data) > 0 {
		if others = otherNamespaces(ctx, h); len(others) > 0 {
			data = nil
		}
	}
	inv.Value = owned.NodeOf(h).Made || len(data) > 0
	described := map[string]string{
		"/var/lib/etcd/member": "the cluster's data", "/var/lib/kubelet/pods": "the data of pods on this node's disk, except host paths and local volumes",
		containerdData: "images and containers", depot.DefaultDir: "images and programs for other nodes",
	}
	rest := map[string]int{}
	for _, f := range slices.Concat(files, data) {
		if what, ok := described[f]; ok {
			inv.Removes = append(inv.Removes, f+": "+what)
			continue
		}
		rest[path.Dir(f)]++
	}
	network, _ := owned.NetworkOf(ctx, h) // the phase reports what cannot be read
	for _, p := range owned.CNIState(h) {
		rest[path.Dir(p)]++
	}
	for _, e := range h.Ledger.Created(host.KindFile) {
		if !slices.Contains(files, e.Name) {
			rest[path.Dir(e.Name)]++
		}
	}
	var dirs []string
	for d, n := range rest {
		dirs = append(dirs, fmt.Sprintf("%s: %d entries of ocadm or Kubernetes", d, n))
	}
	slices.Sort(dirs)
	inv.Removes = slices.Concat(inv.Removes, dirs, network.Summary())
	inv.Keeps = keeps(h, others)
	return inv, nil
}

// keeps lists what stays next to the things that are removed: people look for it by name.
func keeps(h *host.Host, others []string) []string {
	out := append(owned.Beside(h), lists.Map(h.Ledger.Found(host.KindProgram), func(e host.Entry) string { return e.Name + ", which existed before" })...)
	switch {
	case len(others) > 0:
		out = append(out, fmt.Sprintf("%s, which contains containers or images of others (%s)", containerdData, strings.Join(others, ", ")))
	case !ownContainerd(h) && h.Files.Exists(containerdData):
		out = append(out, containerdData+", which ocadm shares with other programs")
	}
	// Host directories that pods use: the kubelet creates them, and what pods wrote there is data.
	dirs := []string{"/etc/yunion", "/etc/openvswitch", "/etc/telegraf", "/opt/telegraf", "/opt/cloud", "/opt/local-path-provisioner"}
	return append(out, lists.Pick(dirs, func(d string) (string, bool) {
		return d + ", unless it is empty", len(owned.Content(h, d)) > 0
	})...)
}
