// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

// Node is one machine of a lab.
type Node struct {
	Name    string
	Address netip.Addr

	lab   *Lab
	index int
}

const (
	bootTimeout  = 2 * time.Minute
	bootInterval = 250 * time.Millisecond
	// hangUp is how long a command may take to end after its context did.
	hangUp = 5 * time.Second
)

// Streams are what a command on a machine reads and writes. A terminal is passed on as one.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool
}

// runcPath finds runc also for a user whose PATH lacks the administrator's directories.
func runcPath() string {
	if path, err := exec.LookPath("runc"); err == nil {
		return path
	}
	return "/usr/sbin/runc"
}

// runc is a call of the container runtime for this lab.
func (l *Lab) runc(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, runcPath(), append([]string{"--root", l.RunDir}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = hangUp
	return cmd
}

// runQuiet runs runc and makes an error of what it printed.
func (l *Lab) runQuiet(ctx context.Context, args ...string) error {
	out, err := l.runc(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running runc %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// runContainer starts machine i. What its first process prints goes to console.log, as runc's own complaints do.
func (l *Lab) runContainer(ctx context.Context, i int) error {
	path := filepath.Join(l.nodeDir(i), "console.log")
	console, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the console's log: %w", err)
	}
	defer func() { _ = console.Close() }()
	cmd := l.runc(ctx, "run", "--detach", "--bundle", l.nodeDir(i), l.container(i))
	cmd.Stdout, cmd.Stderr = console, console
	if l.lock != nil {
		cmd.ExtraFiles = []*os.File{l.lock} // runc does not hand it on to the machine
	}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(path)
		return fmt.Errorf("starting the container: %w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

func (l *Lab) running(i int) bool {
	// A machine that cannot be asked does not run.
	out, err := exec.Command(runcPath(), "--root", l.RunDir, "state", l.container(i)).Output()
	return err == nil && bytes.Contains(out, []byte(`"status": "running"`))
}

// Exec runs a command on the machine and returns what it printed.
func (n *Node) Exec(ctx context.Context, argv ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	err = n.Run(ctx, Streams{Out: &out, Err: &errOut}, argv...)
	return out.String(), errOut.String(), err
}

// Run runs a command on the machine with these streams. An *exec.ExitError in the error's chain has its exit status.
func (n *Node) Run(ctx context.Context, s Streams, argv ...string) error {
	args := []string{"exec", "--env", "HOME=/root"}
	if s.Terminal {
		args = append(args, "--tty", "--env", "TERM="+os.Getenv("TERM"))
	}
	cmd := n.lab.runc(ctx, append(append(args, n.lab.container(n.index)), argv...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	if err := cmd.Run(); err != nil {
		var tail string
		if b, ok := s.Err.(*bytes.Buffer); ok {
			tail = ": " + strings.TrimSpace(b.String())
		}
		return fmt.Errorf("running %q on %s: %w%s", argv[0], n.Name, err, tail)
	}
	return nil
}

// shareMounts does what systemd does when it boots a real machine and leaves out in a container: it makes all mounts shared, which
// host agents need (mountPropagation: Bidirectional).
func (n *Node) shareMounts(ctx context.Context) error {
	_, _, err := n.Exec(ctx, "mount", "--make-rshared", "/")
	return err
}

// waitBooted waits until systemd has started everything, and returns which units failed.
func (n *Node) waitBooted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	start := time.Now()
	last := "not up yet"
	for {
		out, _, _ := n.Exec(ctx, "systemctl", "is-system-running") // it exits non-zero in every state but "running"
		switch state := strings.TrimSpace(out); state {
		case "running":
			n.lab.logf("%s (%s) has booted in %.1f s", n.Name, n.Address, time.Since(start).Seconds())
			return n.shareMounts(ctx)
		case "degraded":
			failed, _, err := n.Exec(ctx, "systemctl", "--failed", "--no-legend", "--plain")
			n.lab.logf("%s (%s) has booted, but these units failed:\n%s", n.Name, n.Address, strings.TrimSpace(failed))
			return errors.Join(err, n.shareMounts(ctx))
		case "":
		default:
			last = state
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to boot (systemd is %s; see %s): %w", n.Name, last,
				filepath.Join(n.lab.nodeDir(n.index), "console.log"), context.Cause(ctx))
		case <-time.After(bootInterval):
		}
	}
}

// CutNetwork pulls the machine's cable.
func (n *Node) CutNetwork() error { return cable(n.lab.Layout, n.index, netlink.LinkSetDown) }

// RestoreNetwork plugs it in again.
func (n *Node) RestoreNetwork() error { return cable(n.lab.Layout, n.index, netlink.LinkSetUp) }

// PathMTU makes the network between this machine and the others drop packets of more bytes. The interface in the machine keeps its own MTU.
func (n *Node) PathMTU(mtu int) error {
	return cable(n.lab.Layout, n.index, func(link netlink.Link) error { return netlink.LinkSetMTU(link, mtu) })
}

// Kill ends the machine as a power failure does. Its disk stays.
func (n *Node) Kill(ctx context.Context) error {
	if err := n.lab.runQuiet(ctx, "kill", n.lab.container(n.index), "KILL"); err != nil {
		return err
	}
	if err := emptyCgroups(ctx, n.lab.cgroup()+"/"+n.Name); err != nil {
		return err
	}
	return n.lab.runQuiet(ctx, "delete", "--force", n.lab.container(n.index))
}

// PowerOn starts a machine that was killed, with the disk it had. It does not wait for its boot.
func (n *Node) PowerOn(ctx context.Context) error {
	if n.lab.running(n.index) {
		return nil
	}
	if err := n.lab.start(ctx, n.index); err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	return nil
}

// Start boots a machine that was killed, with the disk it had.
func (n *Node) Start(ctx context.Context) error {
	if n.lab.running(n.index) {
		return nil
	}
	if err := n.PowerOn(ctx); err != nil {
		return err
	}
	return n.waitBooted(ctx)
}
