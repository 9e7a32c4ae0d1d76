// SPDX-License-Identifier: Apache-2.0

// Package executor runs commands on a node for services that run in containers: host agents, glance and others. It is a gRPC server on a Unix socket.
// Its protocol is that of yunion.io/x/executor, whose client those services link in (package apis). There is no authentication: anyone who can open
// the socket is root on the node.
//
// Processes that a command leaves behind outlive the server: it never signals a process when it stops, and each process has its own session. So a
// virtual machine survives every restart of the executor, provided that systemd spares it too (KillMode=process). The pipes end with the server: from
// then on, a process gets SIGPIPE if it writes to standard output or standard error that a client requested. An emulator that daemonized has closed
// them.
package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/internal/finding"
)

const (
	// DefaultSocket is where the cloud's services expect the socket (their option executor_socket_path).
	DefaultSocket = "/var/run/onecloud/exec.sock"
	// DefaultMaxCommands bounds the registered commands. A busy host agent has a few dozen.
	DefaultMaxCommands = 4096
	// DefaultAbandonAfter is long enough for anything about to end by itself after a restart of its client.
	DefaultAbandonAfter = 5 * time.Minute
	// DefaultStopTimeout is how long running commands may take to end, and their clients to receive the result, when the server stops.
	DefaultStopTimeout = 10 * time.Second
)

// CodeSocket is the finding code of a socket that cannot be served.
const CodeSocket = "OCA-7101"

const (
	socketMode = 0o600
	dirMode    = 0o755
	// dialTimeout bounds the check for another listening server.
	dialTimeout = time.Second
)

// Options configure a server. Zero values mean the defaults.
type Options struct {
	// Socket is the path of the unix socket.
	Socket string
	// MaxCommands bounds the registered commands, running or not.
	MaxCommands int
	// AbandonAfter is how long a command without a client is kept. A running program has a client while a connection that has used its number is
	// open; any other command has one only during a call.
	AbandonAfter time.Duration
	// StopTimeout bounds the wait for running commands when the server stops. Those that remain keep running.
	StopTimeout time.Duration
	Log         *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Socket = cmp.Or(o.Socket, DefaultSocket)
	o.MaxCommands = cmp.Or(max(o.MaxCommands, 0), DefaultMaxCommands)
	o.AbandonAfter = cmp.Or(max(o.AbandonAfter, 0), DefaultAbandonAfter)
	o.StopTimeout = cmp.Or(max(o.StopTimeout, 0), DefaultStopTimeout)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// Run serves until ctx ends. Then it accepts no new connections and gives running commands StopTimeout to end. It leaves the rest alone, but they get
// SIGPIPE if they write to output that a client requested.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	l, err := listen(ctx, o.Socket)
	if err != nil {
		return err
	}
	s := newServer(o)
	g := grpc.NewServer(grpc.StatsHandler(&connections{server: s}))
	apis.RegisterExecutorServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	o.Log.Info("serving", "socket", o.Socket)
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", o.Socket, err)
	case <-ctx.Done():
	}
	// Close only the listener: connected clients can still read output and wait.
	l.Close()
	o.Log.Debug("no new connections", "reason", <-served)
	t := time.NewTimer(o.StopTimeout)
	defer t.Stop()
	select {
	case <-s.idle():
		// Let the last answers go out.
		late := time.AfterFunc(o.StopTimeout, g.Stop)
		defer late.Stop()
		g.GracefulStop()
	case <-t.C:
		o.Log.Info("stopping while commands are registered; their programs continue until they write output", "commands", s.count())
		g.Stop()
	}
	return nil
}

// listen creates the directory, removes the socket of a dead server, and refuses to replace a live one.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), dirMode); err != nil {
		return nil, unusable(socket, err)
	}
	if err := removeDead(ctx, socket); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, unusable(socket, err)
	}
	if err := os.Chmod(socket, socketMode); err != nil {
		_ = l.Close()
		return nil, unusable(socket, err)
	}
	return l, nil
}

func removeDead(ctx context.Context, socket string) error {
	info, err := os.Lstat(socket)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return unusable(socket, err)
	case info.Mode().Type() != os.ModeSocket:
		return finding.New(CodeSocket, socket+" is not a socket", "a file of another kind has this name", "look at it, then remove it: ls -ld "+socket)
	}
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		c.Close()
		return finding.New(CodeSocket, "Another server listens on "+socket, "an executor is already running",
			"ss -xlp src "+socket+" shows the process; stop it, for example: systemctl stop yunion-executor")
	case !errors.Is(err, syscall.ECONNREFUSED):
		return unusable(socket, err)
	}
	if err := os.Remove(socket); err != nil {
		return unusable(socket, err)
	}
	return nil
}

func unusable(socket string, err error) error {
	return finding.Errorf(CodeSocket, "Cannot serve socket "+socket, "run as root, or name another socket with --socket-path", "%w", err)
}
