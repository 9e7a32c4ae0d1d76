// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// State is the state of a machine after a run.
type State string

const (
	Unchanged State = "unchanged"
	Changed   State = "changed"
	Planned   State = "planned"
	Waiting   State = "waiting" // nothing was done on it
	Failed    State = "failed"
)

// MachineResult is the result for one machine.
type MachineResult struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Address string `json:"address"`
	State   State  `json:"state"`
	// Reason for waiting, or an error without a finding.
	Reason   string       `json:"reason,omitempty"`
	Changes  []string     `json:"changes,omitempty"`
	Findings finding.List `json:"findings,omitempty"`
	Seconds  float64      `json:"seconds"`
	Log      string       `json:"log,omitempty"`
}

// Result is the result of a run.
type Result struct {
	Machines []MachineResult `json:"machines"`
	// Removed lists machines that joined in earlier runs but are no longer in the file. They are not touched.
	Removed []string `json:"removed,omitempty"`
	// Ways describes which connections between machines were tested.
	Ways       string  `json:"ways,omitempty"`
	Kubeconfig string  `json:"kubeconfig,omitempty"`
	Seconds    float64 `json:"seconds"`
}

// Apply creates the cluster in the file, or what is missing of it. It returns the result even with an error, which covers the failed machines.
func Apply(ctx context.Context, o Options) (Result, error) {
	start := time.Now()
	if _, err := os.Stat(o.Dir); err == nil || !o.DryRun { // a dry run creates no directory, but it would remove what another run has sent
		unlock, err := workflow.Lock(filepath.Join(o.Dir, "lock"))
		if err != nil {
			return Result{}, err
		}
		defer unlock()
	}
	f, err := newFleet(o)
	if err != nil {
		return Result{}, err
	}
	defer f.close()
	if err := f.check(ctx); err != nil {
		return Result{}, err
	}
	f.bring(ctx)
	if o.DryRun {
		f.tidy(ctx)
	}
	res := f.result()
	res.Seconds = time.Since(start).Seconds()
	return res, f.failure(ctx)
}

// bring runs the plans: the first node, the other control-plane nodes one by one, then the workers.
func (f *Fleet) bring(ctx context.Context) {
	leader := f.leader()
	f.walk(ctx, planApply, 1, f.DryRun, []*node{leader}, (*node).steps)
	if leader.err != nil || leader.held != "" {
		for _, n := range f.nodes {
			if n.held == "" && n.err == nil {
				n.held = "there is no first node"
			}
		}
		return
	}
	more := slices.DeleteFunc(f.of(roleControlPlane), func(n *node) bool { return n == leader })
	for i, n := range more {
		if f.walk(ctx, planApply, 1, f.DryRun, more[i:i+1], (*node).steps); n.err != nil {
			for _, next := range more[i+1:] {
				next.held = "control-plane node " + n.m.Name + " failed"
			}
			break
		}
	}
	f.walk(ctx, planApply, f.Parallel, f.DryRun, f.of(roleWorker), (*node).steps)
}

// leader returns the node from which the kubeconfig is fetched: the one that init made, or, if the file lacks it, the control-plane node that it lists first.
func (f *Fleet) leader() *node {
	return cmp.Or(lists.First(f.nodes, func(n *node) bool { return n.role == roleFirst }), f.first())
}

func (f *Fleet) of(role string) []*node {
	return slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool { return n.role != role })
}

// tidy removes what the checks of a dry run sent.
func (f *Fleet) tidy(ctx context.Context) {
	for _, n := range f.nodes {
		if n.facts == nil || n.joined() || ctx.Err() != nil {
			continue
		}
		c, err := f.dial(ctx, n.m)
		if err != nil {
			continue // it answered before: not an error of the plan
		}
		_, _ = c.Script(ctx, bootstrap.TidyScript, nil, nil) // the next run finds what is left
		c.Close()
	}
}

func (f *Fleet) result() Result {
	out := Result{Ways: f.Ways}
	if a, err := f.authority(); err == nil && a != "" {
		out.Kubeconfig = f.kubeconfig()
	}
	for _, n := range f.nodes {
		r := MachineResult{Name: n.m.Name, Role: n.role, Address: n.m.Address, State: Unchanged, Changes: n.changed, Findings: n.warnings,
			Seconds: n.took.Seconds(), Log: n.file}
		switch {
		case n.err != nil:
			r.State = Failed
			if list := finding.Of(n.err); len(list) > 0 {
				r.Findings = append(slices.Clone(list), n.warnings...)
			} else {
				r.Reason = n.err.Error()
			}
		case n.held != "":
			r.State, r.Reason = Waiting, n.held
		case len(n.planned) > 0:
			r.State, r.Changes = Planned, n.planned
		case len(n.changed) > 0:
			r.State = Changed
		}
		out.Machines = append(out.Machines, r)
	}
	out.Removed = f.removed()
	return out
}

// removed returns the machines in the journal that are not in the file.
func (f *Fleet) removed() []string {
	in := map[string]bool{}
	for _, e := range f.entries {
		name, of := strings.CutPrefix(e.Plan, "fleet "+planApply+" ")
		if of && (e.Phase == stepInit || e.Phase == stepJoin) && e.Event == string(workflow.PhaseDone) {
			in[name] = true
		}
		if name, of := strings.CutPrefix(e.Plan, "fleet "+planRemove+" "); of && e.Event == string(workflow.RunDone) {
			delete(in, name)
		}
	}
	for _, n := range f.nodes {
		delete(in, n.m.Name)
	}
	return slices.Sorted(maps.Keys(in))
}

// failure returns the error of a run: how many machines failed, and the reason for each.
func (f *Fleet) failure(ctx context.Context) error {
	var lines []string
	for _, n := range f.nodes {
		switch list := finding.Of(n.err); {
		case len(list) > 0:
			for _, one := range list.Errors() {
				lines = append(lines, fmt.Sprintf("%s: %s %s; %s", n.m.Name, one.Code, one.Error(), one.Remedy))
			}
		case n.err != nil:
			lines = append(lines, n.m.Name+": "+n.err.Error())
		}
	}
	if f.Stop != nil && f.Stop.Err() != nil {
		return context.Cause(f.Stop)
	}
	if len(lines) == 0 {
		return context.Cause(ctx)
	}
	failed := lists.Count(f.nodes, func(n *node) bool { return n.err != nil })
	held := lists.Count(f.nodes, func(n *node) bool { return n.err == nil && n.held != "" })
	cause := fmt.Sprintf("%d of %d machines failed", failed, len(f.nodes))
	if held > 0 {
		cause += fmt.Sprintf(", and %d wait", held)
	}
	return finding.New("OCA-7641", "Not every machine is in the cluster", cause, "correct the causes, then run the command again: it continues where it stopped").With(lines...)
}
