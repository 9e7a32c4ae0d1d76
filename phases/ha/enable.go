// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/move"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/phases/vip"
)

// BeginEnable plans how to give this machine's cluster an endpoint of its own: a virtual address, the endpoint of a load balancer, or both. It changes nothing.
func BeginEnable(ctx context.Context, h *host.Host, address, endpoint string) (*move.Move, error) {
	if _, err := kubernetes.OwnEtcd(h); err != nil {
		return nil, err
	}
	from, port := h.Config.Node.AdvertiseAddress, h.Config.Node.BindPort
	to, toPort, err := config.SplitEndpoint(cmp.Or(endpoint, address), port)
	if err != nil {
		return nil, err
	}
	if toPort != port {
		return nil, finding.New("OCA-4174", "The endpoint and the API server have different ports", fmt.Sprintf("the endpoint's port is %d, and the API server's is %d", toPort, port),
			"make the load balancer forward port "+strconv.Itoa(port))
	}
	if to == from || address == from {
		return nil, finding.New("OCA-4174", "The endpoint is the address of this node", "without this node, nothing would answer there",
			"give a free address with --high-availability-vip, or the address of a load balancer with --control-plane-endpoint")
	}
	now, err := kubernetes.Endpoint(ctx, h)
	if err != nil {
		return nil, err
	}
	wanted := net.JoinHostPort(to, strconv.Itoa(port))
	if has, _, err := config.SplitEndpoint(now, port); err != nil || now != wanted && has != from {
		return nil, finding.New("OCA-4174", "The cluster already has its own endpoint", "it is "+now,
			"add control-plane nodes: ocadm token create --print-join-command --control-plane")
	}
	leaveFirewall(h)
	alone := *h.Config
	h.Config.Cluster.VirtualAddress, h.Config.Cluster.ControlPlaneEndpoint = address, wanted
	if list := preflight.MoreFirewall(ctx, h, &alone); len(list) > 0 {
		return nil, finding.List(list)
	}
	if address != "" {
		c, err := h.Kube(ctx)
		if err != nil {
			return nil, err
		}
		if h.Config.Cluster.ImageRepository, err = kubernetes.ClusterImageRepository(ctx, h, c); err != nil { // keepalived comes from there as well
			return nil, err
		}
		if list := preflight.VirtualAddress(ctx, h); len(list) > 0 && !h.Files.Exists(vip.ManifestFile) {
			return nil, finding.List(list)
		}
	}
	return move.Endpoint(h, from, to, port), nil
}

// leaveFirewall leaves to the user what init did: all of firewalld with --firewall manual, and the ports of what it did not install. It opened none.
func leaveFirewall(h *host.Host) {
	made := h.Ledger.Created(host.KindFirewall)
	if len(made) == 0 {
		h.Config.Node.Firewall = config.FirewallManual
	}
	if !depot.Has(h) {
		h.Config.Node.Depot = config.None
	}
	for port, choice := range map[string]*string{"8472/udp": &h.Config.Addons.CNI, "80/tcp": &h.Config.Addons.Ingress} {
		if !slices.ContainsFunc(made, func(e host.Entry) bool { return strings.HasSuffix(e.Name, "="+port) }) {
			*choice = config.None
		}
	}
}

// names returns the names that the API server's certificate gets.
func names(h *host.Host) []string {
	endpoint, _, _ := config.SplitEndpoint(h.Config.Cluster.ControlPlaneEndpoint, config.DefaultPort) // BeginEnable has checked it
	out := slices.DeleteFunc([]string{endpoint, h.Config.Cluster.VirtualAddress}, func(n string) bool { return n == "" })
	return slices.Compact(out)
}

// EnableSteps give a cluster with one control-plane node an endpoint other than the address of that node. Existing clients continue with the former address.
func EnableSteps() []move.Step {
	certificates := []string{kubernetes.APIServerCertificate}
	return []move.Step{
		move.Step{
			Name: "certificate", Short: "Add the endpoint to the certificate of the API server", Timeout: time.Minute,
			Run: func(ctx context.Context, m *move.Move, r workflow.Reporter) error {
				return kubernetes.AddNames(ctx, m.Host, r, certificates, names(m.Host)...) // the API server reloads it by itself
			},
		}.Todo(func(_ context.Context, m *move.Move) ([]string, error) {
			files, err := kubernetes.CertificatesWithout(m.Host, certificates, names(m.Host)...)
			for i, f := range files {
				files[i] = fmt.Sprintf("add %v to %s", names(m.Host), f)
			}
			return files, err
		}),
		ofHost(node.Firewall(true)), virtualAddress(), ofHost(vip.StorePhase()),
		move.EndpointStep(),
		{
			Name: "depot", Short: "Let the depot serve at the endpoint", Timeout: 3 * time.Minute,
			Check: func(ctx context.Context, m *move.Move) (bool, error) { return depot.Named(ctx, m.Host) },
			Plan:  workflow.Says[*move.Move]("add the endpoint to the certificate of the depot"),
			Run: func(ctx context.Context, m *move.Move, r workflow.Reporter) error {
				return depot.Rename(ctx, m.Host, r)
			},
		},
		namesStep(),
		move.SettingsStep(),
		move.Step{
			Name: "kubeconfigs", Short: "Write the endpoint into the kubeconfigs of administrators", Timeout: time.Minute,
			Run: func(_ context.Context, m *move.Move, r workflow.Reporter) error {
				_, err := m.Kubeconfigs().Write(m.Host, r)
				return err
			},
		}.Todo(func(_ context.Context, m *move.Move) ([]string, error) { return m.Kubeconfigs().Todo(m.Host), nil }),
		move.CloudStep(),
	}
}

// ofHost converts a phase of the installer to a step.
func ofHost(p host.Phase) move.Step {
	p.After = nil
	return workflow.Over(p, func(m *move.Move) *host.Host { return m.Host })
}

// virtualAddress adds the virtual address. It can be undone as long as no client uses the address.
func virtualAddress() move.Step {
	s := ofHost(vip.Phase())
	s.Undo = func(ctx context.Context, m *move.Move, r workflow.Reporter) error {
		k, err := kubernetes.AdminClient(m.Host)
		if err != nil {
			return err
		}
		return dissolve(ctx, m, k, r)
	}
	return s
}

// dissolve removes the virtual address unless the cluster's settings contain it: kube-proxy, kubeconfigs and joining machines would be sent to an
// address that no machine has. The next run continues from there.
func dissolve(ctx context.Context, m *move.Move, k client.Client, r workflow.Reporter) error {
	settled, err := m.Settled(ctx, k)
	if err != nil {
		return err
	}
	if settled {
		r.Info("the virtual address was kept, because settings of the cluster already contain it: run the same command again to continue")
		return nil
	}
	return vip.Dissolve(ctx, m.Host, k, r)
}

// namesStep makes kubeadm add the virtual address to the certificates of further nodes, if the endpoint is a name.
func namesStep() move.Step {
	return move.Step{
		Name: "names", Short: "Add the virtual address to the certificates of future nodes", Timeout: time.Minute,
		Skip: workflow.SkipIf("the endpoint is the only name", func(m *move.Move) bool { return len(names(m.Host)) < 2 }),
		Run: func(ctx context.Context, m *move.Move, r workflow.Reporter) error {
			changed, err := kubernetes.AddClusterName(ctx, m.Host, m.Host.Config.Cluster.VirtualAddress, false)
			if changed {
				r.Changed("added %s to ConfigMap kube-system/kubeadm-config", m.Host.Config.Cluster.VirtualAddress)
			}
			return err
		},
	}.Todo(func(ctx context.Context, m *move.Move) ([]string, error) {
		lacking, err := kubernetes.AddClusterName(ctx, m.Host, m.Host.Config.Cluster.VirtualAddress, true)
		if !lacking {
			return nil, err
		}
		return []string{"add " + m.Host.Config.Cluster.VirtualAddress + " to ConfigMap kube-system/kubeadm-config"}, err
	})
}
