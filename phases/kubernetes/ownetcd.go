// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

// EtcdMember is this machine's etcd member as described by its manifest.
type EtcdMember struct {
	etcd.Member
	DataDir string
	// Cluster holds the members that it was started with, NAME=URL.
	Cluster []string

	// loopback is its client address on the loopback interface, host:port; "" if it has none.
	loopback string
	pod      corev1.Pod
}

// OwnEtcd reads the manifest of this machine's member, even if the member is stopped.
func OwnEtcd(h *host.Host) (EtcdMember, error) {
	text := cmp.Or(h.Files.Text(manifest(constants.Etcd)), h.Files.Text(stopped(constants.Etcd)))
	var m EtcdMember
	if text == "" || yaml.Unmarshal([]byte(text), &m.pod) != nil || len(m.pod.Spec.Containers) == 0 {
		return m, finding.New("OCA-4146", "No member of etcd is on this machine", "there is no usable "+manifest(constants.Etcd),
			"run the command on a control-plane node that ocadm set up; an external etcd is repaired with its own tools")
	}
	for _, arg := range m.pod.Spec.Containers[0].Command {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch name {
		case "name":
			m.Name = value
		case "initial-advertise-peer-urls":
			m.PeerURL, _, _ = strings.Cut(value, ",")
		case "advertise-client-urls":
			m.ClientURL, _, _ = strings.Cut(value, ",")
		case "listen-client-urls":
			m.loopback = loopbackOf(value)
		case "data-dir":
			m.DataDir = value
		case "initial-cluster":
			m.Cluster = strings.Split(value, ",")
		}
	}
	if m.Name == "" || m.PeerURL == "" || m.ClientURL == "" || m.DataDir == "" {
		return m, finding.New("OCA-4146", "No member of etcd is on this machine", "its manifest lacks a name, an address or a directory", "restore "+manifest(constants.Etcd))
	}
	return m, nil
}

// loopbackOf returns the first loopback address, host:port, among the URLs, "" if there is none.
func loopbackOf(urls string) string {
	for one := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(one); err == nil {
			if a, err := netip.ParseAddr(u.Hostname()); err == nil && a.IsLoopback() {
				return u.Host
			}
		}
	}
	return ""
}

// dial connects to this machine's member at its loopback address, where kubeadm makes it listen too, and to others at their own. The machine may have lost the
// address that its member advertises, and another machine may have it now. The certificate is checked against the advertised address in both cases.
func (m EtcdMember) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if u, err := url.Parse(m.ClientURL); err == nil && u.Host == address && m.loopback != "" {
		if conn, err := d.DialContext(ctx, network, m.loopback); err == nil {
			return conn, nil
		}
	}
	return d.DialContext(ctx, network, address)
}

// Accepts reports whether the member accepts connections on this machine. Another machine may have the address that it advertises.
func (m EtcdMember) Accepts(ctx context.Context) bool {
	at := m.loopback
	if u, err := url.Parse(m.ClientURL); at == "" && err == nil {
		at = u.Host
	}
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", at)
	if err == nil {
		_ = conn.Close() // nothing was sent
	}
	return err == nil
}

// acceptTimeout bounds a connection within this machine.
const acceptTimeout = 2 * time.Second

// Others returns the addresses of the other members that it was started with.
func (m EtcdMember) Others() []string {
	var out []string
	for _, one := range m.Cluster {
		_, at, _ := strings.Cut(one, "=")
		if u, err := url.Parse(at); err == nil && at != m.PeerURL && u.Hostname() != "" {
			out = append(out, u.Hostname())
		}
	}
	return out
}

// EtcdMembers returns the peer addresses of all etcd members, from this machine's member or, if that is not running, its database. The manifest is not a source:
// that of the first control-plane node names only itself.
func EtcdMembers(ctx context.Context, h *host.Host) ([]string, error) {
	m, err := OwnEtcd(h)
	if err != nil {
		return nil, err
	}
	c, err := OpenOwnEtcd(ctx, h, false)
	if err == nil {
		defer c.Close()
		var list []etcd.Observed
		if list, err = c.Observe(ctx); err == nil {
			return lists.Map(list, func(o etcd.Observed) string { return o.Peer }), nil
		}
	}
	peers, dberr := snapshot.Peers(h.Files.Path(snapshot.Database(m.DataDir)))
	if dberr != nil {
		return nil, errors.Join(err, dberr)
	}
	return peers, nil
}

// ControlPlanes lists the control-plane nodes of the cluster.
func ControlPlanes(ctx context.Context, k client.Reader) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := k.List(ctx, &nodes, client.HasLabels{constants.LabelNodeRoleControlPlane}); err != nil {
		return nil, fmt.Errorf("listing control-plane nodes: %w", err)
	}
	return nodes.Items, nil
}

// ControlPlaneAddresses asks the cluster, which may not answer, for the addresses of its control-plane nodes.
func ControlPlaneAddresses(ctx context.Context, h *host.Host) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	k, err := h.Kube(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := ControlPlanes(ctx, k)
	if err != nil {
		return nil, err
	}
	return slices.Concat(lists.Map(nodes, func(n corev1.Node) []string { return kube.InternalIPs(&n) })...), nil
}

// EndpointIsHere reports whether the cluster's endpoint is this machine's API server: then it has no other control-plane node.
func EndpointIsHere(h *host.Host) bool {
	own, _, ok := OwnEndpoint(h)
	at, err := serverIn(h, AdminKubeconfig)
	return ok && err == nil && at.Hostname() == own
}

// OpenOwnEtcd connects to this machine's member or, with all set, to all that it lists. Close the client.
func OpenOwnEtcd(ctx context.Context, h *host.Host, all bool) (*etcd.Client, error) {
	m, err := OwnEtcd(h)
	if err != nil {
		return nil, err
	}
	c := etcd.Config{Members: []etcd.Member{m.Member}, Dial: m.dial}
	if c.TLS, err = EtcdTLS(h.Files); err != nil {
		return nil, err
	}
	one, err := etcd.Open(ctx, c)
	if err != nil || !all {
		return one, err
	}
	defer one.Close()
	list, err := one.Observe(ctx)
	if err != nil {
		return nil, err
	}
	c.Members = lists.Map(list, func(o etcd.Observed) etcd.Member {
		return etcd.Member{Name: o.Name, ClientURL: cmp.Or(o.Client, "https://unknown.invalid"), PeerURL: o.Peer}
	})
	return etcd.Open(ctx, c)
}

// StartEtcdAs writes the manifest of this machine's member so that it starts as a new member of an existing cluster, and starts it.
func StartEtcdAs(h *host.Host, m EtcdMember, cluster []etcd.Observed) error {
	members := lists.Pick(cluster, func(o etcd.Observed) (string, bool) { return o.Name + "=" + o.Peer, o.Peer != m.PeerURL })
	members = append(members, m.Name+"="+m.PeerURL)
	c := &m.pod.Spec.Containers[0]
	c.Command = slices.DeleteFunc(slices.Clone(c.Command), func(a string) bool { return strings.HasPrefix(a, "--initial-cluster") })
	c.Command = append(c.Command, "--initial-cluster="+strings.Join(members, ","), "--initial-cluster-state=existing")
	raw, err := yaml.Marshal(m.pod)
	if err != nil {
		return fmt.Errorf("writing the manifest of etcd: %w", err)
	}
	if err := h.Files.Replace(stopped(constants.Etcd), raw, 0o600); err != nil {
		return err
	}
	if err := os.Rename(h.Files.Path(stopped(constants.Etcd)), h.Files.Path(manifest(constants.Etcd))); err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	return nil
}
