// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// JournalLines is the number of lines kept from the end of a unit's journal, staticLines that of a control-plane log.
const (
	JournalLines = "150"
	staticLines  = 60
)

// Machine collects the state of this machine for a snapshot. ok is false if it is not a node.
func Machine(ctx context.Context, h *host.Host) (m why.Machine, disks []why.Disk, ok bool) {
	m = why.Machine{Node: cmp.Or(kubernetes.RegisteredAs(h).Name, h.Facts.Hostname), Stopped: kubernetes.StoppedPods(h)}
	m.ControlPlane = kubernetes.IsControlPlane(h) || len(m.Stopped) > 0
	if !m.ControlPlane && !h.Files.Exists("/etc/kubernetes/kubelet.conf") {
		return m, nil, false
	}
	m.Units, m.Journals, m.StaticPods = map[string]string{}, map[string][]string{}, map[string][]string{}
	for _, unit := range why.Units {
		if state, err := property(ctx, h, unit+".service", "ActiveState"); err == nil {
			m.Units[unit] = state
		}
		res, err := h.Exec.Run(ctx, exec.Command{Path: "journalctl", Args: []string{"-u", unit, "-n", JournalLines, "--no-pager", "-o", "cat"}})
		if err == nil && strings.TrimSpace(res.Stdout) != "" {
			m.Journals[unit] = strings.Split(strings.TrimSpace(res.Stdout), "\n")
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if lines := containerLog(h, name, name); len(lines) > 0 {
			m.StaticPods[name] = lines
		}
	}
	m.Certificates = certificates(h.Files)
	if m.Address, m.Addresses = addresses(h); h.Facts.Address.IsValid() {
		m.Uplink = h.Facts.Address.String()
	}
	m.Tunnels = podNetwork(ctx, h)
	if len(m.Stopped) > 0 {
		m.Unfinished = unfinished(h)
	}
	if m.ControlPlane {
		controlPlane(ctx, h, &m)
	}
	if isCompute(h.Files) {
		m.Findings = Gather(ctx, h)
	}
	disks = disksOf(h.Files, m.Node, "/", "/var/lib/etcd", "/var/lib/containerd", "/var/lib/kubelet", "/opt/cloud", "/opt/local-path-provisioner", "/var/log")
	return m, disks, true
}

// containerLog returns the end of the log of a static pod's container since its last start.
func containerLog(h *host.Host, pod, container string) []string {
	file, _ := kubernetes.NewestLog(h, "kube-system_"+pod+"-*", container)
	lines := containerLines(tail(h.Files, file))
	return lines[max(0, len(lines)-staticLines):]
}

// certificates returns the certificates that kubeadm made, and the kubelet's own. Those inside kubeconfig files are left out; kubeadm renews them together with these.
func certificates(files host.Files) []why.Certificate {
	var out []why.Certificate
	for _, file := range files.Glob("/etc/kubernetes/pki/*.crt", "/etc/kubernetes/pki/etcd/*.crt", "/var/lib/kubelet/pki/kubelet-client-current.pem") {
		raw, err := files.ReadFile(file)
		if err != nil {
			continue
		}
		if all, err := pki.ParseCerts(raw); err == nil { // the first is the leaf
			out = append(out, why.Certificate{File: path.Clean(file), NotAfter: all[0].NotAfter.UTC()})
		}
	}
	slices.SortFunc(out, func(a, b why.Certificate) int { return strings.Compare(a.File, b.File) })
	return out
}

// disksOf returns the file systems of dirs, without duplicates, with the limits of this machine's kubelet.
func disksOf(files host.Files, node string, dirs ...string) []why.Disk {
	var k kubeletv1beta1.KubeletConfiguration
	if raw, err := files.ReadFile(kubernetes.KubeletConfigFile); err != nil || yaml.Unmarshal(raw, &k) != nil {
		k = kubeletv1beta1.KubeletConfiguration{}
	}
	var out []why.Disk
	seen := map[[2]int32]bool{}
	for _, dir := range dirs {
		fs, ok := filesystem(files, dir)
		if !ok || fs.Blocks == 0 || seen[fs.Fsid.Val] {
			continue
		}
		seen[fs.Fsid.Val] = true
		size := uint64(fs.Bsize) //nolint:gosec // a block size is positive
		out = append(out, why.Disk{Node: node, What: dir, Capacity: fs.Blocks * size, Free: fs.Bavail * size, Inodes: fs.Files, InodesFree: fs.Ffree}.Under(k))
	}
	return out
}
