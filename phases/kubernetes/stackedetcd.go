// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// learnerPatience is how long a join waits for another machine's join. kubeadm gives a learner two minutes to start and two to catch up.
const learnerPatience = 5 * time.Minute

// OpenEtcd connects to the cluster's etcd with the certificates of this control-plane node. It finds the members by the annotations of their Pods. Close the client.
func OpenEtcd(ctx context.Context, h *host.Host, k client.Client) (*etcd.Client, error) {
	pods, err := podsOf(ctx, k, constants.Etcd)
	if err != nil {
		return nil, fmt.Errorf("listing the pods of etcd: %w", err)
	}
	c := etcd.Config{}
	for _, p := range pods {
		if url := p.Annotations[constants.EtcdAdvertiseClientUrlsAnnotationKey]; url != "" {
			name := strings.TrimPrefix(p.Name, constants.Etcd+"-")
			c.Members = append(c.Members, etcd.Member{Name: name, ClientURL: url, PeerURL: peerOfClient(url)})
		}
	}
	if c.TLS, err = EtcdTLS(h.Files); err != nil {
		return nil, err
	}
	return etcd.Open(ctx, c)
}

// podsOf lists the static pods of a kubeadm component on all control-plane nodes.
func podsOf(ctx context.Context, k client.Reader, component string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := k.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"component": component, "tier": "control-plane"})
	return pods.Items, err
}

// peerOfClient returns the peer URL of a member set up by kubeadm: its peer port is the one after its client port.
func peerOfClient(url string) string {
	return strings.TrimSuffix(url, strconv.Itoa(constants.EtcdListenClientPort)) + strconv.Itoa(constants.EtcdListenPeerPort)
}

func ownPeerURL(c *config.Config) string {
	return "https://" + net.JoinHostPort(advertiseAddress(c), strconv.Itoa(constants.EtcdListenPeerPort))
}

// etcdClientCert is the certificate with which ocadm, like kubeadm, authenticates to etcd.
const etcdClientCert = pkiDir + "/etcd/healthcheck-client"

// EtcdTLS returns the TLS configuration for clients of this control-plane node's etcd.
func EtcdTLS(files host.Files) (*tls.Config, error) {
	ca, err := files.ReadFile(pkiDir + "/etcd/ca.crt")
	if err != nil {
		return nil, fmt.Errorf("reading etcd's certificate authority: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(files.Path(etcdClientCert+".crt"), files.Path(etcdClientCert+".key"))
	if err != nil {
		return nil, fmt.Errorf("reading this node's certificate for etcd: %w", err)
	}
	out := pinned(ca)
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}

// checkEtcdPhase is the last check before the machine becomes part of the cluster: with the administrator's permissions that it now has, it can see everything that
// would make the join harm the cluster.
func checkEtcdPhase(after string) host.Phase {
	return host.Phase{
		Name: checkEtcdName, Short: "Check that the cluster can accept another control-plane node", After: []string{after}, Skip: NotControlPlane, ReadOnly: true,
		Timeout: learnerPatience + time.Minute,
		Check:   memberVotes,
		Plan:    workflow.Says[*host.Host]("check the endpoint of the cluster, and that a majority of etcd answers and that no other member is joining"),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			k, err := h.Kube(ctx)
			if err != nil {
				return err
			}
			if err := NeedEndpoint(ctx, k); err != nil {
				return err
			}
			c, err := OpenEtcd(ctx, h, k)
			if err != nil {
				return EtcdUnwell(err)
			}
			defer c.Close()
			own := etcd.Member{PeerURL: ownPeerURL(h.Config)}
			if !hasEtcd(h) {
				own.Name = h.Config.Node.Name // former-member removes a member of this name, or refuses
			}
			return AwaitLearners(ctx, own, c, r)
		},
	}
}

// AwaitLearners waits until no machine other than own (by name or peer URL) is joining etcd, which accepts one learner at a time.
func AwaitLearners(ctx context.Context, own etcd.Member, c *etcd.Client, r workflow.Reporter) error {
	ctx, cancel := context.WithTimeout(ctx, learnerPatience)
	defer cancel()
	var other etcd.Listed
	err := wait.Until(ctx, "etcd", time.Second, func(ctx context.Context) (bool, string, error) {
		list, err := c.List(ctx)
		if err != nil {
			return false, "", EtcdUnwell(err)
		}
		var joins bool
		if other, joins = otherLearner(list, own); !joins {
			return true, "", nil
		}
		return false, fmt.Sprintf("another machine, at %s, is joining it", strings.Join(other.PeerURLs, ", ")), nil
	}, func(why string) { r.Waiting("etcd", why) })
	if err == nil || len(finding.Of(err)) > 0 || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	return finding.New("OCA-4137", "The join of another control-plane node was not completed",
		fmt.Sprintf("etcd has a learner at %s, and accepts one at a time", strings.Join(other.PeerURLs, ", ")),
		"complete the join of that machine: run its join command again there; or undo it: ocadm reset; if it is lost, on a control-plane node: ocadm node remove "+other.Node())
}

// otherLearner returns the member of another machine whose join has not finished. This machine's own join continues.
func otherLearner(list []etcd.Listed, own etcd.Member) (etcd.Listed, bool) {
	at := slices.IndexFunc(list, func(m etcd.Listed) bool {
		return (m.Learner || !m.Started()) && !m.At(own.PeerURL) && (m.Name == "" || m.Name != own.Name)
	})
	if at < 0 {
		return etcd.Listed{}, false
	}
	return list[at], true
}

// ObserveEtcd opens a client and returns the reports of etcd's members. Errors are findings. Close the client.
func ObserveEtcd(ctx context.Context, open func(context.Context) (*etcd.Client, error)) (*etcd.Client, []etcd.Observed, error) {
	c, err := open(ctx)
	if err != nil {
		return nil, nil, EtcdUnwell(err)
	}
	all, err := c.Observe(ctx)
	if err != nil {
		c.Close()
		return nil, nil, EtcdUnwell(err)
	}
	return c, all, nil
}

// EtcdUnwell returns the finding for an etcd that does not answer, or for the API server, which lists its pods.
func EtcdUnwell(err error) error {
	if _, api := errors.AsType[*url.Error](err); api {
		err = kube.Explain(err)
	}
	if len(finding.Of(err)) > 0 {
		return err
	}
	return finding.Errorf("OCA-4136", "etcd of the cluster does not answer", "on a control-plane node: kubectl -n kube-system get pods -l component=etcd -o wide", "%w", err)
}

// memberVotes is the check of etcd-join: this node's member is no longer a learner.
func memberVotes(ctx context.Context, h *host.Host) (bool, error) {
	if there, err := manifestComplete(h, constants.Etcd); !there || err != nil {
		return false, err
	}
	return live(func(ctx context.Context, k client.Client, h *host.Host) (bool, error) {
		c, err := OpenEtcd(ctx, h, k)
		if err != nil {
			return false, err
		}
		defer c.Close()
		list, err := c.List(ctx)
		return slices.ContainsFunc(list, func(m etcd.Listed) bool { return m.At(ownPeerURL(h.Config)) && m.Started() && !m.Learner }), err
	})(ctx, h)
}

// NeedEndpoint returns a finding if the control plane's endpoint is the address of one of its nodes: the other nodes would not help if that one is lost.
func NeedEndpoint(ctx context.Context, k client.Client) error {
	conf, err := liveClusterConfiguration(ctx, k)
	if err != nil {
		return fmt.Errorf("reading the configuration of the cluster: %w", err)
	}
	host, _, err := config.SplitEndpoint(conf.ControlPlaneEndpoint, config.DefaultPort)
	if err != nil {
		return fmt.Errorf("reading the endpoint of the cluster: %w", err)
	}
	nodes, err := ControlPlanes(ctx, k)
	if err != nil {
		return err
	}
	of := host
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Address == host || host == "" {
				of = n.Name
			}
		}
	}
	if host != "" && of == host {
		return nil
	}
	return finding.New("OCA-4130", "The cluster has no separate endpoint, so it cannot accept a second control-plane node",
		fmt.Sprintf("nodes reach it at %s, which is node %s: without that node, nothing would answer", conf.ControlPlaneEndpoint, of),
		"add an endpoint, on its control-plane node: ocadm ha enable --high-availability-vip ADDRESS, or with --control-plane-endpoint HOST:PORT")
}

// leaveEtcd removes this machine's member, even a learner whose join did not finish. The machine leaves the cluster even if that fails.
func leaveEtcd(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := leaveMember(ctx, h, r); err != nil {
		r.Info("the member of etcd could not be removed: %v; if the cluster has other control-plane nodes, on one of them: ocadm node remove %s",
			err, h.Config.Node.Name)
	}
	return nil
}

// leaveMember finds etcd through the cluster or, if that does not answer, through this machine's member. A member left behind is a lost voter: if there were two,
// the other one alone has no majority.
func leaveMember(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	err := removeMember(ctx, h, r, func(ctx context.Context) (*etcd.Client, error) {
		k, err := h.Kube(ctx)
		if err != nil {
			return nil, err
		}
		return OpenEtcd(ctx, h, k)
	})
	if err == nil {
		return nil
	}
	own := removeMember(ctx, h, r, func(ctx context.Context) (*etcd.Client, error) { return OpenOwnEtcd(ctx, h, true) })
	if own == nil {
		return nil
	}
	return fmt.Errorf("through the cluster: %w; through the member of this machine: %w", err, own)
}

func removeMember(ctx context.Context, h *host.Host, r workflow.Reporter, open func(context.Context) (*etcd.Client, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 4*removalTimeout)
	defer cancel()
	c, err := open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.List(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(list, func(m etcd.Listed) bool { return m.Name == h.Config.Node.Name || m.At(ownPeer(h)) })
	switch {
	case at < 0:
		r.Info("etcd has no member of this machine")
		return nil
	case len(list) == 1:
		r.Info("etcd has no member on another control-plane node: etcd ends with this one")
		return nil
	}
	if err := c.Remove(ctx, list[at]); err != nil {
		return err
	}
	r.Changed("removed member %s of etcd", h.Config.Node.Name)
	return nil
}

// ownPeer returns the peer URL of this machine's member from its manifest, because reset does not get the addresses that init or join got.
func ownPeer(h *host.Host) string {
	if url := installedPod(h, constants.Etcd).Annotations[constants.EtcdAdvertiseClientUrlsAnnotationKey]; url != "" {
		return peerOfClient(url)
	}
	return ownPeerURL(h.Config)
}
