// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/test/fakecloud/rest"
)

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
