// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// VirtualAddress returns an address of the lab's network that no machine has.
func (sc *Scenario) VirtualAddress() string {
	octets := sc.Lab.Node(1).Address.As4()
	return fmt.Sprintf("%d.%d.%d.100", octets[0], octets[1], octets[2])
}

// JoinControlPlane joins a machine as a control-plane node, with the command that another one prints.
func (sc *Scenario) JoinControlPlane(ctx context.Context, from, node int, args ...string) error {
	return sc.join(ctx, from, node, []string{"--control-plane"}, args)
}

// HAStatus is the output of "ocadm ha status -o json".
type HAStatus struct {
	Holder    string   `json:"holder"`
	Address   string   `json:"virtualAddress"`
	Tolerates int      `json:"tolerates"`
	Problems  []string `json:"problems"`
	// NotRedundant lists what stops with the loss of one node although the control plane keeps running.
	NotRedundant []string `json:"notRedundant"`
	Nodes        []struct {
		Name, Etcd       string
		Ready, APIServer bool
	} `json:"nodes"`
}

// HAStatus returns the status from a control-plane node.
func (sc *Scenario) HAStatus(ctx context.Context, node int) (s HAStatus, err error) {
	out, err := sc.On(ctx, node, Ocadm, "ha", "status", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	return s, err
}

// Outage requests the virtual address from outside until it has stopped answering and answers again, and returns the length of the gap. fail causes
// it. If the address keeps answering for the quiet time, the result is 0: no client noticed an outage.
func (sc *Scenario) Outage(ctx context.Context, quiet time.Duration, fail func() error) (time.Duration, error) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // only whether it answers is measured
	answers := func() bool {
		_, _, err := fetch(ctx, client, http.MethodGet, "https://"+sc.VirtualAddress()+":6443/readyz", http.Header{}, nil)
		return err == nil
	}
	if !answers() {
		return 0, fmt.Errorf("nothing answers at %s before the failure", sc.VirtualAddress())
	}
	last, begun, silent := time.Now(), time.Now(), false
	if err := fail(); err != nil {
		return 0, err
	}
	for {
		switch {
		case !answers():
			silent = true
		case silent:
			return time.Since(last), nil
		case time.Since(begun) > quiet:
			return 0, nil
		default:
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s has been silent for %s: %w", sc.VirtualAddress(), time.Since(last).Round(time.Second), ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// NodePort exposes CoreDNS's metrics at a node port and requests them at the virtual address until the context ends. Clients reach the cloud through
// node ports of that address.
func (sc *Scenario) NodePort(ctx context.Context, node int) error {
	kubectl := func(argv ...string) (string, error) {
		return sc.On(ctx, node, append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, argv...)...)
	}
	out, err := kubectl("-n", "kube-system", "get", "service", "through-vip", "--ignore-not-found", "-o", "name")
	if err == nil && out == "" {
		_, err = kubectl("-n", "kube-system", "expose", "deployment", "coredns", "--name", "through-vip", "--type", "NodePort", "--port", "9153")
	}
	if err != nil {
		return err
	}
	port, err := kubectl("-n", "kube-system", "get", "service", "through-vip", "-o", "jsonpath={.spec.ports[0].nodePort}")
	if err != nil {
		return err
	}
	via := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return wait.Until(ctx, "NodePort "+port, time.Second, func(ctx context.Context) (bool, string, error) {
		_, _, err := fetch(ctx, via, http.MethodGet, "http://"+net.JoinHostPort(sc.VirtualAddress(), port)+"/metrics", http.Header{}, nil)
		return err == nil, "", err
	}, func(string) {})
}
