// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// onMachine is what a step does that is logged in.
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

// look are the steps that log in to a machine and ask what it is.
func look(*node) []step {
	return []step{{
		Name: "connect", Short: "Log in to the machine", ReadOnly: true, Timeout: 3 * time.Minute,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			facts, err := gather(ctx, n.m.Name, c)
			if err != nil {
				return err
			}
			n.facts = &facts
			if facts.Authority != "" {
				n.joined = n.did(n.entries, n.mainStep(), "")
			}
			return nil
		}),
	}}
}

// precheck are the steps that run the checks of init or join on a machine.
func precheck(n *node) []step {
	var out []step
	if n.role == roleFirst {
		out = []step{sendBundle()}
	}
	joined := func(n *node) string {
		if n.joined {
			return "it has joined"
		}
		return ""
	}
	return append(out,
		step{
			Name: "send-ocadm", Short: "Send ocadm to the machine", ReadOnly: true, Timeout: 30 * time.Minute, Skip: joined,
			Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
				s, err := n.program()
				if err != nil {
					return err
				}
				there, err := n.has(ctx, c, bootstrap.HasScript, s.digest)
				if err != nil || there {
					return err
				}
				_, err = n.send(ctx, c, s, bootstrap.ProgramName, report)
				return err
			}),
		},
		step{
			Name: "precheck", Short: "Run the checks of init or join on the machine", ReadOnly: true, Timeout: 10 * time.Minute, Skip: joined,
			Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
				script, word, err := n.precheckScript()
				if err != nil {
					return err
				}
				list, err := machine.Precheck(ctx, n.m.Name, c, script, word)
				if err != nil {
					return err
				}
				list = slices.DeleteFunc(list, func(f finding.Finding) bool { return slices.Contains(n.later(), f.Check) })
				n.warn(list, report)
				return list.Err()
			}),
		},
	)
}

// later are checks whose answer does not count yet: without a control plane, a token and its depot, or in a dry run without the bundle. join and init
// ask again.
func (n *node) later() []string {
	switch {
	case n.role != roleFirst:
		return []string{"ControlPlane", "Depot", "Images", "Downloads"}
	case n.Spec.Bundle != "" && n.DryRun:
		return []string{"Images", "Downloads"}
	}
	return nil
}

// warn notes the warnings of a machine.
func (n *node) warn(list finding.List, report workflow.Reporter) {
	for _, f := range list.Warnings() {
		n.warnings = append(n.warnings, f)
		report.Info("warning %s: %s", f.Code, f.Error())
	}
}

// precheckScript is what runs the checks. A machine that is to join has no token yet.
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

// endpoint of the control plane before there is one.
func (f *Fleet) endpoint() string {
	e := f.Spec.setting("cluster.controlPlaneEndpoint")
	if e == "" {
		e = f.Spec.setting("cluster.highAvailabilityVIP")
	}
	if e == "" {
		e = f.first().m.Address
	}
	if _, _, err := net.SplitHostPort(e); err != nil {
		e = net.JoinHostPort(e, "6443")
	}
	return e
}

// check looks at all machines and compares them, and changes nothing. Those with errors have them.
func (f *Fleet) check(ctx context.Context) error {
	f.walk(ctx, planCheck, f.Parallel, false, f.nodes, look)
	known, err := f.authority()
	if err != nil {
		return err
	}
	facts := map[string]Facts{}
	for _, n := range f.nodes {
		if n.facts != nil {
			facts[n.m.Name] = *n.facts
		}
	}
	found := pairs(facts, f.first().m.Name, known)
	for _, n := range f.nodes {
		list := found[n.m.Name]
		n.warnings = append(n.warnings, list.Warnings()...)
		if err := list.Err(); err != nil && n.err == nil {
			n.err = err
			n.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseFailed, Phase: "compare", Message: err.Error(), Findings: list})
		}
	}
	f.holdUnlessFit()
	var peers []*node
	for _, n := range f.nodes {
		if n.err == nil && n.facts != nil && n.facts.Address != "" {
			peers = append(peers, n)
		}
	}
	f.walk(ctx, planCheck, f.Parallel, false, f.nodes, func(n *node) []step { return append(reach(peers), precheck(n)...) })
	f.holdUnlessFit()
	return nil
}

// holdUnlessFit lets nothing be begun if a control-plane node has an error.
func (f *Fleet) holdUnlessFit() {
	for _, n := range f.nodes {
		if n.role != roleWorker && n.err != nil {
			for _, other := range f.nodes {
				if other.err == nil {
					other.held = fmt.Sprintf("control-plane node %s is not fit", n.m.Name)
				}
			}
			return
		}
	}
}

// probe connects to the addresses that are its arguments, and prints those that do not answer. A refusal is an answer.
const probe = `main() {
	port=$1; shift
	for a in "$@"; do
		case $a in *:*) at="[$a]" ;; *) at=$a ;; esac
		out=$(curl -sS -o /dev/null --noproxy '*' --connect-timeout 4 --max-time 5 "http://$at:$port/" 2>&1) || case $? in
		6|28) echo "$a" ;;
		7) case $out in *efused*) ;; *) echo "$a" ;; esac ;;
		esac
	done
}
main "$@" </dev/null
`

// maxMesh is how many machines are compared with each other; of more, each is compared with the control-plane nodes.
const maxMesh = 12

// reach is the step that tries the way from a machine to the others, and so both ways.
func reach(peers []*node) []step {
	return []step{{
		Name: "reach", Short: "Try the way to the other machines", ReadOnly: true, Timeout: 3 * time.Minute,
		Skip: func(n *node) string {
			if n.joined || !n.facts.Curl {
				return map[bool]string{true: "it has joined", false: "it has no curl"}[n.joined]
			}
			return ""
		},
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			names := map[string]string{}
			for _, other := range peers {
				mesh := len(peers) <= maxMesh || other.role != roleWorker || n.role != roleWorker
				if other != n && mesh {
					names[other.facts.Address] = other.m.Name
				}
			}
			args := append([]string{fmt.Sprint(defaultPort)}, slices.Sorted(maps.Keys(names))...)
			var silent finding.List
			_, err := c.Script(ctx, probe, args, func(l string) {
				silent = append(silent, finding.Warn("OCA-7648", fmt.Sprintf("%s gets no answer from %s", n.m.Name, names[l]), "packets to "+l+" are lost",
					"check routes and firewalls between them"))
			})
			n.warn(silent, report)
			return err
		}),
	}}
}
