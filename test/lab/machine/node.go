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

	"yunion.io/x/ocadm/internal/wait"
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
	// hangUp is how long a command may run after its context has ended.
	hangUp = 5 * time.Second
)

// Streams are the standard streams of a command on a machine. A terminal is passed through.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool
}

// runcPath finds runc even if the user's PATH lacks the sbin directories.
func runcPath() string {
	if path, err := exec.LookPath("runc"); err == nil {
		return path
	}
	return "/usr/sbin/runc"
}

func (l *Lab) runc(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, runcPath(), append([]string{"--root", l.RunDir}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = hangUp
	return cmd
}

// runQuiet runs runc. An error includes runc's output.
func (l *Lab) runQuiet(ctx context.Context, args ...string) error {
	out, err := l.runc(ctx, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running runc %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// runContainer starts machine i. The output of its first process goes to console.log, as do runc's own errors.
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
		cmd.ExtraFiles = []*os.File{l.lock} // runc does not pass it to the machine
	}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(path)
		return fmt.Errorf("starting the container: %w: %s", err, bytes.TrimSpace(said))
	}
	return nil
}

func (l *Lab) running(i int) bool {
	// A machine whose state cannot be read does not run.
	out, err := exec.Command(runcPath(), "--root", l.RunDir, "state", l.container(i)).Output()
	return err == nil && bytes.Contains(out, []byte(`"status": "running"`))
}

// Exec runs a command on the machine and returns its output.
func (n *Node) Exec(ctx context.Context, argv ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	err = n.Run(ctx, Streams{Out: &out, Err: &errOut}, argv...)
	return out.String(), errOut.String(), err
}

// Run runs a command on the machine with these streams. If the command fails, the error wraps an *exec.ExitError with its exit status.
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

// shareMounts makes all mounts shared, as host agents require (mountPropagation: Bidirectional). systemd does this when it boots a real machine, but not in a container.
func (n *Node) shareMounts(ctx context.Context) error {
	_, _, err := n.Exec(ctx, "mount", "--make-rshared", "/")
	return err
}

// waitBooted waits until systemd has started everything. It logs failed units.
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
		if err := wait.Sleep(ctx, bootInterval); err != nil {
			return fmt.Errorf("waiting for %s to boot (systemd is %s; see %s): %w", n.Name, last, filepath.Join(n.lab.nodeDir(n.index), "console.log"), err)
		}
	}
}

// CutNetwork unplugs the machine's cable.
func (n *Node) CutNetwork() error { return cable(n.lab.Layout, n.index, netlink.LinkSetDown) }

// RestoreNetwork plugs the cable in again.
func (n *Node) RestoreNetwork() error { return cable(n.lab.Layout, n.index, netlink.LinkSetUp) }

// PathMTU makes the network between this machine and the others drop packets larger than mtu bytes. The machine's interface keeps its own MTU.
func (n *Node) PathMTU(mtu int) error {
	return cable(n.lab.Layout, n.index, func(link netlink.Link) error { return netlink.LinkSetMTU(link, mtu) })
}

// Kill stops the machine as a power failure does. Its disk stays.
func (n *Node) Kill(ctx context.Context) error {
	if err := n.lab.runQuiet(ctx, "kill", n.lab.container(n.index), "KILL"); err != nil {
		return err
	}
	if err := emptyCgroups(ctx, n.lab.cgroup()+"/"+n.Name); err != nil {
		return err
	}
	return n.lab.runQuiet(ctx, "delete", "--force", n.lab.container(n.index))
}

// PowerOn starts a killed machine with its old disk. It does not wait for the boot.
func (n *Node) PowerOn(ctx context.Context) error {
	if n.lab.running(n.index) {
		return nil
	}
	if err := n.lab.start(ctx, n.index); err != nil {
		return fmt.Errorf("starting %s: %w", n.Name, err)
	}
	return nil
}

// Start boots a killed machine with its old disk.
func (n *Node) Start(ctx context.Context) error {
	if n.lab.running(n.index) {
		return nil
	}
	if err := n.PowerOn(ctx); err != nil {
		return err
	}
	return n.waitBooted(ctx)
}
