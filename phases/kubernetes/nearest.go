// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/host"
)

// endpointTimeout is how long the cluster's endpoint may take to answer before a control-plane node uses its own API server.
const endpointTimeout = 3 * time.Second

// NearestAPI returns cfg if its server answers, else a configuration for this control-plane node's API server if that is ready. In the second case, why is the
// reason why the server of cfg does not answer. Trust stays the same, so the API server of another cluster is never used.
func NearestAPI(ctx context.Context, h *host.Host, cfg *rest.Config) (nearest *rest.Config, why string) {
	own, ok := ownAPI(h, cfg)
	if !ok {
		return cfg, ""
	}
	status, err := readyzAs(ctx, cfg)
	if status != 0 || err == nil || own.Host == cfg.Host || !answersAdmin(ctx, own) {
		return cfg, ""
	}
	return own, err.Error()
}

// AskNearest makes the clients of h use this control-plane node's API server while the cluster's endpoint does not answer. why is "" if it answers.
func AskNearest(ctx context.Context, h *host.Host) (why string) {
	cfg, err := h.REST(ctx)
	if err != nil {
		return "" // the client reports it
	}
	nearest, why := NearestAPI(ctx, h, cfg)
	if why != "" {
		h.Ask(nearest)
	}
	return why
}

// AskOwn makes the clients of h use this control-plane node's API server, if it is ready: this machine is about to give up the cluster's endpoint, and connections
// to an address that it held itself would hang.
func AskOwn(ctx context.Context, h *host.Host) {
	cfg, err := h.REST(ctx)
	if err != nil {
		return // the client reports it
	}
	if own, ok := ownAPI(h, cfg); ok && answersAdmin(ctx, own) {
		h.Ask(own)
	}
}

// ownAPI returns cfg changed to use the API server of this control-plane node.
func ownAPI(h *host.Host, cfg *rest.Config) (own *rest.Config, ok bool) {
	address, port, ok := OwnEndpoint(h)
	if !ok || cfg.Insecure {
		return nil, false
	}
	own = rest.CopyConfig(cfg)
	own.Host = "https://" + net.JoinHostPort(address, strconv.Itoa(port))
	return own, true
}

// answersAdmin reports whether an API server works. One that refuses an administrator's certificate does too, and its error explains more than the silence of an
// endpoint.
func answersAdmin(ctx context.Context, cfg *rest.Config) bool {
	status, _ := readyzAs(ctx, cfg) // 0 without an answer
	return status == http.StatusOK || status == http.StatusUnauthorized
}

// readyzAs checks whether an API server is ready. status is 0 without an answer.
func readyzAs(ctx context.Context, cfg *rest.Config) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	return kube.Readyz(ctx, cfg)
}

// OwnAPIServer returns why the API server of this control-plane node is not ready, "" if it is.
func OwnAPIServer(ctx context.Context, h *host.Host) string {
	address, port, ok := OwnEndpoint(h)
	if !ok {
		return "this machine has no manifest of an API server"
	}
	return probeAt(ctx, h, net.JoinHostPort(address, strconv.Itoa(port)))
}
