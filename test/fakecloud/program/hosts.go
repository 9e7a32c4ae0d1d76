// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kuberest "k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/test/fakecloud/rest"
)

// hosts returns region's API for agents of compute nodes. As in the real region, a class property is under the singular key, the result of an action
// on the class under the plural.
func (s Service) hosts() rest.Routes {
	own := rest.Routes{
		{Method: http.MethodGet, Path: "/hosts/k8s-master-node-ips", Handle: s.only("hosts", rest.Get, func(c rest.Call) (any, error) {
			ips, err := s.Machine.masters(c.Context())
			return map[string]any{"host": map[string]any{"ips": ips}}, err
		})},
		{Method: http.MethodPost, Path: "/networks/try-create-network", Handle: s.only("networks", rest.Perform, func(c rest.Call) (any, error) {
			found, err := s.matches(c.Context(), c.Body)
			return map[string]any{"networks": map[string]any{"find_matched": found}}, err
		})},
	}
	return append(own, s.plain(
		rest.Collection{Path: "/hosts", Singular: "host", Required: named, Defaults: rest.Record{"enabled": false}, Prepare: s.prepareHostRecord},
		rest.Collection{Path: "/networks", Singular: "network", Required: named, Prepare: prepareNetwork},
	)...)
}

// masters asks Kubernetes, with the pod's own token, for the addresses of the nodes labelled as masters.
func (m Machine) masters(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token, err := os.ReadFile(m.path(account + "token"))
	if err != nil {
		return nil, fmt.Errorf("get k8s client: get kubernetes config inside cluster: %w", err)
	}
	config := &kuberest.Config{
		Host:        "https://" + net.JoinHostPort(m.getenv("KUBERNETES_SERVICE_HOST"), m.getenv("KUBERNETES_SERVICE_PORT")),
		BearerToken: string(token), TLSClientConfig: kuberest.TLSClientConfig{CAFile: m.path(account + "ca.crt")},
	}
	client, err := kuberest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("get k8s client: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/nodes?labelSelector=node-role.kubernetes.io%2Fmaster", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("list master nodes: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("list master nodes: %s: %.300s", response.Status, text), err)
	}
	var list corev1.NodeList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("list master nodes: %w", err)
	}
	ips := []string{}
	for _, n := range list.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				ips = append(ips, a.Address)
			}
		}
	}
	return ips, nil
}

// prepareHostRecord checks that no other host has the same address, and adds the filter with which an agent looks for its host.
func (s Service) prepareHostRecord(ctx context.Context, _ rest.Call, r rest.Record) error {
	if r.Text("access_mac") == "" && r.Text("uuid") == "" {
		return rest.BadInput("missing access_mac and uuid in no_probe mode")
	}
	hosts, err := s.Store.List(ctx, "hosts")
	if err != nil {
		return err
	}
	for _, field := range []string{"access_mac", "manager_uri"} {
		if slices.ContainsFunc(hosts, func(h rest.Record) bool { return r.Text(field) != "" && h.Text(field) == r.Text(field) }) {
			return &rest.Error{Code: http.StatusConflict, Class: "ConflictError", Details: "another host has " + field + " " + r.Text(field)}
		}
	}
	r["any_mac"] = r["access_mac"]
	return nil
}

func prepareNetwork(_ context.Context, _ rest.Call, r rest.Record) error {
	for _, key := range []string{"guest_ip_start", "guest_ip_end"} {
		if _, err := netip.ParseAddr(r.Text(key)); err != nil {
			return rest.BadInput("%s: %v", key, err)
		}
	}
	return nil
}

// matches reports whether a network for physical machines contains the address and has the mask.
func (s Service) matches(ctx context.Context, asked rest.Record) (bool, error) {
	for _, key := range []string{"ip", "mask", "server_type"} {
		if asked[key] == nil {
			return false, &rest.Error{Code: http.StatusBadRequest, Class: "MissingParameterError", Details: "Missing parameter " + key}
		}
	}
	if asked["is_on_premise"] != true {
		return false, rest.BadInput("Only support on premise network")
	}
	ip, err := netip.ParseAddr(asked.Text("ip"))
	if err != nil {
		return false, rest.BadInput("ip: %v", err)
	}
	networks, err := s.Store.List(ctx, "networks")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(networks, func(n rest.Record) bool {
		first, err1 := netip.ParseAddr(n.Text("guest_ip_start"))
		last, err2 := netip.ParseAddr(n.Text("guest_ip_end"))
		return err1 == nil && err2 == nil && n.Text("server_type") == asked.Text("server_type") &&
			n.Text("guest_ip_mask") == asked.Text("mask") && first.Compare(ip) <= 0 && ip.Compare(last) <= 0
	}), nil
}

// guests returns a host's API for servers. A server is an endless program that was started through the executor and detached, as QEMU does with
// -daemonize. Its pid is in servers_path/<id>/pid.
func (s Service) guests() rest.Routes {
	run := func(c rest.Call, script string) (string, error) {
		id := c.Params["id"]
		if id != filepath.Base(id) || strings.HasPrefix(id, ".") {
			return "", rest.BadInput("server %q is not a name", id)
		}
		dir := filepath.Join(s.Options.Text("servers_path", "/opt/cloud/workspace/servers"), id)
		ctx, cancel := context.WithTimeout(c.Context(), s.executorTimeout()+10*time.Second)
		defer cancel()
		node := executor.Client{Socket: s.Machine.path(s.Options.Text("executor_socket_path", executor.DefaultSocket))}
		r, err := node.Run(ctx, exec.Command{Path: "sh", Args: []string{"-c", script, "server", dir}})
		if err != nil {
			return "", fmt.Errorf("running on the node: %w", err)
		}
		return strings.TrimSpace(r.Stdout), nil
	}
	const (
		start = `mkdir -p "$1" && rm -f "$1/pid" && setsid -f sh -c 'echo $$ >"$0/pid"; exec tail -f /dev/null' "$1" </dev/null >/dev/null 2>&1 &&
			until [ -s "$1/pid" ]; do sleep 0.1; done && cat "$1/pid"`
		stop   = `kill "$(cat "$1/pid")" && rm -r "$1"`
		status = `if kill -0 "$(cat "$1/pid")" 2>/dev/null; then echo running; else echo stopped; fi`
	)
	answer := func(key, script string) rest.Handler {
		return s.only("servers", rest.Perform, func(c rest.Call) (any, error) {
			out, err := run(c, script)
			return map[string]any{key: out}, err
		})
	}
	return rest.Routes{
		{Method: http.MethodPost, Path: "/servers/{id}/start", Handle: answer("pid", start)},
		{Method: http.MethodPost, Path: "/servers/{id}/stop", Handle: answer("out", stop)},
		{Method: http.MethodGet, Path: "/servers/{id}/status", Handle: answer("status", status)},
	}
}
