// SPDX-License-Identifier: Apache-2.0

// Package move gives a node another address, or lets it follow a control plane that has another one. Each step looks for what still holds the former
// address, so that the command can be cut off anywhere and repeated, and moving back is a move, too.
package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// recordFile says what an unfinished move is about. Package owned removes it with the rest of the state.
const recordFile = host.StateDir + "/move.json"

// Move is what the steps of a move share.
type Move struct {
	Host *host.Host
	// ControlPlane is set on a control-plane node; Follow moves the control plane's address in what a worker has, not the worker's own.
	ControlPlane, Follow bool

	record
}

// record is what survives a command that is cut off.
type record struct {
	From, To netip.Addr
	Follow   bool      `json:"follow,omitempty"`
	Since    time.Time `json:"since"`
	// Restarted is when the kubelet began to run with the new files.
	Restarted time.Time `json:"restarted,omitzero"`
	// Pods are those in the host's network from before, by UID: they have the former address.
	Pods []types.UID `json:"pods,omitempty"`
}

// askTimeout bounds a question to an API server that may not be there.
const askTimeout = 15 * time.Second

// Begin finds out what a move is about, and refuses one that cannot work. It changes nothing.
func Begin(ctx context.Context, h *host.Host, to netip.Addr, follow bool, now time.Time) (*Move, error) {
	if !h.Files.Exists(kubernetes.KubeletKubeconfig) {
		return nil, finding.New("OCA-4160", "This machine is not a node of a cluster", "there is no "+kubernetes.KubeletKubeconfig,
			"give the machine its address, then: ocadm init or ocadm join")
	}
	m := &Move{Host: h, ControlPlane: h.Files.Exists(kubernetes.AdminKubeconfig), Follow: follow}
	if err := m.resume(to, now); err != nil {
		return nil, err
	}
	if m.From.Is4() != m.To.Is4() {
		return nil, finding.New("OCA-4162", "The node cannot move to an address of the other family", fmt.Sprintf("it has %s, and is to get %s", m.From, m.To),
			"choose an address of the same family; another family needs another cluster")
	}
	if follow {
		return m, m.canFollow(ctx)
	}
	return m, m.canMove()
}

// resume continues an unfinished move, turns it round, or begins one.
func (m *Move) resume(to netip.Addr, now time.Time) error {
	raw, err := m.Host.Files.ReadFile(recordFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		from, err := m.present()
		m.record = record{From: from, To: to, Follow: m.Follow, Since: now}
		return err
	case err != nil:
		return fmt.Errorf("reading the record of a move: %w", err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("reading %s: %w", recordFile, err)
	}
	switch {
	case r.Follow != m.Follow || r.To != to && r.From != to:
		command := "ocadm move "
		if r.Follow {
			command += "--follow "
		}
		return finding.New("OCA-4161", "Another move has not ended", fmt.Sprintf("it is from %s to %s", r.From, r.To),
			fmt.Sprintf("end it: %s%s; or go back: %s%s", command, r.To, command, r.From))
	case r.To == to:
		m.record = r
	default: // back; what was restarted has to be again
		m.record = record{From: r.To, To: r.From, Follow: r.Follow, Since: now}
	}
	return nil
}

// present is the address that this machine has, or that its control plane has.
func (m *Move) present() (netip.Addr, error) {
	if !m.Follow {
		if a := kubernetes.NodeAddress(m.Host); a.IsValid() {
			return a, nil
		}
		return netip.Addr{}, finding.New("OCA-4160", "The address of this node is not known", "its kubelet has no --node-ip, so it chooses an address when it starts",
			"on a worker, restart the kubelet: systemctl restart kubelet")
	}
	server, err := kubernetes.Server(m.Host)
	if err != nil {
		return netip.Addr{}, err
	}
	name, _, err := net.SplitHostPort(server)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reading the address of the control plane: %w", err)
	}
	a, err := netip.ParseAddr(name)
	if err != nil {
		return a, finding.New("OCA-4163", "The control plane is reached by a name", "the kubelet asks "+server,
			"change where the name "+name+" leads; nothing on this node has an address")
	}
	return a, nil
}

// canMove refuses an address that the machine does not have, and a control plane of several nodes.
func (m *Move) canMove() error {
	var has []string
	for _, i := range m.Host.Facts.Interfaces {
		for _, p := range i.Prefixes {
			has = append(has, p.Addr().String())
		}
	}
	if !slices.Contains(has, m.To.String()) {
		return finding.New("OCA-4164", "This machine does not have the address "+m.To.String(), "its addresses are "+strings.Join(has, ", "),
			"give it the address, for example beside the present one: ip address add "+m.To.String()+"/24 dev eth0; then run the same command again").With(has...)
	}
	if !m.ControlPlane {
		return nil
	}
	own, err := kubernetes.OwnEtcd(m.Host)
	if err != nil {
		return err
	}
	if len(own.Others()) > 0 || m.Host.Files.Exists(vip.ConfigFile) {
		return finding.New("OCA-4165", "A control-plane node among several, or with a virtual address, is not moved in place",
			"the others know it by its address: in etcd, and in the group of the virtual address",
			"take it out and join it with its new address, one node after the other: ocadm reset; then ocadm join --control-plane")
	}
	return nil
}

// canFollow refuses a control-plane node, and an address at which the cluster does not answer.
func (m *Move) canFollow(ctx context.Context) error {
	if m.ControlPlane {
		return finding.New("OCA-4165", "A control-plane node does not follow", "its kubelet asks the API server of the same machine",
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
	at := net.JoinHostPort(m.To.String(), port)
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := kubernetes.NodeClientAt(m.Host, at)
	if err == nil {
		err = c.Get(ctx, client.ObjectKey{Name: m.Host.Config.Node.Name}, &corev1.Node{})
	}
	if err != nil {
		return finding.Errorf("OCA-4166", "The control plane of this cluster does not answer at "+at, "move the control-plane node first: there, ocadm move "+m.To.String()+
			"; then run the same command again", "%w", err)
	}
	return nil
}

// save writes the record.
func (m *Move) save() error {
	raw, err := json.Marshal(m.record)
	if err != nil {
		return fmt.Errorf("writing the record of a move: %w", err)
	}
	return m.Host.Files.WriteFile(recordFile, raw, 0o600)
}

// Moved reports whether there is nothing to move.
func (m *Move) Moved() bool { return m.From == m.To }
