// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yunion.io/x/ocadm/internal/wait"
)

// untilReady probes a running program until it is ready.
func (p *pod) untilReady(running context.Context, c *container) {
	for !answers(running, p.address, c.spec) {
		if wait.Sleep(running, 30*time.Millisecond) != nil {
			return
		}
	}
	p.change(running, func() { c.status.Ready = running.Err() == nil })
}

// answers runs one readiness probe.
func answers(ctx context.Context, address string, c corev1.Container) bool {
	probe := c.ReadinessProbe
	if probe == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, probe.TimeoutSeconds))*time.Second)
	defer cancel()
	if probe.HTTPGet == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", address, number(c, probe.TCPSocket.Port)))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	url := fmt.Sprintf("%s://%s:%d%s", strings.ToLower(string(cmp.Or(probe.HTTPGet.Scheme, "HTTP"))), address, number(c, probe.HTTPGet.Port), probe.HTTPGet.Path)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	request.Header.Set("User-Agent", "kube-probe/1.36")
	// As in a kubelet, each probe makes a new connection, follows no redirect, and verifies no certificate.
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as a kubelet's probe
	response, err := (&http.Transport{TLSClientConfig: insecure, DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode >= 200 && response.StatusCode < 400
}

func number(c corev1.Container, port intstr.IntOrString) int {
	if i := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return port.Type == intstr.String && p.Name == port.StrVal }); i >= 0 {
		return int(c.Ports[i].ContainerPort)
	}
	return port.IntValue()
}
