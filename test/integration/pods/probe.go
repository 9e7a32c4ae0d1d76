// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// How often a container is asked, until it is ready and from then on.
const (
	eager   = 30 * time.Millisecond
	settled = 500 * time.Millisecond
)

// probe asks a container whether it is ready as long as the pod lives.
func (p *pod) probe(ctx context.Context, c *container) {
	if c.argv == nil {
		return
	}
	// A new connection each time, as a kubelet makes, and no certificate is verified.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true} //nolint:gosec // as a kubelet's probe
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for ctx.Err() == nil {
		p.mu.Lock()
		running, was := c.process != nil, c.status.Ready
		p.mu.Unlock()
		is := running && answers(ctx, client, c.spec)
		if is != was && ctx.Err() == nil {
			p.change(ctx, func() { c.status.Ready = is && c.process != nil })
		}
		every := eager
		if is {
			every = settled
		}
		sleep(ctx, every)
	}
}

// answers makes one readiness probe.
func answers(ctx context.Context, client *http.Client, c corev1.Container) bool {
	probe := c.ReadinessProbe
	if probe == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, probe.TimeoutSeconds))*time.Second)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		scheme := "http"
		if probe.HTTPGet.Scheme == corev1.URISchemeHTTPS {
			scheme = "https"
		}
		url := fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, number(c, probe.HTTPGet.Port), probe.HTTPGet.Path)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		request.Header.Set("User-Agent", "kube-probe/1.36")
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode >= 200 && response.StatusCode < 400
	case probe.TCPSocket != nil:
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", number(c, probe.TCPSocket.Port)))
		if err != nil {
			return false
		}
		_ = conn.Close()
	}
	return true
}

func number(c corev1.Container, port intstr.IntOrString) int {
	for _, p := range c.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			return int(p.ContainerPort)
		}
	}
	return port.IntValue()
}
