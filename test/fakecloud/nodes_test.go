// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/require"
)

// nodes holds the programs that work with a node: region, glance and the agents. They need what the real ones need.
type nodes struct {
	t           *testing.T
	c           *fakecloudtest.Cloud
	r           *rest
	auth        string
	agentConfig map[string]any
}

func testNodes(t *testing.T, c *fakecloudtest.Cloud, r *rest) {
	n := &nodes{t: t, c: c, r: r.in(t), auth: c.AuthURL()}
	port := fakecloudtest.FreePort(t)
	region := c.Start("region", "--config", c.Config("region-again", c.Certificate("region"), c.Account("regionadmin", "region-pw"),
		map[string]any{"port": port, "sql_connection": c.Database("yunioncloud", "rg@pw"), "auto_sync_table": true})).Listening(t, port)
	defer region.Stop()
	base := fmt.Sprintf("https://localhost:%d", port)
	services := n.r.want(http.StatusOK, http.MethodGet, n.auth+"/services?type=compute_v2", "")["services"].([]any)
	body := fmt.Sprintf(`{"endpoint":{"service_id":%q,"region_id":"region0","interface":"public","url":%q,"enabled":true}}`, services[0].(map[string]any)["id"], base)
	n.r.want(http.StatusOK, http.MethodPost, n.auth+"/endpoints", body)
	n.r.account(n.auth, "hostadmin", "host-pw")
	n.agentConfig = c.Account("hostadmin", "host-pw")
	n.agentConfig["session_endpoint_type"] = "public"

	t.Run("region without a token", func(t *testing.T) {
		answer := n.r.in(t).want(http.StatusInternalServerError, http.MethodGet, base+"/hosts/k8s-master-node-ips", "")
		if !strings.Contains(fmt.Sprint(answer["details"]), "get kubernetes config inside cluster") {
			t.Errorf("%v", answer)
		}
	})
	t.Run("host-health without a control plane", func(t *testing.T) {
		p := c.Start("host-health", "--common-config-file", c.Config("health", c.Certificate("host"), n.agentConfig))
		if code := p.Wait(); code != 1 || !strings.Contains(p.Output(), "Init host health manager failed") {
			t.Errorf("exit %d: %s", code, p.Output())
		}
	})
	t.Run("glance", func(t *testing.T) { n.glance(t) })
	t.Run("host", func(t *testing.T) { n.host(t, base) })
}

// node runs an executor until the test ends.
func node(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") // the path of a socket has at most 107 bytes
	require.NoError(t, err)
	socket := filepath.Join(dir, "exec.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- executor.Run(ctx, executor.Options{Socket: socket, StopTimeout: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	eventually(t, "the executor listens", func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (n *nodes) glance(t *testing.T) {
	r := n.r.in(t)
	dir := filepath.Join(n.c.Dir, "images") // the identity service has stored it by now, and the stored value counts
	r.account(n.auth, "glance-node", "pw-glance")
	content := bytes.Repeat([]byte("an image "), 1000)
	run := func(options map[string]any) (string, map[string]any) {
		port := fakecloudtest.FreePort(t)
		p := n.c.Start("glance", "--config", n.c.Config("glance-node", n.c.Certificate("glance"), n.c.Account("glance-node", "pw-glance"), options, map[string]any{
			"port": port, "filesystem_store_datadir": dir, "sql_connection": n.c.Database("glance", "glance-pw"), "auto_sync_table": true,
		})).Listening(t, port)
		defer p.Stop()
		images := fmt.Sprintf("https://localhost:%d/v1/images", port)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, images, bytes.NewReader(content))
		require.NoError(t, err)
		request.Header.Set("X-Auth-Token", r.token)
		request.Header.Set("X-Image-Meta-Name", fmt.Sprintf("image at %d", port))
		response, err := r.http.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("upload: %v, %v", response, err)
		}
		response.Body.Close()
		var image map[string]any
		eventually(t, "the image is done", func() bool {
			list := r.want(http.StatusOK, http.MethodGet, images+"?name="+strings.ReplaceAll(fmt.Sprintf("image at %d", port), " ", "%20"), "")["images"].([]any)
			image = list[0].(map[string]any)
			return image["status"] != "saving"
		})
		return filepath.Join(dir, image["id"].(string)), image
	}
	check := func(t *testing.T, path string, image map[string]any) {
		t.Helper()
		for _, file := range []string{path, path + ".qcow2"} {
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%s has %d bytes, %v", file, len(got), err)
			}
		}
		if image["status"] != "active" || fmt.Sprint(image["probe"]) == "done" { // no host-deployer here
			t.Errorf("%v", image)
		}
	}
	t.Run("converts by itself", func(t *testing.T) {
		path, image := run(map[string]any{"enable_remote_executor": false})
		check(t, path, image)
	})
	t.Run("needs the executor if its configuration names it", func(t *testing.T) {
		_, image := run(map[string]any{"enable_remote_executor": true, "executor_socket_path": "/nowhere/exec.sock", "executor_connect_timeout_seconds": 1})
		if image["status"] != "killed" || !strings.Contains(fmt.Sprint(image["reason"]), "NewRemoteCommandAsFarAsPossible with stat") {
			t.Errorf("%v", image)
		}
	})
	t.Run("converts through the executor", func(t *testing.T) {
		path, image := run(map[string]any{"enable_remote_executor": true, "executor_socket_path": node(t)})
		check(t, path, image)
	})
}

func (n *nodes) host(t *testing.T, region string) {
	r := n.r.in(t)
	options := func(port int, socket string) map[string]any {
		return map[string]any{"port": port, "enable_remote_executor": true, "executor_socket_path": socket, "executor_connect_timeout_seconds": 1,
			"servers_path": filepath.Join(n.c.Dir, "servers"), "networks": []string{"eth0/br0/10.20.30.40"}}
	}
	port := fakecloudtest.FreePort(t)
	alone := n.c.Start("host", "--common-config-file", n.c.Config("host", n.c.Certificate("host"), n.agentConfig, options(port, "/nowhere/exec.sock")))
	if code := alone.Wait(); code != 1 || !strings.Contains(alone.Output(), "grpc dial error") {
		t.Fatalf("host without an executor: exit %d, %s", code, alone.Output())
	}
	conf := n.c.Config("host", n.c.Certificate("host"), n.agentConfig, options(port, node(t)))
	host := n.c.Start("host", "--common-config-file", conf).Listening(t, port)
	host.Says(t, "register failed: try create network: find_matched == false")
	r.want(http.StatusBadRequest, http.MethodPost, region+"/networks", `{"network":{"name":"x","server_type":"baremetal"}}`)
	r.want(http.StatusOK, http.MethodPost, region+"/networks",
		`{"network":{"name":"elsewhere","server_type":"baremetal","guest_ip_start":"10.99.0.1","guest_ip_end":"10.99.0.9"}}`)
	r.want(http.StatusOK, http.MethodPost, region+"/networks",
		`{"network":{"name":"nodes","server_type":"baremetal","guest_ip_start":"10.20.30.1","guest_ip_end":"10.20.30.254","guest_ip_mask":24}}`)
	host.Says(t, "Host registration process success....")
	const try = "/networks/try-create-network"
	r.want(http.StatusBadRequest, http.MethodPost, region+try, `{"ip":"10.20.30.40","server_type":"baremetal","is_on_premise":true}`)
	r.want(http.StatusBadRequest, http.MethodPost, region+try, `{"ip":"10.20.30.40","mask":24,"server_type":"baremetal"}`)
	if hosts := r.want(http.StatusOK, http.MethodGet, region+"/hosts", "")["hosts"].([]any); len(hosts) != 1 {
		t.Errorf("hosts: %v", hosts)
	}

	server := fmt.Sprintf("https://localhost:%d/servers/vm1", port)
	newREST(t, n.c).want(http.StatusForbidden, http.MethodPost, server+"/start", "")
	var pid int
	if _, err := fmt.Sscan(fmt.Sprint(r.want(http.StatusOK, http.MethodPost, server+"/start", "")["pid"]), &pid); err != nil || pid < 2 {
		t.Fatalf("pid %d, %v", pid, err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	if code := host.Stop(); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the server ended with its agent: %v", err)
	}
	n.c.Start("host", "--common-config-file", conf).Listening(t, port)
	if got := r.want(http.StatusOK, http.MethodGet, server+"/status", "")["status"]; got != "running" {
		t.Errorf("the next agent finds the server %v", got)
	}
	r.want(http.StatusOK, http.MethodPost, server+"/stop", "")
	eventually(t, "the server ends", func() bool { return syscall.Kill(pid, 0) != nil })
}
