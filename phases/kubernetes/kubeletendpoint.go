// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// The kubelet of a control-plane node uses its own API server. While that is replaced, it uses the cluster's endpoint: after 16 seconds of silence from a kubelet,
// its node is considered lost and the pods are moved.

// KubeletAsksAt reports whether the kubelet of this machine uses this API server, HOST:PORT.
func KubeletAsksAt(h *host.Host, endpoint string) bool {
	at, err := Server(h)
	return err == nil && at == endpoint
}

// LocalEndpoint returns the API server of this control-plane node, HOST:PORT.
func LocalEndpoint(h *host.Host) string {
	return net.JoinHostPort(advertiseAddress(h.Config), strconv.Itoa(int(bindPort(h.Config))))
}

// PointKubelet makes the kubelet of this machine use another API server, and waits until it runs again.
func PointKubelet(ctx context.Context, h *host.Host, r workflow.Reporter, endpoint string) error {
	if err := WriteKubeletEndpoint(h, endpoint); err != nil {
		return err
	}
	if err := h.Start(ctx, r, "kubelet", true); err != nil {
		return err
	}
	return await(ctx, h, r, "kubelet", probeKubelet, hopelessKubelet, diagnoseKubelet)
}

// WriteKubeletEndpoint sets the API server that the kubelet uses after its next restart.
func WriteKubeletEndpoint(h *host.Host, endpoint string) error {
	return editKubeconfig(h, KubeletKubeconfig, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) error {
		c.Server = "https://" + endpoint
		return nil
	})
}

// volumesPatience bounds the wait for volumes. One that cannot be mounted stays wanted forever, and an exchange without the wait only takes longer.
const volumesPatience = time.Minute

// AwaitVolumes waits until a restarted kubelet has found the volumes of all its pods again. A static pod replaced earlier lingers for two minutes, because the
// kubelet waits for the volumes of a pod that it no longer wants.
func AwaitVolumes(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	cfg, err := h.REST(ctx)
	if err != nil {
		return err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("creating a client for the API server: %w", err)
	}
	return awaitVolumes(ctx, h, r, staticVolumes(h), func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		raw, err := d.RESTClient().Get().AbsPath("/api/v1/nodes", h.Config.Node.Name, "proxy/metrics").DoRaw(ctx)
		return string(raw), err
	})
}

func awaitVolumes(ctx context.Context, h *host.Host, r workflow.Reporter, least int, metrics func(context.Context) (string, error)) error {
	limited, cancel := context.WithTimeout(ctx, volumesPatience)
	defer cancel()
	lacking := "" // volumes found at the kubelet's last answer, "" without one
	err := await(limited, h, r, "kubelet", func(ctx context.Context, _ *host.Host) string {
		text, err := metrics(ctx)
		if err != nil {
			lacking = ""
			return err.Error()
		}
		wanted, found := volumesIn(text)
		if found >= wanted && wanted >= least {
			return ""
		}
		lacking = fmt.Sprintf("%d of %d", found, max(wanted, least))
		return "it has not found the volumes of all its pods yet"
	}, hopelessKubelet, diagnoseKubelet)
	if err == nil || lacking == "" || limited.Err() == nil || ctx.Err() != nil {
		return err
	}
	r.Info("continuing although only %s volumes of the pods of this node are mounted; for the reason: kubectl get events -A --field-selector reason=FailedMount", lacking)
	return nil
}

// staticVolumes counts the volumes of the static pods, which the kubelet looks for first.
func staticVolumes(h *host.Host) (n int) {
	for _, f := range h.Files.Glob(manifestsDir + "/*.yaml") {
		if pod, err := readPod(h, f); err == nil {
			n += len(pod.Spec.Volumes)
		}
	}
	return n
}

// volumesIn sums up a metric of the kubelet: the number of volumes it wants, and of those it has.
func volumesIn(metrics string) (wanted, found int) {
	for line := range strings.Lines(metrics) {
		labels, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(labels, "volume_manager_total_volumes{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case strings.Contains(labels, `state="desired_state_of_world"`):
			wanted += int(n)
		case strings.Contains(labels, `state="actual_state_of_world"`):
			found += int(n)
		}
	}
	return wanted, found
}
