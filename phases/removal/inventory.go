// SPDX-License-Identifier: Apache-2.0

// Package removal removes from the cluster a node whose machine is lost or will be reset later: its etcd member, its place in the VRRP group, its
// Node and pods and, on request, the volumes that are lost with it. It runs on another control-plane node.
package removal

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/vip"
)

// Inventory lists what the cluster has of a node.
type Inventory struct {
	Node string `json:"node"`
	// Registered reports whether the Node exists, Alive whether its kubelet answers.
	Registered bool `json:"registered"`
	Alive      bool `json:"alive"`
	// Roles are its roles in the cloud, and "control-plane".
	Roles     []string `json:"roles,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// Etcd is "voter", "learner" or "none".
	Etcd string `json:"etcd"`
	// Peers are its addresses in the VRRP group.
	Peers []string `json:"virtualAddressPeers,omitempty"`
	Pods  []string `json:"pods,omitempty"`
	// Volumes are the volumes on its disks.
	Volumes []Volume `json:"volumes,omitempty"`
	// Machines are the node's OnecloudMachines, as NAMESPACE/NAME.
	Machines []string `json:"machines,omitempty"`
	// Nameless lists the addresses of other etcd members that have never started: their nodes are unknown.
	Nameless []string `json:"namelessMembers,omitempty"`

	uid    types.UID
	ready  bool
	member *etcd.Observed
}

// Volume is a volume on the disks of a node.
type Volume struct {
	Name string `json:"name"`
	// Claim is NAMESPACE/NAME, "" if the volume is no longer bound.
	Claim string `json:"claim,omitempty"`
	Path  string `json:"path,omitempty"`
	Size  string `json:"size,omitempty"`
	// Database reports whether it holds the embedded database of a cloud.
	Database bool `json:"database,omitempty"`
	// OtherDatabase is the role of the database server on another node: "primary" or "replica", "" if there is no other.
	OtherDatabase string `json:"otherDatabase,omitempty"`
}

// databaseServer returns the embedded database server with a claim of that name, "" for other claims.
func databaseServer(claim string) string {
	return lists.First(dbpair.Servers(), func(server string) bool { return claim == dbpair.ClaimName(server) })
}

// otherDatabase returns the role of the other server of the embedded database. A database with one copy has no record.
func otherDatabase(ctx context.Context, k client.Client, namespace, server string) (role string, err error) {
	var l coordinationv1.Lease
	found, err := kube.Find(ctx, k, client.ObjectKey{Namespace: namespace, Name: dbpair.RecordName}, &l, "which server of the database is the primary")
	switch {
	case !found:
		return "", err
	case dbpair.ReadRecord(&l).Primary == server:
		return dbpair.RoleReplica, nil
	}
	return dbpair.RolePrimary, nil
}

// kubeletPort answers as long as a node is alive.
var kubeletPort = strconv.Itoa(config.KubeletPort)

const dialTimeout = 2 * time.Second

// Look reads what the cluster has of a node. It accepts the node's address instead of its name: the cluster may know nothing else of a machine whose
// etcd member never started.
func Look(ctx context.Context, h *host.Host, k client.Client, name string) (Inventory, error) {
	all, err := members(ctx, h, k)
	if err != nil {
		return Inventory{Node: name}, err
	}
	return look(ctx, k, name, all)
}

func look(ctx context.Context, k client.Client, name string, all []etcd.Observed) (Inventory, error) {
	out := Inventory{Node: name, Etcd: "none"}
	var nodes corev1.NodeList
	if err := k.List(ctx, &nodes); err != nil {
		return out, fmt.Errorf("listing nodes: %w", err)
	}
	out.Node = nodeAt(name, nodes.Items, all)
	if at := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == out.Node }); at >= 0 {
		out.describe(&nodes.Items[at])
	}
	if a, err := netip.ParseAddr(out.Node); err == nil {
		out.address(a.String())
	}
	if err := out.pods(ctx, k); err != nil {
		return out, err
	}
	if err := out.volumes(ctx, k); err != nil {
		return out, err
	}
	out.etcd(all)
	s, found, err := vip.Load(ctx, k)
	if err != nil {
		return out, err
	}
	if found {
		out.Peers = slices.DeleteFunc(slices.Clone(s.Peers), func(p string) bool { return !slices.Contains(out.Addresses, p) })
	}
	out.Alive = (out.Registered || out.member != nil) && out.answers(ctx)
	return out, out.machines(ctx, k)
}

// Nothing reports whether the cluster has nothing left of the node, apart from volumes.
func (i *Inventory) Nothing() bool {
	return !i.Registered && i.member == nil && len(i.Peers) == 0 && len(i.Pods) == 0
}

// Unknown returns a finding if the cluster has nothing under the node's name, but etcd has a member that may be its.
func (i *Inventory) Unknown() error {
	if len(i.Nameless) == 0 {
		return nil
	}
	return finding.New("OCA-4137", "The cluster has no node "+i.Node+", but etcd has a member that never started",
		"it is at "+strings.Join(i.Nameless, ", ")+", and has no name: the join of that machine is not complete",
		"if that machine is lost: ocadm node remove "+i.Nameless[0]+"; if it still runs, on it: ocadm reset")
}

func (i *Inventory) describe(n *corev1.Node) {
	i.Registered, i.uid, i.ready = true, n.UID, kube.NodeReady(n)
	for _, a := range kube.InternalIPs(n) {
		i.address(a)
	}
	if _, is := n.Labels[v1alpha1.LabelControlPlane]; is {
		i.Roles = append(i.Roles, "control-plane")
	}
	for key, value := range n.Labels {
		if role, is := strings.CutPrefix(key, v1alpha1.NodeRolePrefix); is && value == v1alpha1.Enable {
			i.Roles = append(i.Roles, role)
		}
	}
	slices.Sort(i.Roles)
}

func (i *Inventory) address(a string) {
	if a != "" && !slices.Contains(i.Addresses, a) {
		i.Addresses = append(i.Addresses, a)
	}
}

func (i *Inventory) answers(ctx context.Context) bool {
	for _, a := range i.Addresses {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", net.JoinHostPort(a, kubeletPort))
		if err == nil {
			_ = conn.Close() // nothing was sent
			return true
		}
	}
	return false
}

// etcdAnswers reports whether the machine's etcd member answers: it then runs, even if its kubelet does not answer.
func (i *Inventory) etcdAnswers() bool { return i.member != nil && i.member.Answers }

func (i *Inventory) pods(ctx context.Context, k client.Client) error {
	list, err := kube.PodsOn(ctx, k, i.Node)
	for _, p := range list {
		i.Pods = append(i.Pods, p.Namespace+"/"+p.Name)
		if p.Spec.HostNetwork {
			i.address(p.Status.HostIP) // known even after the Node is gone
		}
	}
	slices.Sort(i.Pods)
	return err
}

func (i *Inventory) volumes(ctx context.Context, k client.Client) error {
	var list corev1.PersistentVolumeList
	if err := k.List(ctx, &list); err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	for _, v := range list.Items {
		if !onlyOn(&v, i.Node) {
			continue
		}
		var claim client.ObjectKey
		if c := v.Spec.ClaimRef; c != nil && v.Status.Phase == corev1.VolumeBound {
			claim = client.ObjectKey{Namespace: c.Namespace, Name: c.Name}
		}
		one := describe(&v, claim)
		if one.Database {
			other, err := otherDatabase(ctx, k, claim.Namespace, databaseServer(claim.Name))
			if err != nil {
				return err
			}
			one.OtherDatabase = other
		}
		i.Volumes = append(i.Volumes, one)
	}
	slices.SortFunc(i.Volumes, func(a, b Volume) int { return cmp.Or(cmp.Compare(a.Claim, b.Claim), cmp.Compare(a.Name, b.Name)) })
	return nil
}

func pathOf(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.Local != nil:
		return v.Spec.Local.Path
	case v.Spec.HostPath != nil:
		return v.Spec.HostPath.Path
	}
	return ""
}

// onlyOn reports whether a volume can be used only on the given node.
func onlyOn(v *corev1.PersistentVolume, node string) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil || len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) == 0 {
		return false
	}
	for _, term := range v.Spec.NodeAffinity.Required.NodeSelectorTerms {
		exprs := slices.Concat(term.MatchExpressions, term.MatchFields)
		if !slices.ContainsFunc(exprs, func(e corev1.NodeSelectorRequirement) bool {
			return (e.Key == corev1.LabelHostname || e.Key == "metadata.name") && e.Operator == corev1.NodeSelectorOpIn && slices.Equal(e.Values, []string{node})
		}) {
			return false
		}
	}
	return true
}

// nodeAt returns the name of the node that a name or an address refers to. For an address, it is the name of the Node or of the etcd member there; a
// member that has never started has no name and is known by its address.
func nodeAt(name string, nodes []corev1.Node, all []etcd.Observed) string {
	address, err := netip.ParseAddr(name)
	if err != nil || slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name }) {
		return name
	}
	for _, n := range nodes {
		if slices.Contains(kube.InternalIPs(&n), address.String()) {
			return n.Name
		}
	}
	for _, m := range all {
		if u, err := url.Parse(m.Peer); err == nil && u.Hostname() == address.String() {
			return m.Node()
		}
	}
	return name
}

// etcd finds the node's member by its name or, before it has one, by its address.
func (i *Inventory) etcd(all []etcd.Observed) {
	i.member = i.memberIn(all)
	i.Nameless = lists.Pick(all, func(m etcd.Observed) (string, bool) {
		return m.Node(), m.Name == "" && (i.member == nil || m.ID != i.member.ID)
	})
	if i.member == nil {
		return
	}
	i.Etcd = map[bool]string{false: "voter", true: "learner"}[i.member.Learner]
	if u, err := url.Parse(i.member.Peer); err == nil {
		i.address(u.Hostname())
	}
}

func (i *Inventory) memberIn(all []etcd.Observed) *etcd.Observed {
	at := slices.IndexFunc(all, func(m etcd.Observed) bool {
		u, err := url.Parse(m.Peer)
		return m.Name == i.Node || m.Name == "" && err == nil && slices.Contains(i.Addresses, u.Hostname())
	})
	if at < 0 {
		return nil
	}
	return &all[at]
}

func members(ctx context.Context, h *host.Host, k client.Client) ([]etcd.Observed, error) {
	c, all, err := kubernetes.ObserveEtcd(ctx, opener(h, k))
	if err != nil {
		return nil, err
	}
	c.Close()
	return all, nil
}

// opener returns a function that opens the cluster's etcd.
func opener(h *host.Host, k client.Client) func(context.Context) (*etcd.Client, error) {
	return func(ctx context.Context) (*etcd.Client, error) { return kubernetes.OpenEtcd(ctx, h, k) }
}

// machines finds the node's OnecloudMachine, which the operator would keep.
func (i *Inventory) machines(ctx context.Context, k client.Client) error {
	var list v1alpha1.OnecloudMachineList
	if err := k.List(ctx, &list); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("listing machines: %w", err)
	}
	i.Machines = lists.Pick(list.Items, func(m v1alpha1.OnecloudMachine) (string, bool) {
		return m.Namespace + "/" + m.Name, m.Status.NodeRef != nil && m.Status.NodeRef.Name == i.Node
	})
	return nil
}
