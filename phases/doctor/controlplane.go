// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"slices"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/vip"
)

// controlPlane adds what only a control-plane node has.
func controlPlane(ctx context.Context, h *host.Host, m *why.Machine) {
	if m.APIServer = kubernetes.OwnAPIServer(ctx, h); m.APIServer == "" {
		m.APIServer = why.Ready
	} else {
		m.EtcdDatabase = etcd.Damaged(h) // even before its container has logged it
	}
	m.VirtualAddress = virtualAddress(ctx, h)
	m.EtcdSnapshots = etcd.Kept(h, containerLog(h, etcd.Pod, etcd.Container))
}

// virtualAddress returns the state of the virtual address, nil on a node without keepalived.
func virtualAddress(ctx context.Context, h *host.Host) *why.VirtualAddress {
	s, self, found := vip.Own(h)
	if !found {
		return nil
	}
	see := vip.See(ctx, h, s, self)
	see.Keepalived = keepalived(ctx, h)
	return &see
}

func keepalived(ctx context.Context, h *host.Host) string {
	if !h.Files.Exists(vip.ManifestFile) {
		return "there is no " + vip.ManifestFile
	}
	running, err := kubernetes.RunningContainers(ctx, h)
	switch {
	case err != nil:
		return "" // containerd does not answer, which is a cause of its own
	case !slices.Contains(running, kubernetes.Keepalived):
		return "its container does not run"
	}
	return why.Ready
}
