// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Status is the state of the control plane in "ha status".
type Status struct {
	Endpoint string `json:"endpoint"`
	// Address is the virtual address, or "". Holder is the node whose API server answers there, "" if none does.
	Address string `json:"virtualAddress,omitempty"`
	Holder  string `json:"holder,omitempty"`
	// Nodes lists the control-plane nodes by name.
	Nodes []NodeStatus `json:"nodes"`
	// Tolerates is the number of further etcd members that may be lost before nothing works.
	Tolerates int `json:"tolerates"`
	// Problems lists what makes the control plane less available than it could be.
	Problems []string `json:"problems,omitempty"`
}

// NodeStatus is the state of one control-plane node.
type NodeStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
	// APIServer reports whether the API server of the node answers.
	APIServer bool `json:"apiServer"`
	// Etcd is "voter", "learner" or "none".
	Etcd string `json:"etcd"`
	// Holds reports whether the node has the virtual address. It is set for each node that has it.
	Holds bool `json:"holdsVirtualAddress"`
}

// Look reads the state of the control plane. It works on a control-plane node, whose certificates etcd accepts.
func Look(ctx context.Context, h *host.Host, k client.Client) (Status, error) {
	endpoint, err := kubernetes.Endpoint(ctx, h)
	if err != nil {
		return Status{}, err
	}
	out := Status{Endpoint: endpoint}
	s, found, err := Load(ctx, k)
	if err != nil {
		return out, err
	}
	nodes, err := kubernetes.ControlPlanes(ctx, k)
	if err != nil {
		return out, err
	}
	c, err := kubernetes.OpenEtcd(ctx, h, k)
	if err != nil {
		return out, err
	}
	defer c.Close()
	members, err := c.List(ctx)
	if err != nil {
		return out, err
	}
	_, port, _ := config.SplitEndpoint(endpoint, config.DefaultPort) // the default applies if the endpoint has no port
	if found {
		out.Address, out.Holder = s.Address, answering(ctx, s.Address, port)
	}
	ports, err := kubernetes.APIPorts(ctx, k)
	if err != nil {
		return out, err
	}
	out.Nodes = lists.Map(nodes, func(n corev1.Node) NodeStatus {
		return statusOf(ctx, n, members, out.Holder, cmp.Or(ports[n.Name], h.Config.Node.BindPort))
	})
	slices.SortFunc(out.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	out.judge(members)
	if s.Other.Address != "" {
		out.Problems = append(out.Problems, fmt.Sprintf("a move of the virtual address is not complete, and both %s and %s are up: "+
			"complete it with ocadm move --virtual-address and the address to keep",
			s.Address, s.Other.Address))
	}
	return out, nil
}

func statusOf(ctx context.Context, n corev1.Node, members []etcd.Listed, holder string, apiPort int) NodeStatus {
	out := NodeStatus{Name: n.Name, Etcd: "none", Holds: n.Name == holder, Ready: kube.NodeReady(&n)}
	if at := kube.InternalIPs(&n); len(at) > 0 {
		out.Address = at[0]
	}
	for _, m := range members {
		if m.Name == n.Name {
			out.Etcd = map[bool]string{false: "voter", true: "learner"}[m.Learner]
		}
	}
	out.APIServer = answering(ctx, out.Address, apiPort) != ""
	return out
}

// answering returns the node whose API server answers at an address, by the node name in its certificate.
func answering(ctx context.Context, address string, port int) string {
	if address == "" { // of a node that has not reported one: this machine would answer
		return ""
	}
	cert, err := kubernetes.Shown(ctx, net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return ""
	}
	return nodeIn(cert.DNSNames)
}

// nodeIn returns the first name in an API server's certificate that is not one of its service: kubeadm puts the node's name there.
func nodeIn(names []string) string {
	return lists.First(names, func(n string) bool {
		return n != "kubernetes" && n != "localhost" && !strings.HasPrefix(n, "kubernetes.default")
	})
}

// judge fills in Problems.
func (s *Status) judge(members []etcd.Listed) {
	problem := func(format string, args ...any) { s.Problems = append(s.Problems, fmt.Sprintf(format, args...)) }
	voters, up := 0, 0
	for _, m := range members {
		at := slices.IndexFunc(s.Nodes, func(n NodeStatus) bool { return n.Name == m.Name })
		switch {
		case m.Learner || !m.Started():
			problem("a learner of etcd at %s has not completed its join; if its machine is lost: ocadm node remove %s", strings.Join(m.PeerURLs, ", "), m.Node())
			continue
		case at < 0:
			problem("member %s of etcd has no control-plane Node: if its machine runs, there: systemctl restart kubelet, then its join command again; if it is lost: ocadm node remove %s",
				m.Name, m.Name)
		case s.Nodes[at].APIServer:
			up++
		}
		voters++
	}
	for _, n := range s.Nodes {
		if !n.Ready {
			problem("node %s is not Ready: ocadm why %s", n.Name, n.Name)
		}
		if !n.APIServer {
			problem("the API server of node %s does not answer: on it, as root: ocadm why", n.Name)
		}
	}
	s.Tolerates = max(0, up-(voters/2+1))
	if voters < 3 {
		problem("etcd has %d voting members: the loss of one stops the cluster; three survive it", voters)
	}
	if s.Address != "" && s.Holder == "" {
		problem("no node answers at the virtual address %s", s.Address)
	}
}
