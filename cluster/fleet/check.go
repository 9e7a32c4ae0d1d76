// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/operatorctl/machine/pairs"
	"yunion.io/x/ocadm/phases/config"
)

// onMachine makes a step that runs with an SSH connection.
func onMachine(work func(context.Context, *node, workflow.Reporter, *ssh.Conn) error) func(context.Context, *node, workflow.Reporter) error {
	return func(ctx context.Context, n *node, report workflow.Reporter) error {
		c, err := n.dial(ctx, n.m)
		if err != nil {
			return err
		}
		defer c.Close()
		return n.forFile(work(ctx, n, report, c))
	}
}

// look logs in to all machines. Control-plane nodes get the roles that they have in their cluster: the file may list another one first than the one that
// created it.
func (f *Fleet) look(ctx context.Context) {
	f.walk(ctx, planCheck, f.Parallel, false, f.nodes, connect)
	first := f.first().facts
	if first == nil || !first.Joined || !first.Administrator {
		return
	}
	for _, n := range f.nodes {
		switch {
		case n.role == roleWorker || n.facts == nil:
		case n.facts.Joined:
			n.role = roleControlPlane
		case n.facts.Administrator && n.facts.Authority == first.Authority:
			n.role = roleFirst
		}
	}
}

func connect(*node) []step {
	return []step{{
		Name: "connect", Short: "Log in to the machine", ReadOnly: true, Timeout: 3 * time.Minute,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			facts, err := pairs.Gather(ctx, n.m.Name, c)
			if err != nil {
				return err
			}
			n.facts = &facts
			return nil
		}),
	}}
}

// joinedAlready explains why a machine needs no check, "" if it does.
func joinedAlready(n *node) string {
	if n.joined() {
		return "it has joined"
	}
	return ""
}

// send returns the steps that copy to a machine what its checks need.
func send(n *node) []step {
	var out []step
	if n.role == roleFirst {
		out = []step{sendBundle()}
	}
	return append(out, step{
		Name: "send-ocadm", Short: "Send ocadm to the machine", ReadOnly: true, Timeout: 30 * time.Minute, Skip: joinedAlready,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			s, err := n.program()
			if err != nil {
				return err
			}
			_, err = n.send(ctx, c, s, bootstrap.ProgramName, report)
			return err
		}),
	})
}

func precheck(*node) []step {
	return []step{{
		Name: "precheck", Short: "Run the checks of init or join on the machine", ReadOnly: true, Timeout: 10 * time.Minute, Skip: joinedAlready,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			script, word, err := n.precheckScript()
			if err != nil {
				return err
			}
			list, err := machine.Precheck(ctx, n.m.Name, c, script, word)
			if err != nil {
				return err
			}
			list = slices.DeleteFunc(list, func(f finding.Finding) bool { return slices.Contains(n.later(), f.Check) || f.Code == otherCluster })
			n.warn(list, report)
			return list.Err()
		}),
	}}
}

// otherCluster is the code for a node of a cluster whose authority is not the given one. The checks get no authority, and machines have been compared by theirs. A
// machine may join meanwhile, if a killed run has left an ocadm there.
const otherCluster = "OCA-4108"

// later returns the checks whose result does not count yet: those that need a control plane, a token or its depot, or in a dry run the bundle. join
// and init repeat them.
func (n *node) later() []string {
	switch {
	case n.role != roleFirst:
		return []string{"ControlPlane", "Depot", "Images", "Downloads"}
	case n.Spec.Bundle != "" && n.DryRun:
		return []string{"Images", "Downloads"}
	}
	return nil
}

func (n *node) warn(list finding.List, report workflow.Reporter) {
	for _, f := range list.Warnings() {
		n.warnings = append(n.warnings, f)
		report.Info("warning %s: %s", f.Code, f.Error())
	}
}

// precheckScript returns the script that runs the checks. A machine that will join has no token yet.
func (n *node) precheckScript() (script, word string, err error) {
	s, err := n.program()
	if err != nil {
		return "", "", err
	}
	var values map[string]any
	if n.role == roleFirst {
		word = bootstrap.DoPrecheckInit
		bundle := ""
		if n.Spec.Bundle != "" && !n.DryRun {
			bundle = bootstrap.BundlePath
		}
		values, err = n.initConfig(bundle)
	} else {
		noCA := "sha256:" + strings.Repeat("0", 64) //nolint:mnd // the digits of a digest
		word = bootstrap.DoPrecheckJoin
		key := strings.Repeat("0", 64) //nolint:mnd // the digits of a key
		values, err = bootstrap.JoinConfig(n.resource(), bootstrap.Cluster{Endpoint: n.endpoint(), CertificateKey: key}, "abcdef.0123456789abcdef", noCA)
		if err == nil {
			node, _ := values["node"].(map[string]any)
			node["depot"] = "none"
			delete(node, "offline") // it needs a depot
		}
	}
	if err != nil {
		return "", "", err
	}
	script, err = bootstrap.Sent(values, s.digest)
	return script, word, err
}

// endpoint returns the control-plane endpoint before it exists.
func (f *Fleet) endpoint() string {
	e := cmp.Or(f.Spec.setting("cluster.controlPlaneEndpoint"), f.Spec.setting("cluster.highAvailabilityVIP"), f.first().m.Address)
	if host, port, err := config.SplitEndpoint(e, config.DefaultPort); err == nil {
		e = net.JoinHostPort(host, strconv.Itoa(port))
	}
	return e
}

// check examines all machines and compares them, without changing anything. It records errors with the machines.
func (f *Fleet) check(ctx context.Context) error {
	f.look(ctx)
	found, err := f.compare()
	if err != nil {
		return err
	}
	for name, list := range found {
		f.node(name).compared(list)
	}
	f.holdUnlessFit()
	f.walk(ctx, planCheck, f.Parallel, false, f.nodes, send)
	if err := f.ways(ctx); err != nil {
		return err
	}
	f.walk(ctx, planCheck, f.Parallel, false, f.nodes, precheck)
	f.holdUnlessFit()
	return nil
}

// compare compares the machines that answered with each other, and with the cluster in the directory. It returns the findings by machine.
func (f *Fleet) compare() (map[string]finding.List, error) {
	known, err := f.authority()
	if err != nil {
		return nil, err
	}
	facts := map[string]pairs.Facts{}
	for _, n := range f.nodes {
		if n.facts != nil {
			facts[n.m.Name] = *n.facts
		}
	}
	return pairs.Compare(facts, pairs.Group{First: f.first().m.Name, Authority: known}), nil
}

func (f *Fleet) node(name string) *node {
	return f.nodes[slices.IndexFunc(f.nodes, func(n *node) bool { return n.m.Name == name })]
}

// compared records the findings of a comparison for one machine.
func (n *node) compared(list finding.List) {
	list = list.Ignore(n.Ignore)
	n.warnings = append(n.warnings, list.Warnings()...)
	kind := workflow.PhaseInfo
	if err := list.Err(); err != nil {
		kind, n.err = workflow.PhaseFailed, cmp.Or(n.err, err)
	}
	if len(list) > 0 {
		n.Event(workflow.Event{Time: time.Now(), Type: kind, Phase: "compare", Message: list.Error(), Findings: list})
	}
}

// ways tests the connections between all machines that answered, if one of them is to join.
func (f *Fleet) ways(ctx context.Context) error {
	answered := lists.Filter(f.nodes, func(n *node) bool { return n.err == nil && n.held == "" && n.facts != nil })
	members := lists.Map(answered, (*node).member)
	run := make([]byte, 8) //nolint:mnd // enough to distinguish runs
	_, _ = rand.Read(run)  // never fails
	outcome := pairs.Try(ctx, members, hex.EncodeToString(run), func(int, int) {})
	f.Ways = outcome.Said
	f.story("ways", "tested "+outcome.Said)
	for name, list := range outcome.Findings() {
		f.node(name).compared(list)
	}
	f.holdUnlessFit()
	return context.Cause(ctx)
}

// member describes a machine for the connection tests.
func (n *node) member() pairs.Member {
	port, _ := strconv.Atoi(n.Spec.setting("node.bindPort")) // 0 means the default
	return pairs.Member{
		Name: n.m.Name, Address: cmp.Or(n.facts.Address, n.m.Address), ControlPlane: n.role != roleWorker, APIPort: port, Joined: n.facts.Authority != "",
		Compute: slices.Contains(n.m.Roles, v1alpha1.RoleCompute), Firewalld: n.facts.Firewalld,
		Probe: machine.Probe(func(ctx context.Context) (*ssh.Conn, error) { return n.dial(ctx, n.m) }),
	}
}

// holdUnlessFit holds all machines if a control-plane node has an error.
func (f *Fleet) holdUnlessFit() {
	for _, n := range f.nodes {
		if n.role != roleWorker && n.err != nil {
			for _, other := range f.nodes {
				if other.err == nil {
					other.held = fmt.Sprintf("control-plane node %s did not pass its checks", n.m.Name)
				}
			}
			return
		}
	}
}
