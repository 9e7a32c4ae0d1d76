// SPDX-License-Identifier: Apache-2.0

package move

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	vipgroup "yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/phases/vip"
)

// ofEndpoint is the Node annotation with the address at which the node's files look for the control plane. A move of the virtual address first writes
// the former one, so that it sees which nodes have followed, in both directions.
const ofEndpoint = "ocadm.yunion.io/control-plane-address"

// virtual is the additional state of a move of the virtual address.
type virtual struct {
	settings vipgroup.Settings
	// byName is the name by which nodes reach the control plane, "" if they use the virtual address.
	byName string
	// led reports whether the name resolved to the new address, and no longer to the former one, when the command started.
	led   bool
	nodes []corev1.Node
}

// BeginVirtual plans a move of the virtual address, and refuses one that cannot work. It changes nothing. The move is recorded in the cluster's
// settings, so that any control-plane node can finish it.
func BeginVirtual(ctx context.Context, h *host.Host, to string) (*Move, error) {
	if !h.Files.Exists(kubernetes.AdminKubeconfig) {
		return nil, refusedVirtual("this machine is not a control-plane node", "run the command on one of the control-plane nodes")
	}
	k, err := kubernetes.AdminClient(h)
	if err != nil {
		return nil, err
	}
	s, found, err := vip.Load(ctx, k)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, refusedVirtual("the cluster has no virtual address", "ocadm ha enable --high-availability-vip "+to)
	}
	m := &Move{Host: h, ControlPlane: true, virtual: &virtual{settings: s}}
	if m.record, err = direction(s, to); err != nil {
		return nil, err
	}
	endpoint, err := kubernetes.Endpoint(ctx, h)
	if err != nil {
		return nil, err
	}
	name, port, err := config.SplitEndpoint(endpoint, config.DefaultPort)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(name); err != nil {
		m.virtual.byName, m.virtual.led = name, m.leads(ctx, name)
	}
	h.Config.Cluster.VirtualAddress, h.Config.Cluster.ControlPlaneEndpoint = to, net.JoinHostPort(to, strconv.Itoa(port))
	if err := m.look(ctx, k); err != nil {
		return nil, err
	}
	if !m.Moved() {
		err = m.ready()
	}
	if err == nil && !m.Moved() && s.Other.Address == "" {
		if list := preflight.FreeAddress(ctx, h, to, "ocadm move --virtual-address ADDRESS"); len(list) > 0 {
			return nil, finding.List(list)
		}
	}
	return m, err
}

func refusedVirtual(why, remedy string) error {
	return finding.New("OCA-4167", "The virtual address cannot be moved", why, remedy)
}

// direction decides whether a move starts, continues or is reversed.
func direction(s vipgroup.Settings, to string) (record, error) {
	a, err := netip.ParseAddr(to)
	switch {
	case err != nil || !a.Is4():
		return record{}, refusedVirtual(to+" is not an IPv4 address", "give a free IPv4 address of the network of the nodes")
	case slices.Contains(s.Peers, to):
		return record{}, refusedVirtual(to+" is the address of a control-plane node", "give a free IPv4 address of the network of the nodes")
	case s.Address == to && s.Other.Address == "":
		return record{From: to, To: to}, nil
	case s.Address == to:
		return record{From: s.Other.Address, To: to}, nil
	case s.Other.Address == "" || s.Other.Address == to:
		return record{From: s.Address, To: to}, nil
	}
	return record{}, finding.New("OCA-4161", "Another move is not complete", fmt.Sprintf("it moves the virtual address between %s and %s", s.Address, s.Other.Address),
		fmt.Sprintf("complete it: ocadm move --virtual-address %s; or undo it: ocadm move --virtual-address %s", s.Other.Address, s.Address))
}

func (m *Move) look(ctx context.Context, k client.Client) error {
	var list corev1.NodeList
	if err := k.List(ctx, &list); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	m.virtual.nodes = list.Items
	return nil
}

// leads reports whether a name resolves to the new address, and no longer to the former one.
func (m *Move) leads(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	at, err := net.DefaultResolver.LookupHost(ctx, name)
	return err == nil && slices.Contains(at, m.To) && !slices.Contains(at, m.From)
}

// ready refuses a move while a control-plane node cannot take part: it would come back with the former address.
func (m *Move) ready() error {
	for _, n := range m.controlPlanes() {
		if !kube.NodeReady(&n) {
			return refusedVirtual("node "+n.Name+" is not Ready, and every control-plane node must take part",
				"repair it, or remove it: ocadm node remove "+n.Name+"; then run the same command again")
		}
	}
	return nil
}

func (m *Move) controlPlanes() []corev1.Node {
	return slices.DeleteFunc(slices.Clone(m.virtual.nodes), func(n corev1.Node) bool { _, is := n.Labels[v1alpha1.LabelControlPlane]; return !is })
}

// Left returns the workers that still look for the control plane at the former virtual address. If they use a name, it returns that name until it
// resolves to the new address.
func (m *Move) Left() []string {
	switch {
	case m.virtual.led:
		return nil
	case m.virtual.byName != "":
		return []string{m.virtual.byName}
	}
	return lists.Pick(m.virtual.nodes, func(n corev1.Node) (string, bool) {
		_, controls := n.Labels[v1alpha1.LabelControlPlane]
		return n.Name, !controls && n.Annotations[ofEndpoint] != m.To
	})
}

// Followers returns the commands that the user must run before the former virtual address can be removed.
func (m *Move) Followers() []string {
	left := m.Left()
	if m.Moved() || len(left) == 0 {
		return nil
	}
	out := make([]string, 0, len(left)+1)
	for _, name := range left {
		if name == m.virtual.byName {
			out = append(out, fmt.Sprintf("make the name %s resolve to %s instead of %s, for all nodes", name, m.To, m.From))
		} else {
			out = append(out, fmt.Sprintf("on %s: ocadm move --follow %s", name, m.To))
		}
	}
	return append(out, "then, to release "+m.From+": ocadm move --virtual-address "+m.To)
}

// VirtualSteps move the virtual address. Both addresses are up from the second step to the last, so that no client is cut off.
func VirtualSteps() []Step {
	return []Step{
		onNodesStep(Certificates, "Add the new address to the certificates of every control-plane node", func(ctx context.Context, m *Move, n corev1.Node) bool {
			return named(ctx, n, m.Host.Config.Node.BindPort, m.To) && named(ctx, n, config.DepotPort, m.To)
		}),
		announceStep(),
		EndpointStep(),
		SettingsStep(),
		onNodesStep(Files, "Write the new address into the files of every control-plane node", func(_ context.Context, m *Move, n corev1.Node) bool {
			return n.Annotations[ofEndpoint] == m.To
		}),
		CloudStep(),
		{
			Name: "exchange", Short: "Make the new address the cluster's", Timeout: time.Minute,
			Check: func(_ context.Context, m *Move) (bool, error) { return m.virtual.settings.Address == m.To, nil },
			Plan: workflow.Line(func(m *Move) string {
				return "make " + m.To + " the virtual address of the cluster, and keep " + m.From + " for now"
			}),
			Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
				return m.change(ctx, r, "made "+m.To+" the virtual address of the cluster", func(s vipgroup.Settings) vipgroup.Settings {
					if s.Address == m.To {
						return s
					}
					return s.Swap()
				})
			},
		},
		formerStep(),
	}
}

// EndpointStep waits until the API server answers at the new endpoint.
func EndpointStep() Step {
	return Step{
		Name: "endpoint", Short: "Wait for the API server at the endpoint", Timeout: 3 * time.Minute,
		Check: func(ctx context.Context, m *Move) (bool, error) { return kubernetes.EndpointAnswers(ctx, m.Host), nil },
		Plan:  workflow.Says[*Move](),
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			return kubernetes.AwaitEndpoint(ctx, m.Host, r)
		},
	}
}

// change updates the settings in the cluster.
func (m *Move) change(ctx context.Context, r workflow.Reporter, did string, to func(vipgroup.Settings) vipgroup.Settings) error {
	k, err := kubernetes.AdminClient(m.Host)
	if err != nil {
		return err
	}
	if m.virtual.settings, err = vip.Change(ctx, k, to); err != nil {
		return err
	}
	r.Changed("%s", did)
	return nil
}

// announceStep makes keepalived hold the new address as well. Nodes without a mark count as those that use the former one.
func announceStep() Step {
	return Step{
		Name: "announce", Short: "Let the control-plane nodes hold the new address, too", Timeout: 2 * time.Minute,
		Check: func(_ context.Context, m *Move) (bool, error) {
			return m.virtual.settings.Address == m.To || m.virtual.settings.Other.Address == m.To, nil
		},
		Plan: workflow.Line(func(m *Move) string { return "let keepalived hold " + m.To + " in addition to " + m.From }),
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			iface, err := vipgroup.InterfaceOf(m.Host.Config.Node.AdvertiseAddress)
			if err != nil {
				return err
			}
			r.Waiting("router IDs of VRRP", "listening on "+iface)
			id, _, err := vipgroup.FreeRouterID(ctx, iface, m.virtual.settings.RouterID)
			r.Waiting("router IDs of VRRP", "")
			if err != nil {
				return err
			}
			k, err := kubernetes.AdminClient(m.Host)
			if err != nil {
				return err
			}
			for _, n := range m.virtual.nodes {
				if n.Annotations[ofEndpoint] == "" {
					if err := mark(ctx, k, n.Name, m.From); err != nil {
						return err
					}
				}
			}
			return m.change(ctx, r, "let keepalived hold "+m.To+", too", func(s vipgroup.Settings) vipgroup.Settings {
				s.Other = vipgroup.Group{Address: m.To, RouterID: id}
				return s
			})
		},
	}
}

// formerStep removes the former address when no node uses it any more.
func formerStep() Step {
	return Step{
		Name: "former", Short: "Release the former address", Timeout: 2 * time.Minute,
		Skip: func(m *Move) string {
			if left := m.Left(); !m.Moved() && len(left) > 0 {
				return "still in use by " + strings.Join(left, ", ")
			}
			return ""
		},
		Check: func(_ context.Context, m *Move) (bool, error) { return m.virtual.settings.Other.Address == "", nil },
		Plan:  workflow.Line(func(m *Move) string { return "release " + m.From }),
		Run: func(ctx context.Context, m *Move, r workflow.Reporter) error {
			err := m.change(ctx, r, "released "+m.From, func(s vipgroup.Settings) vipgroup.Settings {
				s.Other = vipgroup.Group{}
				return s
			})
			if err != nil {
				return err
			}
			at := net.JoinHostPort(m.From, strconv.Itoa(m.Host.Config.Node.BindPort))
			return m.until(ctx, r, "the end of "+m.From, func(ctx context.Context) (bool, string, error) {
				ctx, cancel := context.WithTimeout(ctx, dialTimeout)
				defer cancel()
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
				if err != nil {
					return true, "", nil // the step waits for no answer
				}
				return false, "it is up", c.Close()
			})
		},
	}
}

// mark records the address at which a node looks for the control plane.
func mark(ctx context.Context, k client.Client, node, address string) error {
	n := &corev1.Node{}
	n.Name = node
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, ofEndpoint, address)
	if err := k.Patch(ctx, n, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("noting the control plane's address on node %s: %w", node, err)
	}
	return nil
}
