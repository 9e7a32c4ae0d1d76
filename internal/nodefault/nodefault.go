// SPDX-License-Identifier: Apache-2.0

// Package nodefault breaks something on the control-plane node where it runs, for a limited time. The fault is a transient systemd unit of the node,
// which undoes it when the time is over, even if this process and the container runtime are gone. It changes nothing on disk, so that a reboot also
// undoes it.
package nodefault

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// Kind is a kind of fault.
type Kind string

const (
	// KillKeepalived ends keepalived as a crash would. The kubelet restarts it.
	KillKeepalived Kind = "kill-keepalived"
	// PauseAPIServer and PauseEtcd stop a process without ending it: its clients get neither answers nor errors.
	PauseAPIServer Kind = "pause-api-server"
	PauseEtcd      Kind = "pause-etcd"
	// CutNode blocks everything that the machine sends: to the others it is lost.
	CutNode Kind = "cut-node"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{KillKeepalived, PauseAPIServer, PauseEtcd, CutNode} }

const (
	// Unit is the transient unit. Its name is fixed, so that a node has one fault at a time.
	Unit = "ocadm-ha-test.service"
	// Host is the machine's root directory, for a container that sees its processes.
	Host = "/proc/1/root"
	// grace is how much longer than the fault the unit may live.
	grace = 10 * time.Second
	// stopTimeout bounds the undoing of a fault.
	stopTimeout = 20 * time.Second

	arpIgnore = "/proc/sys/net/ipv4/conf/all/arp_ignore"
	// silent is the sysctl value with which the kernel does not answer ARP requests for its addresses. Source:
	// Documentation/networking/ip-sysctl.rst.
	silent = "8"
)

// scripts are the shell scripts that cause a fault and undo it. Undoing it may be repeated.
type scripts struct{ fault, restore string }

// Fault is a fault on this machine.
type Fault struct {
	Kind Kind
	For  time.Duration
	// Root is the machine's root directory. Its proc directory shows the machine's processes.
	Root string
	Exec exec.Runner
}

// Enter makes the machine's root directory that of this process.
func Enter() error {
	if err := syscall.Chroot(Host); err != nil {
		return fmt.Errorf("entering the root of the machine: %w", err)
	}
	return os.Chdir("/")
}

// Run causes the fault, and undoes it when its time is over or ctx ends.
func (f Fault) Run(ctx context.Context) error {
	s, err := f.scripts()
	if err != nil {
		return err
	}
	if err := f.stop(ctx); err != nil {
		return err
	}
	if _, err := f.Exec.Run(ctx, exec.Command{Path: "systemd-run", Args: arguments(s, f.For)}); err != nil {
		return fmt.Errorf("starting the fault: %w", errors.Join(err, f.stop(ctx)))
	}
	_ = wait.Sleep(ctx, f.For)
	return f.stop(ctx)
}

// stop undoes a fault, including that of a command that was killed.
func (f Fault) stop(ctx context.Context) error {
	const notLoaded = 5 // systemctl(1): there is no such unit
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	res, err := f.Exec.Run(ctx, exec.Command{Path: "systemctl", Args: []string{"stop", Unit}})
	if err != nil && res.ExitCode != notLoaded {
		return fmt.Errorf("ending the fault: %w", err)
	}
	return nil
}

// arguments returns the arguments of systemd-run. The restore script runs however the unit ends: systemd.service(5), ExecStopPost.
func arguments(s scripts, length time.Duration) []string {
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }
	return []string{
		"--unit=" + Unit, "--collect", "--description=A fault of ocadm ha test, which ends automatically",
		"--property=RuntimeMaxSec=" + seconds(length+grace), "--property=ExecStopPost=/bin/sh -c '" + s.restore + "'",
		"/bin/sh", "-c", s.fault + "; exec sleep " + seconds(length),
	}
}

// scripts returns the scripts for the machine's current state. They contain no quotes, percent or dollar signs, which systemd would interpret.
func (f Fault) scripts() (scripts, error) {
	switch f.Kind {
	case CutNode:
		raw, err := os.ReadFile(filepath.Join(f.Root, arpIgnore))
		if err != nil {
			return scripts{}, fmt.Errorf("reading the answers of the machine: %w", err)
		}
		return cut(strings.TrimSpace(string(raw))), nil
	case KillKeepalived:
		return f.signal("ocadm-vip", "keepalived", "KILL", "")
	case PauseAPIServer:
		return f.signal("kube-apiserver", "kube-apiserver", "STOP", "CONT")
	case PauseEtcd:
		return f.signal("etcd", "etcd", "STOP", "CONT")
	}
	return scripts{}, fmt.Errorf("unknown fault %q", f.Kind)
}

// cut silences the machine. A routing rule after the one for the machine's own addresses drops what it sends, including replies; connections within
// the machine and bridged virtual machines are not affected. The kernel answers ARP without routing, so that is disabled separately: otherwise the
// machine would still claim the virtual address.
func cut(arpBefore string) scripts {
	const rule = "from all blackhole pref 1"
	return scripts{
		fault:   "sysctl -qw net.ipv4.conf.all.arp_ignore=" + silent + "; ip rule add " + rule + "; ip -6 rule add " + rule + " || true",
		restore: "ip rule del " + rule + "; ip -6 rule del " + rule + "; sysctl -qw net.ipv4.conf.all.arp_ignore=" + arpBefore,
	}
}

// signal returns scripts that send signals to the processes of a static pod's container.
func (f Fault) signal(pod, container, fault, restore string) (scripts, error) {
	argv, err := commandOf(filepath.Join(f.Root, "/etc/kubernetes/manifests", pod+".yaml"), container)
	if err != nil {
		return scripts{}, err
	}
	list, err := processes(filepath.Join(f.Root, "/proc"), argv)
	if err != nil {
		return scripts{}, err
	}
	if len(list) == 0 {
		return scripts{}, fmt.Errorf("finding the processes of %s: none runs with the command of its manifest", container)
	}
	pids := strings.Join(list, " ")
	s := scripts{fault: "kill -" + fault + " " + pids, restore: "true"}
	if restore != "" {
		s.restore = "kill -" + restore + " " + pids
	}
	return s, nil
}

// commandOf returns the command of a static pod's container.
func commandOf(manifest, container string) ([]string, error) {
	raw, err := os.ReadFile(manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("finding %s: this node does not have %s", container, manifest)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", container, err)
	}
	var p corev1.Pod
	if err := yaml.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", container, err)
	}
	for _, c := range p.Spec.Containers {
		if c.Name == container && len(c.Command) > 0 {
			return slices.Concat(c.Command, c.Args), nil
		}
	}
	return nil, fmt.Errorf("reading the manifest of %s: it has no such container with a command", container)
}

// processes returns the IDs of the processes that run a command. A name would not do: a cloud has an etcd, too.
func processes(proc string, argv []string) ([]string, error) {
	files, err := filepath.Glob(proc + "/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	want := strings.Join(argv, "\x00") + "\x00"
	return lists.Pick(files, func(name string) (string, bool) {
		raw, err := os.ReadFile(name) // this fails for a process that has just ended
		return filepath.Base(filepath.Dir(name)), err == nil && string(raw) == want
	}), nil
}
