// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/probe"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/pairs"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// loginsAtOnce is the maximum number of concurrent logins to gather facts.
const loginsAtOnce = 10

// jobOfAll returns the Job of a comparison: with no Secrets but the machines' logins, in the network of a control-plane node, which takes part.
func (w work) jobOfAll(ctx context.Context, op *v1alpha1.OnecloudOperation) (operation.Job, error) {
	j := operation.Job{Account: AccountOfWork, Network: true}
	for _, name := range compared(op) {
		m := &v1alpha1.OnecloudMachine{}
		if _, err := kube.Find(ctx, w.Direct, client.ObjectKey{Namespace: op.Namespace, Name: name}, m, "machine "+name); err != nil {
			return j, err
		}
		if err := w.addLogins(ctx, &j, m); len(finding.Of(err)) > 0 {
			continue // its Secret is not for logins, so it cannot be queried; the comparison reports that
		} else if err != nil {
			return j, err
		}
	}
	return j, nil
}

func compared(op *v1alpha1.OnecloudOperation) []string {
	return append([]string{op.Spec.Machine.Name}, op.Spec.Machine.Others...)
}

// compare gathers facts from machines, compares them, and tests the paths between them. It changes nothing on them.
func (w work) compare() operation.Step {
	return operation.Step{
		Name: "compare", Short: "Compare the machines and test the connections between them", ReadOnly: true, Timeout: 25 * time.Minute,
		Run: func(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
			machines, facts, list, err := w.gather(ctx, r, report)
			if err != nil {
				return err
			}
			found := pairs.Compare(facts, pairs.Group{})
			var members []pairs.Member
			for _, m := range machines {
				list = append(list, found[m.Name]...)
				members = append(members, w.member(m, facts[m.Name]))
			}
			if own, there := self(members); there {
				members = append(members, own)
			}
			outcome := pairs.Try(ctx, members, r.Operation.Name, func(done, total int) { report.Progress(int64(done), int64(total), "") })
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			report.Info("tested %s", outcome.Said)
			ways := outcome.Findings()
			for _, m := range members {
				list = append(list, ways[m.Name]...)
			}
			list = slices.CompactFunc(list, func(a, b finding.Finding) bool { return a.What == b.What })
			r.Note(func(s *v1alpha1.OnecloudOperationStatus) {
				s.Findings, s.Machine = operation.Findings(list), &v1alpha1.OperationMachine{Ways: outcome.Said}
			})
			return list.Err()
		},
	}
}

// gather reads the facts of an operation's machines concurrently. Failures are warnings.
func (w work) gather(ctx context.Context, r *operation.Run, report workflow.Reporter) (
	machines []*v1alpha1.OnecloudMachine, facts map[string]pairs.Facts, list finding.List, err error,
) {
	names := compared(r.Operation)
	facts = map[string]pairs.Facts{}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(loginsAtOnce)
	for _, name := range names {
		g.Go(func() error {
			m := &v1alpha1.OnecloudMachine{}
			if err := w.Direct.Get(ctx, client.ObjectKey{Namespace: r.Operation.Namespace, Name: name}, m); err != nil {
				return fmt.Errorf("reading machine %s: %w", name, err)
			}
			f, err := w.factsOf(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				list = append(list, finding.Warn("OCA-7650", "Machine "+name+" was not compared with the others", err.Error(), "ocadm machine precheck "+name))
			} else {
				machines = append(machines, m)
				facts[name] = f
			}
			report.Progress(int64(len(facts)+len(list)), int64(len(names)), "")
			return nil
		})
	}
	err = g.Wait()
	slices.SortFunc(machines, func(a, b *v1alpha1.OnecloudMachine) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(list, func(a, b finding.Finding) int { return cmp.Compare(a.What, b.What) })
	return machines, facts, list, err
}

func (w work) factsOf(ctx context.Context, m *v1alpha1.OnecloudMachine) (pairs.Facts, error) {
	if m.CallsIn() {
		return pairs.Facts{}, fmt.Errorf("the operator does not log in to it, because the machine calls in")
	}
	c, err := w.dial(ctx, m, v1alpha1.OperationMachine{})
	if err != nil {
		return pairs.Facts{}, err
	}
	defer c.Close()
	return pairs.Gather(ctx, m.Name, c)
}

// member converts a machine for the test of the paths between machines.
func (w work) member(m *v1alpha1.OnecloudMachine, f pairs.Facts) pairs.Member {
	return pairs.Member{
		Name: m.Name, Address: cmp.Or(f.Address, m.Spec.Infrastructure.SSH.Address), ControlPlane: m.ControlPlane(), Joined: f.Authority != "", Firewalld: f.Firewalld,
		Compute: slices.Contains(m.Spec.Roles, v1alpha1.RoleCompute),
		Probe:   Probe(func(ctx context.Context) (*ssh.Conn, error) { return w.dial(ctx, m, v1alpha1.OperationMachine{}) }),
	}
}

// self returns the control-plane node on which this process runs in the node's network, unless it is one of the others.
func self(others []pairs.Member) (pairs.Member, bool) {
	m := pairs.Member{Name: os.Getenv(operation.EnvNode), Address: os.Getenv(operation.EnvAddress), ControlPlane: true, Joined: true}
	m.Probe = func(ctx context.Context, in io.Reader, onLine func(string)) error {
		return probe.Run(ctx, in, &exec.LineWriter{Emit: onLine})
	}
	twin := slices.ContainsFunc(others, func(o pairs.Member) bool { return o.Address == m.Address || o.Name == m.Name })
	return m, m.Name != "" && m.Address != "" && !twin
}
