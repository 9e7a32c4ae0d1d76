// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/test/require"
)

// startServer starts an executor in a separate process, and waits for its socket.
func startServer(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	server := exec.Command("/proc/self/exe")
	server.Env = append(os.Environ(), serverVariable+"="+socket)
	server.Stderr = os.Stderr
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill() })
	waitForSocket(t, socket)
	return server
}

// Processes that the executor started outlive it, however it ends, and its successor replaces the socket.
func TestChildrenSurviveTheServer(t *testing.T) {
	socket := tempSocket(t)
	dir := t.TempDir()
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		server := startServer(t, socket)
		e := connect(t, socket)
		// A new name each round: the file of an earlier round would be mistaken for that of a program not started yet.
		direct, daemon := filepath.Join(dir, fmt.Sprint("direct", i)), filepath.Join(dir, fmt.Sprint("daemon", i))
		// A foreground program, and one that daemonized as qemu does.
		sn := register(t, e, "sh", "-c", `echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 1000`, "sh", direct)
		start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true})
		back := register(t, e, "sh", "-c", `setsid sh -c 'echo $$ >"$1.new"; mv "$1.new" "$1"; exec sleep 1000' sh "$1" </dev/null >/dev/null 2>&1 &`, "sh", daemon)
		start(t, e, &apis.StartInput{Sn: back.GetSn()})
		if _, err := e.Wait(t.Context(), back); err != nil {
			t.Fatal(err)
		}
		pids := []int{pidIn(t, direct), pidIn(t, daemon)}
		require.NoError(t, server.Process.Signal(sig))
		err := server.Wait()
		if (sig == syscall.SIGTERM) != (err == nil) {
			t.Errorf("%v: the server ended with %v", sig, err)
		}
		for _, pid := range pids {
			if !alive(pid) {
				t.Errorf("%v: process %d ended with the server", sig, pid)
			}
		}
	}
}

// The pipes of captured output end with the server: a program that then writes to them gets SIGPIPE, one that has closed them is not affected.
func TestWritersAfterTheServer(t *testing.T) {
	socket := tempSocket(t)
	dir := t.TempDir()
	server := startServer(t, socket)
	e := connect(t, socket)
	file := func(name string) string { return filepath.Join(dir, name) }
	pids := map[string]int{}
	for name, script := range map[string]string{
		"writer": `while :; do echo x; sleep 0.05; done`,
		"asker":  `trap "" PIPE; while echo x; do sleep 0.05; done 2>/dev/null; echo refused >"$1.seen"; exec sleep 1000`,
		"daemon": `exec >/dev/null 2>&1; while [ ! -e "$2" ]; do sleep 0.05; done; echo written; echo done >"$1.seen"; exec sleep 1000`,
	} {
		c := register(t, e, "sh", "-c", `echo $$ >"$1.new"; mv "$1.new" "$1"; `+script, "sh", file(name), file("gone"))
		start(t, e, &apis.StartInput{Sn: c.GetSn(), HasStdout: true, HasStderr: true})
		pids[name] = pidIn(t, file(name))
	}
	require.NoError(t, server.Process.Kill())
	_ = server.Wait() // it was killed
	require.NoError(t, os.WriteFile(file("gone"), nil, 0o600))
	eventually(t, "the writers' end", func() bool {
		_, asked := os.Stat(file("asker.seen"))
		_, written := os.Stat(file("daemon.seen"))
		return !alive(pids["writer"]) && asked == nil && written == nil
	})
	for _, name := range []string{"asker", "daemon"} {
		if !alive(pids[name]) {
			t.Errorf("%s ended with the server", name)
		}
	}
}
