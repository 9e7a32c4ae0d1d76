// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// startAgent plays a program of a compute node that serves no API.
func startAgent(ctx context.Context, m Machine, p servicespec.Spec, options servicespec.Values) error {
	switch p.Name {
	case "host-health":
		return hostHealth(ctx, m, p, options)
	case "host-deployer": // the real one also logs in, but verifies no certificate: its pod has no CA to log in with here
		log.Printf("%s is up", p.Name)
		return Deployer(ctx, m)
	case "host-image":
		_, err := logIn(ctx, m, options)
		return m.stayUp(ctx, p, err)
	}
	return m.stayUp(ctx, p, nil)
}

// hostHealth ends unless region returns control-plane nodes. The real one pings them before it stops servers.
func hostHealth(ctx context.Context, m Machine, p servicespec.Spec, options servicespec.Values) error {
	session, err := logIn(ctx, m, options)
	if err != nil {
		return err
	}
	var answer struct {
		Host struct{ IPs []string }
	}
	if err := ofRegion(ctx, session, options, http.MethodGet, "/hosts/k8s-master-node-ips", nil, &answer); err != nil {
		return fmt.Errorf("Init host health manager failed %w", err)
	}
	if len(answer.Host.IPs) == 0 {
		return errors.New("Init host health manager failed failed get k8s master nodes")
	}
	log.Printf("k8s master nodes ips %v", answer.Host.IPs)
	return m.stayUp(ctx, p, nil)
}

// ofRegion calls region at its address in the catalogue.
func ofRegion(ctx context.Context, session *Client, options servicespec.Values, method, path string, body, out any) error {
	base, found := session.Current().Endpoint("compute_v2", options.Text("session_endpoint_type", "internal"), options.Text("region", ""))
	if !found {
		return errors.New("no endpoint of compute_v2")
	}
	return session.Call(ctx, method, base+path, body, out)
}

// registerAgain is the delay after a failed registration of a host. The real one waits 30 s.
const registerAgain = 5 * time.Second

// prepareHost runs a command on the node through the executor and starts to register the host.
func prepareHost(ctx context.Context, m Machine, options servicespec.Values, session *Client) error {
	if options.Flag("enable_remote_executor") {
		wait := time.Duration(options.Number("executor_connect_timeout_seconds", 30)) * time.Second
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		node := executor.Client{Socket: m.path(options.Text("executor_socket_path", executor.DefaultSocket))}
		if _, err := node.Run(limited, exec.Command{Path: "true"}); err != nil {
			return fmt.Errorf("Host instance init error: Prepare environment: Failed to activate tun/tap device: grpc dial error: %w", err)
		}
	}
	ip, err := address(options)
	if err != nil {
		return fmt.Errorf("Host instance init error: %w", err)
	}
	go func() {
		for again := true; again; again = wait.Sleep(ctx, registerAgain) == nil {
			err := register(ctx, m, options, session, ip)
			if err == nil {
				log.Print("Host registration process success....")
				return
			}
			log.Printf("register failed: %v, try %s later...", err, registerAgain)
		}
	}()
	return nil
}

// address returns the address of this host: that of its first network (nic/bridge/ip), or the source address of its default route.
func address(options servicespec.Values) (string, error) {
	if networks := options.List("networks"); len(networks) > 0 {
		parts := strings.Split(networks[0], "/")
		if len(parts) < 3 || net.ParseIP(parts[2]) == nil {
			return "", fmt.Errorf("networks: %q is not nic/bridge/ip", networks[0])
		}
		return parts[2], nil
	}
	// Nothing is sent: connecting a datagram socket only chooses a route.
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return "", fmt.Errorf("no networks and no default route: %w", err)
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return host, err
}

// register registers the host with region, which must have a network for physical machines with its address. The real one takes the mask (in the lab
// always 24) and the MAC address from the interface: a node that gets another address keeps it.
func register(ctx context.Context, m Machine, options servicespec.Values, session *Client, ip string) error {
	var answer struct {
		Networks struct {
			Found bool `json:"find_matched"`
		}
	}
	asked := map[string]any{"ip": ip, "mask": 24, "is_classic": true, "server_type": "baremetal", "is_on_premise": true}
	if err := ofRegion(ctx, session, options, http.MethodPost, "/networks/try-create-network", asked, &answer); err != nil {
		return err
	}
	if !answer.Networks.Found {
		return errors.New("try create network: find_matched == false")
	}
	name, err := m.hostname()
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(name))
	mac := net.HardwareAddr(append([]byte{0, 0x22}, sum[:4]...)).String()
	var list struct{ Hosts []rest.Record }
	if err := ofRegion(ctx, session, options, http.MethodGet, "/hosts?any_mac="+mac, nil, &list); err != nil {
		return err
	}
	if len(list.Hosts) > 0 {
		return nil
	}
	host := rest.Record{"name": name, "access_ip": ip, "access_mac": mac, "manager_uri": "https://" + net.JoinHostPort(ip, "8885")}
	return ofRegion(ctx, session, options, http.MethodPost, "/hosts", map[string]any{"host": host}, nil)
}
