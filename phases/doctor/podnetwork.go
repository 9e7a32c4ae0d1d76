// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

const (
	// tunnel is flannel's VXLAN interface.
	tunnel = "flannel.1"
	// connectTries connection attempts are made, because one packet may be lost, each with connectWait; a busy kubelet answers in answerWait.
	connectTries = 2
	connectWait  = 1500 * time.Millisecond
	answerWait   = 4 * time.Second
	// tunnelsTime bounds all tunnel checks: the rest of ocadm why matters more. tunnelsAtOnce limits the load in a large cluster.
	tunnelsTime   = 8 * time.Second
	tunnelsAtOnce = 256
	// routesWithin is how long a newly joined node may take to start flannel, whose image is already there.
	routesWithin   = 20 * time.Second
	routesInterval = 250 * time.Millisecond
	// flannelWithin is how long flannel's pod may take to appear if another program has configured a container network.
	flannelWithin = 5 * time.Second
	// flannelLogs matches the kubelet's log directory of the pod. Source: templates/addons/flannel; kubelet kuberuntime BuildPodLogsDirectory.
	flannelLogs = "/var/log/pods/kube-flannel_*"
)

// podNetwork tests flannel's tunnels from this node to the others. At the far end of each it connects to the kubelet: its certificate arrives in
// full-size packets, which a network with a small MTU drops. Tunnels not tested within tunnelsTime are left out.
func podNetwork(ctx context.Context, h *host.Host) []why.Tunnel {
	ctx, cancel := context.WithTimeout(ctx, tunnelsTime)
	defer cancel()
	tried := lists.Parallel(tunnelEnds(h.Files), tunnelsAtOnce, func(_ int, end string) (t why.Tunnel) {
		if problem := through(ctx, net.JoinHostPort(end, strconv.Itoa(config.KubeletPort))); ctx.Err() == nil {
			t = why.Tunnel{To: end, Problem: problem}
		}
		return t
	})
	return slices.DeleteFunc(tried, func(t why.Tunnel) bool { return t.To == "" })
}

// Unreached returns a warning if packets of the pod network do not reach other nodes and come back. It returns nil if they do, if flannel creates no
// routes in 20 seconds, or if flannel is not the pod network. It does not ask the cluster which nodes run. It calls waiting while there are no routes yet.
func Unreached(ctx context.Context, h *host.Host, waiting func(why string)) error {
	limited, cancel := context.WithTimeout(ctx, routesWithin)
	defer cancel()
	began := time.Now()
	_ = wait.Until(limited, "the pod network", routesInterval, func(context.Context) (bool, string, error) {
		other := time.Since(began) >= flannelWithin && otherCNI(h.Files)
		return other || len(tunnelEnds(h.Files)) > 0, "flannel has not created its routes yet", nil
	}, waiting) // without routes, there is nothing to test
	evidence := lists.Pick(podNetwork(ctx, h), func(t why.Tunnel) (string, bool) { return t.Problem, t.Problem != "" })
	if len(evidence) == 0 {
		return nil
	}
	return finding.Warn("OCA-5112", "Pod network packets do not get from this node to other nodes and back",
		"a firewall or security group drops UDP 8472, the network drops packets of the size that flannel sends, or the other nodes are down",
		"allow UDP 8472 between this node and the others, in both directions; then: ocadm why").With(evidence...)
}

// otherCNI reports whether a container network is configured here although flannel does not run: it may be the pod network, or belong to a program such as podman.
func otherCNI(files host.Files) bool {
	return !files.Any(flannelLogs) && !files.Exists(owned.Conflist) && len(owned.CNIConfigs(files)) > 0
}

// through returns why no TLS server answers at an address, or "" if one answers or refuses: packets then went both ways.
func through(ctx context.Context, address string) string {
	var c net.Conn
	var err error
	for range connectTries {
		if c, err = (&net.Dialer{Timeout: connectWait}).DialContext(ctx, "tcp", address); err == nil {
			break
		}
	}
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return ""
	case err != nil:
		return err.Error()
	}
	defer func() { _ = c.Close() }() // nothing was written that could be lost
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	t := tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // only checks whether packets arrive
	if err := t.HandshakeContext(ctx); errors.Is(err, context.DeadlineExceeded) {
		return "connected to " + address + ", and no certificate in " + answerWait.String() + ": packets of full size do not arrive, or the kubelet is slow"
	}
	return ""
}

// tunnelEnds returns the pod network addresses of the other nodes, from the kernel's routing table.
func tunnelEnds(files host.Files) []string {
	return lists.Distinct(lists.Pick(files.Routes(), func(r host.Route) (string, bool) {
		return r.Gateway.String(), r.Link == tunnel && !r.Gateway.IsUnspecified()
	}))
}
