// SPDX-License-Identifier: Apache-2.0

// Package move gives a node another address, or makes it follow a control plane with a new one. Each step looks for remaining uses of the former
// address, so that the command can be interrupted anywhere and repeated. Moving back is a move as well.
package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// recordFile describes an unfinished move. Package owned removes it with the rest of the state.
const recordFile = host.StateDir + "/move.json"

// Move is the state shared by the steps of a move.
type Move struct {
	Host *host.Host
	// ControlPlane is set on a control-plane node. Follow changes the control plane's address in a worker's files, not the worker's own.
	ControlPlane, Follow bool

	// port, if not 0, restricts the move to settings of Kubernetes that contain the address with this port: the endpoint.
	port int
	// virtual is set if the control plane's virtual address moves.
	virtual *virtual

	record
}

// Endpoint returns a move of the cluster's endpoint from the address of its only control-plane node to another address or a name. The node keeps its own.
func Endpoint(h *host.Host, from, to string, port int) *Move {
	return &Move{Host: h, ControlPlane: true, port: port, record: record{From: from, To: to}}
}

// named returns the former and the new value in the settings of Kubernetes.
func (m *Move) named() (from, to string) {
	if m.port == 0 {
		return m.From, m.To
	}
	port := strconv.Itoa(m.port)
	return net.JoinHostPort(m.From, port), net.JoinHostPort(m.To, port)
}

// Kubeconfigs returns the new content of the files on this control-plane node that hold the former endpoint: administrators' kubeconfigs and kubeadm's configuration.
func (m *Move) Kubeconfigs() host.FileSet {
	from, to := m.named()
	return lists.Pick([]string{kubernetes.AdminKubeconfig, kubernetes.SuperAdminKubeconfig, kubernetes.ConfigFile}, func(name string) (host.File, bool) {
		text := m.Host.Files.Text(name)
		return host.File{Name: name, Data: []byte(replaced(text, from, to)), Mode: 0o600}, holds(text, from)
	})
}

// record is the state that survives an interrupted command.
type record struct {
	// From and To are addresses; To may be the name of the control plane that a worker follows.
	From, To string
	Follow   bool `json:"follow,omitempty"`
	// Endpoint is set if the cluster's endpoint has the address that moves, so that the other nodes must follow.
	Endpoint bool      `json:"endpoint,omitempty"`
	Since    time.Time `json:"since"`
	// Restarted is when the kubelet started with the new files.
	Restarted time.Time `json:"restarted,omitzero"`
	// Pods lists the UIDs of host-network pods started with the former address. It is empty if the API server did not answer.
	Pods []types.UID `json:"pods,omitempty"`
}

// askTimeout bounds a request to an API server that may be down.
const askTimeout = 15 * time.Second

// etcdTimeout bounds the question about the members of etcd, which takes longer without a majority.
const etcdTimeout = etcd.ObserveTimeout + time.Second

// Begin plans a move, and refuses one that cannot work. It changes nothing.
func Begin(ctx context.Context, h *host.Host, to string, follow bool, now time.Time) (*Move, error) {
	if !h.Files.Exists(kubernetes.KubeletKubeconfig) {
		return nil, finding.New("OCA-4160", "This machine is not a node of a cluster", "there is no "+kubernetes.KubeletKubeconfig,
			"give the machine its address, then: ocadm init or ocadm join")
	}
	m := &Move{Host: h, ControlPlane: h.Files.Exists(kubernetes.AdminKubeconfig), Follow: follow}
	if err := m.resume(to, now); err != nil {
		return nil, err
	}
	if otherFamily(m.From, m.To) {
		return nil, finding.New("OCA-4162", "The node cannot move to an address of another family", fmt.Sprintf("it has %s, and the new address is %s", m.From, m.To),
			"choose an address of the same family; another family needs another cluster")
	}
	if follow {
		return m, m.canFollow(ctx)
	}
	return m, m.canMove(ctx)
}

// otherFamily reports whether one address is IPv4 and the other IPv6. A name fits both.
func otherFamily(from, to string) bool {
	a, aerr := netip.ParseAddr(from)
	b, berr := netip.ParseAddr(to)
	return aerr == nil && berr == nil && a.Is4() != b.Is4()
}

// resume continues or reverses an unfinished move, or starts a new one.
func (m *Move) resume(to string, now time.Time) error {
	var r record
	there, err := m.Host.Files.ReadJSON(recordFile, &r)
	switch {
	case err != nil:
		return fmt.Errorf("reading the record of a move: %w", err)
	case !there:
		from, err := m.present()
		m.record = record{From: from, To: to, Follow: m.Follow, Since: now}
		return err
	case r.Follow != m.Follow || r.To != to && r.From != to:
		command := "ocadm move "
		if r.Follow {
			command += "--follow "
		}
		return finding.New("OCA-4161", "Another move is not complete", fmt.Sprintf("it is from %s to %s", r.From, r.To),
			fmt.Sprintf("complete it: %s%s; or undo it: %s%s", command, r.To, command, r.From))
	case r.To == to:
		m.record = r
	default: // reverse; restarts must be repeated
		m.record = record{From: r.To, To: r.From, Follow: r.Follow, Endpoint: r.Endpoint, Since: now}
	}
	return nil
}

// present returns the current address of this machine or of its control plane.
func (m *Move) present() (string, error) {
	if !m.Follow {
		if a := kubernetes.NodeAddress(m.Host); a.IsValid() {
			return a.String(), nil
		}
		return "", finding.New("OCA-4160", "The address of this node is unknown", "its kubelet has no --node-ip, so it chooses an address when it starts",
			"on a worker, restart the kubelet: systemctl restart kubelet")
	}
	server, err := kubernetes.Server(m.Host)
	if err != nil {
		return "", err
	}
	name, _, err := net.SplitHostPort(server)
	if err != nil {
		return "", fmt.Errorf("reading the address of the control plane: %w", err)
	}
	if _, err := netip.ParseAddr(name); err != nil {
		return "", finding.New("OCA-4163", "The control plane is reached by a name", "the kubelet connects to "+server,
			"change the address that the name "+name+" resolves to; no file on this node contains the address")
	}
	return name, nil
}

// canMove refuses an address that the machine does not have, and a control plane with several nodes.
func (m *Move) canMove(ctx context.Context) error {
	var has []string
	for _, i := range m.Host.Facts.Interfaces {
		for _, p := range i.Prefixes {
			has = append(has, p.Addr().String())
		}
	}
	if !slices.Contains(has, m.To) {
		return finding.New("OCA-4164", "This machine does not have the address "+m.To, "its addresses are "+strings.Join(has, ", "),
			"add the address, for example in addition to the current one: ip address add "+m.To+"/24 dev eth0; then run the same command again").With(has...)
	}
	if !m.ControlPlane {
		return nil
	}
	if m.Host.Files.Exists(recordFile) { // files and etcd may contain either address
		return nil
	}
	if _, err := kubernetes.OwnEtcd(m.Host); err != nil {
		return err
	}
	if err := inPlace(members(ctx, m.Host), m.Host.Files.Exists(vip.ConfigFile), kubernetes.EndpointIsHere(m.Host), m.giveBack()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	endpoint, err := kubernetes.Endpoint(ctx, m.Host)
	m.Endpoint = err == nil && config.HostOf(endpoint) == m.From
	return err
}

// inPlace refuses a node that others know by its address. several is the number of etcd members, 0 if unknown: then a cluster whose endpoint is this
// node has no other. Resetting the only control-plane node ends its cluster, so that is suggested only if another one is known. giveBack is the
// command that restores the machine's lost address, "" if it still has it: without the address, members cannot reach each other, and the other
// commands may fail. inPlace has no side effects.
func inPlace(several int, virtual, reachedHere bool, giveBack string) error {
	if !virtual && (several == 1 || several == 0 && reachedHere) {
		return nil
	}
	const rejoin = "remove it and join it with its new address: ocadm reset; then ocadm join --control-plane"
	cause, remedy := "the other nodes use its address: in etcd, and in the group of the virtual address", rejoin+", one node after the other"
	switch several {
	case 0:
		cause += "; the number of etcd's members is unknown"
		remedy = "ocadm etcd status; if this is the only member, ocadm reset would destroy the cluster: first join another control-plane node; then " + rejoin
	case 1:
		cause = "it is the only control-plane node, and the virtual address points to it"
		remedy = "do not reset it now, because that would destroy the cluster: first join another control-plane node with the command that " +
			"ocadm token create --print-join-command --control-plane prints; then " + rejoin
	}
	if virtual {
		remedy += "; for another virtual address: ocadm move --virtual-address ADDRESS"
	}
	switch {
	case giveBack != "" && several == 0:
		remedy = "restore its former address for the time being: " + giveBack + "; then run the same command again; if that does not help: " + remedy
	case giveBack != "":
		remedy = "restore its former address for the time being: " + giveBack + "; then " + remedy
	}
	return finding.New("OCA-4165", "A control-plane node among several, or with a virtual address, cannot be moved in place", cause, remedy)
}

// giveBack returns the command that adds the former address to this machine again, or "" if it still has it.
func (m *Move) giveBack() string {
	var dev string
	var bits int
	for _, i := range m.Host.Facts.Interfaces {
		for _, p := range i.Prefixes {
			switch p.Addr().String() {
			case m.From:
				return ""
			case m.To:
				dev, bits = i.Name, p.Bits()
			}
		}
	}
	return fmt.Sprintf("ip address add %s/%d dev %s", m.From, bits, dev)
}

// members returns the number of etcd members, 0 if unknown.
func members(ctx context.Context, h *host.Host) int {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	list, err := kubernetes.EtcdMembers(ctx, h)
	if err != nil {
		return 0
	}
	return len(list)
}

// canFollow refuses a control-plane node, and an address at which the cluster does not answer.
func (m *Move) canFollow(ctx context.Context) error {
	if m.ControlPlane {
		return finding.New("OCA-4165", "A control-plane node cannot follow a move", "its kubelet uses the API server of the same machine",
			"run ocadm move --follow on the workers, and ocadm move on the control-plane node")
	}
	server, err := kubernetes.Server(m.Host)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(server)
	if err != nil {
		return fmt.Errorf("reading the address of the control plane: %w", err)
	}
	at := net.JoinHostPort(m.To, port)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := kubernetes.NodeClientAt(m.Host, at)
	if err == nil {
		err = c.Get(ctx, client.ObjectKey{Name: m.Host.Config.Node.Name}, &corev1.Node{})
	}
	if err != nil {
		return finding.Errorf("OCA-4166", "The control plane of this cluster does not answer at "+at, "move the control-plane node first: there, ocadm move "+m.To+
			"; then run the same command again", "%w", err)
	}
	return m.reachedThere(ctx, c)
}

// reachedThere refuses the address of an API server that is not the cluster's endpoint, such as that of a node behind a load balancer.
func (m *Move) reachedThere(ctx context.Context, c client.Reader) error {
	endpoint := config.HostOf(kubernetes.PublishedEndpoint(ctx, c))
	if endpoint == "" || endpoint == m.To {
		return nil
	}
	return finding.New("OCA-4166", "The control plane of this cluster is not reached at "+m.To, "according to the cluster, it is reached at "+endpoint,
		"ocadm move --follow "+endpoint+"; if the control plane should be reached at "+m.To+", move it there first")
}

// save writes the record.
func (m *Move) save() error {
	raw, err := json.Marshal(m.record)
	if err != nil {
		return fmt.Errorf("writing the record of a move: %w", err)
	}
	return m.Host.Files.WriteFile(recordFile, raw, 0o600)
}

// Done reports whether there is nothing left to do.
func (m *Move) Done(ctx context.Context) bool {
	if !m.Moved() || !m.Follow {
		return m.Moved()
	}
	n, _, err := m.node(ctx)
	return err == nil && n.Annotations[ofEndpoint] == m.To
}

// Moved reports whether nothing has to move.
func (m *Move) Moved() bool { return m.From == m.To }

// Explain turns an error that ended a move half-way into a finding that says how to continue and how to go back. It returns the error unchanged if
// the move has not begun, was interrupted, or the error is a finding, which has its own remedy.
func (m *Move) Explain(err error) error {
	begun, flag := m.Host.Files.Exists(recordFile), ""
	switch {
	case m.virtual != nil:
		begun, flag = m.virtual.settings.Other.Address != "", "--virtual-address "
	case m.Follow:
		flag = "--follow "
	}
	if err == nil || !begun || len(finding.Of(err)) > 0 || errors.Is(err, context.Canceled) {
		return err
	}
	return finding.Errorf("OCA-4169", "The move is not complete", fmt.Sprintf("correct the cause, then run the same command again, which continues: ocadm move %[1]s%[2]s; "+
		"or undo it: ocadm move %[1]s%[3]s", flag, m.To, m.From), "%w", err)
}
