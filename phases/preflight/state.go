// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/owned"
)

// checkNodeState rejects a machine that is another tool's node. ocadm works on fresh machines and on its own.
func checkNodeState(_ context.Context, m *machine) []finding.Finding {
	for _, other := range []struct{ name, path, remove string }{
		{"k3s", "/etc/rancher/k3s", "k3s-uninstall.sh, or on an agent k3s-agent-uninstall.sh"}, // they leave /etc/rancher/node
		{"k3s", "/var/lib/rancher/k3s/agent", "k3s-uninstall.sh, or on an agent k3s-agent-uninstall.sh"},
		{"RKE2", "/etc/rancher/rke2", "rke2-uninstall.sh"},
		{"RKE2", "/var/lib/rancher/rke2", "rke2-uninstall.sh"},
		{"k0s", "/var/lib/k0s", "k0s stop; k0s reset"},
		{"MicroK8s", "/var/snap/microk8s", "snap remove microk8s"},
	} {
		if m.h.Files.Exists(other.path) {
			return []finding.Finding{finding.New("OCA-1005", "Another Kubernetes is on this machine", other.name+" has left "+other.path,
				"remove it first: "+other.remove)}
		}
	}
	signs := m.kubernetesSigns()
	if len(signs) == 0 {
		return nil
	}
	if !m.ours() {
		return []finding.Finding{finding.New("OCA-1004", "This machine is already a Kubernetes node, and ocadm did not set it up",
			"there is "+strings.Join(signs, ", "), "if that node is no longer needed, remove it with the tool that created it, for example: kubeadm reset").With(signs...)}
	}
	if err := kubernetes.OtherRelease(m.h); err != nil {
		return finding.Of(err)
	}
	earlier := kubernetes.EarlierConfig(m.h)
	if err := kubernetes.OtherCluster(m.h); m.kind == Join && err != nil {
		return finding.Of(err)
	}
	if found := m.otherName(earlier); found != nil {
		return found
	}
	if found := m.otherRole(earlier.Join); found != nil {
		return found
	}
	other := finding.Of(kubernetes.OtherVersion(m.h))
	if m.kind == Init {
		return slices.Concat(m.changedNetworks(earlier.Networking), m.changedEndpoint(earlier.Endpoint), other)
	}
	return other
}

// otherRole rejects a machine that is a node in another role than the command gives it. The remedy names the resuming command first, because reset
// destroys what the node holds.
func (m *machine) otherRole(joined bool) []finding.Finding {
	refuse := func(what, was, command string) []finding.Finding {
		return []finding.Finding{finding.New("OCA-1006", what, "ocadm has set it up as "+was,
			"to resume, run its "+command+" command again; to start over, which removes the node and what it holds: ocadm reset")}
	}
	role := func(controlPlane bool) string {
		if controlPlane {
			return "a control-plane node"
		}
		return "a worker"
	}
	is, wanted := owned.NodeOf(m.h).ControlPlane, m.h.Config.Join.ControlPlane
	switch {
	case m.kind == Join && !joined:
		return refuse("ocadm join cannot be used on this machine", "the first control-plane node of its cluster", "init")
	case m.kind == Join && is != wanted:
		return refuse("ocadm join cannot make this machine "+role(wanted), role(is), "join")
	case m.kind != Join && joined:
		return refuse("ocadm init cannot be used on this machine", role(is)+" of a cluster", "join")
	}
	return nil
}

// changedEndpoint rejects a second init that would move the cluster's nodes to another endpoint, usually because a flag of the first one was left out:
// certificates, kubeconfigs and the endpoint of join commands would all change.
func (m *machine) changedEndpoint(was string) []finding.Finding {
	if now := m.h.Config.Cluster.ControlPlaneEndpoint; was != "" && was != now {
		return []finding.Finding{finding.New("OCA-1007", "The nodes of the cluster on this machine reach it at "+was, "this command would make it "+now,
			"use the flags of the first init, --high-availability-vip, --control-plane-endpoint, --node-ip or --apiserver-bind-port, or after "+
				"ocadm ha enable its flags; to change the endpoint: ocadm ha enable; to move the machine to another address: ocadm move")}
	}
	return nil
}

// otherName rejects a machine that is already a node under another name: volumes, and the kubelet's credentials, belong to the former one. A first init
// that failed may get another name.
func (m *machine) otherName(earlier kubernetes.Earlier) []finding.Finding {
	is, name := earlier.Registered.Name, m.h.Config.Node.Name
	if is == "" || name == "" || !m.h.Files.Exists(kubernetes.KubeletKubeconfig) || m.kind == Init && earlier.Endpoint == "" {
		return nil
	}
	flags, machine := m.h.Files.Text(kubernetes.KubeletFlagsFile), strings.ToLower(m.h.Facts.Hostname)
	switch {
	case is != name && m.kind == Init:
		return []finding.Finding{finding.New("OCA-1057", "This machine is node "+is+" already", "this command would make it node "+name+" of the same cluster",
			"give --node-name "+is+", or leave it out")}
	case is != name:
		return []finding.Finding{finding.New("OCA-1057", "This machine is node "+is+" already", "it cannot also join as "+name,
			"if it is the right machine, join with --node-name "+is+", or remove that node first: ocadm reset; otherwise correct the address")}
	case flags != "" && !strings.Contains(flags, "--hostname-override=") && machine != "" && machine != is: // kubeadm names a node only if its machine has another name
		return []finding.Finding{finding.New("OCA-1057", "The machine of node "+is+" was renamed", "its kubelet would register as "+machine+", and the cluster refuses that",
			"hostnamectl set-hostname "+is+" && systemctl restart kubelet")}
	}
	return nil
}

func (m *machine) kubernetesSigns() []string {
	signs := lists.Filter([]string{kubernetes.AdminKubeconfig, kubernetes.KubeletKubeconfig, "/etc/kubernetes/bootstrap-kubelet.conf",
		"/etc/kubernetes/pki/ca.crt", "/var/lib/kubelet/config.yaml", "/var/lib/etcd/member"}, m.h.Files.Exists)
	if m.h.Files.Any("/etc/kubernetes/manifests/*.yaml") {
		signs = append(signs, "/etc/kubernetes/manifests/*.yaml")
	}
	return signs
}

// changedNetworks rejects a second init with networks to which the existing cluster cannot change.
func (m *machine) changedNetworks(was kubernetes.Networking) []finding.Finding {
	if !m.h.Files.Exists("/var/lib/etcd/member") {
		return nil
	}
	c := m.h.Config.Cluster
	var changed []string
	for _, s := range []struct{ flag, was, now string }{
		{"--pod-network-cidr", was.PodSubnet, c.PodNetworkCIDR},
		{"--service-cidr", was.ServiceSubnet, c.ServiceCIDR},
		{"--service-dns-domain", was.DNSDomain, c.ServiceDNSDomain},
	} {
		if s.was != "" && s.was != s.now {
			changed = append(changed, fmt.Sprintf("%s was %s and is now %s", s.flag, s.was, s.now))
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1007", "The cluster on this machine was created with other networks", strings.Join(changed, "; "),
		"use the earlier values, or start over: ocadm reset")}
}
