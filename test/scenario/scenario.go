// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package scenario contains the steps from fresh machines to a running cloud, as a user would do them. The quickstart performs them for users, the
// end-to-end tests for developers. It runs ocadm on lab machines and checks the result from outside. Test code.
package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/cache"
	"yunion.io/x/ocadm/test/lab/debian"
	"yunion.io/x/ocadm/test/lab/machine"
)

// Paths on a lab machine.
const (
	Ocadm  = "/usr/local/bin/ocadm"
	Bundle = "/bundle/ocadm.bundle"
)

// Scenario is a lab and the steps done on it.
type Scenario struct {
	Lab *machine.Lab
	// Story receives the output of the commands while they run.
	Story io.Writer
	// Times holds the durations of the steps, in order.
	Times []Step
}

// Step is one timed step.
type Step struct {
	Name string
	Took time.Duration
}

// machineFlags are the flags that a lab machine needs and a real host does not (test/lab/README.md): cgroup v1, no CAP_SYS_RESOURCE, a read-only
// conntrack limit, and a kernel without openvswitch.
var machineFlags = []string{"--allow-cgroup-v1", "--restrict-oom-score-adj", "--conntrack-max-per-core", "0",
	"--ignore-preflight-errors", "ComputeModules"}

// MachineFlags returns the flags that init and join need on a lab machine.
func MachineFlags() []string { return slices.Clone(machineFlags) }

// Timed runs a step and records its duration.
func (sc *Scenario) Timed(name string, step func() error) error {
	start := time.Now()
	err := step()
	sc.Times = append(sc.Times, Step{Name: name, Took: time.Since(start).Round(10 * time.Millisecond)})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// On runs a command on a machine. It copies the output to Story as it comes and returns it.
func (sc *Scenario) On(ctx context.Context, node int, argv ...string) (string, error) {
	var out, story strings.Builder
	s := machine.Streams{Out: io.MultiWriter(&out, &story), Err: io.MultiWriter(sc.Story, &story)}
	if err := sc.Lab.Node(node).Run(ctx, s, argv...); err != nil {
		return out.String(), fmt.Errorf("on node %d: %s: %w\n%s", node, strings.Join(argv, " "), err, child.LastLines(story.String(), 30))
	}
	return out.String(), nil
}

// Init runs "ocadm init" on machine 1. It also creates the cloud if args contain --onecloud-version.
func (sc *Scenario) Init(ctx context.Context, args ...string) error {
	argv := append([]string{Ocadm, "init", "--bundle", Bundle, "--node-ip", sc.Lab.Node(1).Address.String()}, machineFlags...)
	return sc.Timed("init", func() error {
		_, err := sc.On(ctx, 1, append(argv, args...)...)
		return err
	})
}

// JoinCommand asks a machine for the command that joins a worker, or, with additional arguments, another kind of node.
func (sc *Scenario) JoinCommand(ctx context.Context, from int, args ...string) ([]string, error) {
	out, err := sc.On(ctx, from, append([]string{Ocadm, "token", "create", "--print-join-command"}, args...)...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "ocadm" && f[1] == "join" {
			f[0] = Ocadm
			return f, nil
		}
	}
	return nil, fmt.Errorf("no join command in the answer of node %d", from) // which may hold the key
}

// JoinFlags returns the flags that a lab machine needs in addition to the printed command.
func (sc *Scenario) JoinFlags(node int) []string {
	return append([]string{"--node-ip", sc.Lab.Node(node).Address.String()}, machineFlags...)
}

// Join joins a machine with the command that machine 1 printed. All files come from the depot of machine 1.
func (sc *Scenario) Join(ctx context.Context, node int, args ...string) error {
	return sc.join(ctx, 1, node, nil, args)
}

func (sc *Scenario) join(ctx context.Context, from, node int, kind, args []string) error {
	return sc.Timed(fmt.Sprintf("join node %d", node), func() error {
		argv, err := sc.JoinCommand(ctx, from, kind...)
		if err == nil {
			_, err = sc.On(ctx, node, slices.Concat(argv, sc.JoinFlags(node), args)...)
		}
		return err
	})
}

// Kubectl runs kubectl on machine 1 with admin permissions.
func (sc *Scenario) Kubectl(ctx context.Context, args ...string) (string, error) {
	return sc.On(ctx, 1, append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)...)
}

// ClusterStatus is the output of "ocadm cluster status -o json".
type ClusterStatus struct {
	Name       string `json:"name"`
	Ready      bool   `json:"ready"`
	Version    string `json:"version"`
	Components []struct {
		Name, State, Version, Message, Reason string
		BlockedBy                             []string
	} `json:"components"`
}

// Status returns the status of the cloud.
func (sc *Scenario) Status(ctx context.Context) (ClusterStatus, error) {
	var s ClusterStatus
	out, err := sc.On(ctx, 1, Ocadm, "cluster", "status", "-o", "json")
	// The exit status shows whether the cloud is healthy. The status is printed in either case.
	if json.Unmarshal([]byte(out), &s) != nil {
		return s, cmp.Or(err, errors.New("the output of cluster status is not JSON"))
	}
	return s, nil
}

// Unavailable returns the enabled components that are not Available.
func (s ClusterStatus) Unavailable() []string {
	var out []string
	for _, c := range s.Components {
		if !slices.Contains([]string{"Available", "Disabled", "Idle"}, c.State) { // Idle: no node of the lab has its role
			out = append(out, fmt.Sprintf("%s (%s: %s)", c.Name, c.State, c.Message))
		}
	}
	return out
}

// errEmpty means that the status has no components yet: the operator has not reconciled the cloud.
var errEmpty = errors.New("the cloud has no components in its status")

// AllAvailable checks that every enabled component is Available.
func (sc *Scenario) AllAvailable(ctx context.Context) error {
	s, err := sc.Status(ctx)
	if err != nil {
		return err
	}
	if len(s.Components) == 0 {
		return errEmpty
	}
	if u := s.Unavailable(); len(u) > 0 {
		return fmt.Errorf("not Available: %s", strings.Join(u, "; "))
	}
	return nil
}

// Report prints the times.
func (sc *Scenario) Report(w io.Writer) {
	for _, s := range sc.Times {
		fmt.Fprintf(w, "  %-28s %8.1f s\n", s.Name, s.Took.Seconds())
	}
}

// Root returns an error if the lab cannot work here.
func Root() error {
	if os.Geteuid() != 0 {
		return errors.New("the lab creates machines (network namespaces, mounts, containers): run it as root")
	}
	return nil
}

// Build builds bin/ocadm and the bundle in a checkout and returns their absolute paths. Both are quick if nothing changed. images is a directory of
// image archives that replace the stand-ins, or empty.
func Build(ctx context.Context, checkout, version, images string, logf cache.Logf) (ocadm, bundle string, err error) {
	return BuildFor(ctx, checkout, assemble.Options{CloudVersion: version, ServiceImages: images, Logf: logf})
}

// BuildFor is Build for another kind of bundle, which has its own file. One process of a checkout builds at a time: make e2e runs two.
func BuildFor(ctx context.Context, checkout string, o assemble.Options) (ocadm, bundle string, err error) {
	if err := Root(); err != nil {
		return "", "", err
	}
	dir, err := filepath.Abs(checkout)
	if err != nil {
		return "", "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "dist"), 0o755); err != nil {
		return "", "", err
	}
	lock, err := cache.Lock(ctx, filepath.Join(dir, "dist", ".building"), func() { o.Logf("waiting for another test to build") })
	if err != nil {
		return "", "", err
	}
	defer func() { _ = lock.Close() }()
	if err := debian.Prepare(ctx, o.Logf); err != nil {
		return "", "", err
	}
	o.Logf("building bin/ocadm")
	c := exec.CommandContext(ctx, "make", "--no-print-directory", "-C", dir, "bin/ocadm")
	if out, err := c.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building bin/ocadm: %w\n%s", err, out)
	}
	name := "ocadm"
	for _, other := range append([]string{o.KubernetesVersion}, o.More...) {
		name = strings.TrimSuffix(name+"-"+other, "-")
	}
	ocadm, bundle = filepath.Join(dir, "bin/ocadm"), filepath.Join(dir, "dist", name+".bundle")
	o.Logf("building the bundle (the first time this builds Kubernetes; later runs take it from the cache)")
	return ocadm, bundle, assemble.Bundle(ctx, bundle, o)
}
