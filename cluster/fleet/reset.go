// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// Reset removes ocadm and everything it installed from every machine: workers first, the first node last. It continues after failures.
func Reset(ctx context.Context, o Options) (Result, error) {
	start := time.Now()
	unlock, err := workflow.Lock(filepath.Join(o.Dir, "lock"))
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	f, err := newFleet(o)
	if err != nil {
		return Result{}, err
	}
	defer f.close()
	f.look(ctx)
	found, err := f.compare()
	if err != nil {
		return Result{}, err
	}
	for name, list := range found {
		f.node(name).err = slices.DeleteFunc(list, func(one finding.Finding) bool { return one.Code != "OCA-7643" }).Err() // another cluster is not ours to remove
	}
	others := slices.Concat(f.of(roleFirst), f.of(roleControlPlane))
	slices.Reverse(others)
	f.walk(ctx, planRemove, f.Parallel, false, f.of(roleWorker), func(*node) []step { return resetSteps() })
	var abandon []string // if one is unreachable, etcd would lose its majority as the others leave one by one
	if slices.ContainsFunc(others, func(n *node) bool { return n.facts == nil }) {
		abandon = []string{"--abandon-etcd"}
	}
	f.walk(ctx, planRemove, 1, false, others, func(*node) []step { return resetSteps(abandon...) })
	// While any machine has certificates of the cluster, the next run must know which cluster they belong to.
	if !slices.ContainsFunc(f.nodes, func(n *node) bool { return n.err != nil || n.held != "" }) {
		if err := disk.Remove(f.kubeconfig()); err != nil {
			return Result{}, err
		}
	}
	res := f.result()
	res.Removed, res.Seconds = nil, time.Since(start).Seconds()
	err = f.failure(ctx)
	if found := finding.Of(err); len(found) == 1 && found[0].Code == "OCA-7641" {
		found[0].What = "Not every machine was reset"
		return res, found[0]
	}
	return res, err
}

func resetSteps(args ...string) []step {
	return []step{{
		Name: "reset", Short: "Remove what ocadm installed on the machine", Timeout: 30 * time.Minute,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			if n.facts.Authority == "" && !n.facts.Ours { // at most, something was sent to it
				_, err := c.Script(ctx, bootstrap.TidyScript, nil, nil)
				return err
			}
			if err := n.once(ctx, report, func(r workflow.Reporter) error { return machine.Reset(ctx, n.m.Name, c, r, args...) }); err != nil {
				return err
			}
			report.Changed("reset %s", n.m.Name)
			return nil
		}),
	}}
}
