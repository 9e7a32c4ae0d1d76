// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// nodePatience is how long a step over all nodes may go without progress.
	nodePatience = 12 * time.Minute
	// atOnce is the number of workers that apply a stage concurrently. Control-plane nodes do so one by one.
	atOnce = 8
)

// member is a node of the cluster.
type member struct {
	name                string
	controlPlane, ready bool
}

// members returns this machine, the other control-plane nodes, and the workers, in this order.
func (n *Rotation) members(ctx context.Context, c client.Reader) ([]member, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var out []member
	for i := range nodes.Items {
		m := member{name: nodes.Items[i].Name, ready: kube.NodeReady(&nodes.Items[i])}
		_, m.controlPlane = nodes.Items[i].Labels[v1alpha1.LabelControlPlane]
		out = append(out, m)
	}
	rank := func(m member) int {
		switch {
		case m.name == n.Host.Config.Node.Name:
			return 0
		case m.controlPlane:
			return 1
		}
		return 2
	}
	slices.SortFunc(out, func(a, b member) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a.name, b.name)) })
	return out, nil
}

// missing returns the nodes that have not applied a stage.
func (n *Rotation) missing(ctx context.Context, c client.Reader, stage Stage) ([]string, error) {
	all, err := n.members(ctx, c)
	return lists.Pick(all, func(m member) (string, bool) { return m.name, !n.has(m.name, stage) }), err
}

func (n *Rotation) has(node string, stage Stage) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Record != nil && n.Record.Nodes[node] != "" && reached(n.Record.Nodes[node], stage)
}

// nodesStep makes every node apply a stage.
func nodesStep(stage Stage) Step {
	return Step{Name: "nodes", Short: "Let every node use the authorities", Patience: nodePatience, Skip: beyond(following(stage)),
		Check: underway(func(ctx context.Context, c client.WithWatch, n *Rotation) (bool, error) {
			missing, err := n.missing(ctx, c, stage)
			return len(missing) == 0 && err == nil, err
		}),
		Plan: func(ctx context.Context, n *Rotation) ([]string, error) {
			c, err := n.client()
			if err != nil {
				return nil, err
			}
			missing, err := n.missing(ctx, c, stage)
			for i, m := range missing {
				missing[i] = "node " + m + ": stage " + string(stage)
			}
			return missing, err
		},
		Run: func(ctx context.Context, n *Rotation, r workflow.Reporter) error {
			return n.takeOver(ctx, r, stage, false)
		}}
}

// check makes every node apply the present stage once more, which changes nothing if all is well, and refuses if a kubeconfig would be locked out.
func check(ctx context.Context, n *Rotation, r workflow.Reporter) error {
	if err := n.takeOver(ctx, r, Sign, true); err != nil {
		return err
	}
	c, err := n.client()
	if err != nil {
		return err
	}
	all, err := n.members(ctx, c)
	if err != nil {
		return err
	}
	return refuseLeft(n.Record.Left, all)
}

// refuseLeft returns a finding if nodes have kubeconfigs of the old CA. Those of nodes removed since do not count.
func refuseLeft(on map[string][]string, all []member) error {
	left := slices.Concat(lists.Map(all, func(m member) []string {
		return lists.Map(on[m.name], func(f string) string { return m.name + ": " + f })
	})...)
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	return finding.New("OCA-4417", "Kubeconfigs depend on the old certificate authority", "they would stop working",
		"write the content of a control-plane node's /etc/kubernetes/admin.conf into each file that the evidence names, to keep its owner and mode: cat ADMIN.CONF >FILE; "+
			"or remove the file; then run the same command again").With(left...)
}

// takeOver makes nodes apply a stage: control-plane nodes one by one, then workers. It skips nodes that are not Ready and reports them at the end,
// except this machine, whose kubelet a killed run may just have restarted.
func (n *Rotation) takeOver(ctx context.Context, r workflow.Reporter, stage Stage, again bool) error {
	c, err := n.client()
	if err != nil {
		return err
	}
	all, err := n.members(ctx, c)
	if err != nil {
		return err
	}
	var away []string
	todo := slices.DeleteFunc(all, func(m member) bool {
		if !again && n.has(m.name, stage) {
			return true
		}
		waits := !m.ready && m.name != n.Host.Config.Node.Name
		if waits {
			away = append(away, m.name)
		}
		return waits
	})
	var workers errgroup.Group
	workers.SetLimit(atOnce)
	for i, m := range todo {
		r.Progress(int64(i), int64(len(todo)), "nodes")
		if m.controlPlane {
			if err := n.take(ctx, c, r, m, stage); err != nil {
				return err
			}
			continue
		}
		workers.Go(func() error { return n.take(ctx, c, r, m, stage) })
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	return notReached(stage, away)
}

// take makes one node apply a stage, and records it.
func (n *Rotation) take(ctx context.Context, c client.WithWatch, r workflow.Reporter, m member, stage Stage) error {
	var left []string
	var err error
	if m.name == n.Host.Config.Node.Name {
		left, err = n.here(ctx, r, stage)
		if err == nil {
			n.Host.Reopen()
			c, err = n.client() // with the current certificate
		}
	} else {
		left, err = runPod(ctx, c, r, pod(n.Host.Config.OperatorImage(), m, stage, n.Record.ID))
	}
	if err != nil {
		return err
	}
	r.Waiting("node "+m.name, "")
	r.Changed("node %s has completed stage %s", m.name, stage)
	return n.change(ctx, c, func(rec *Record) {
		if rec.Nodes == nil {
			rec.Nodes = map[string]Stage{}
		}
		rec.Nodes[m.name] = stage
		if rec.Left == nil {
			rec.Left = map[string][]string{}
		}
		delete(rec.Left, m.name)
		if len(left) > 0 {
			rec.Left[m.name] = left
		}
	})
}

// here applies a stage on this machine.
func (n *Rotation) here(ctx context.Context, r workflow.Reporter, stage Stage) ([]string, error) {
	own, err := newNode(n.Host, n.material, stage)
	if err != nil {
		return nil, err
	}
	_, err = workflow.Runner[*Node]{Plan: "take over", Phases: NodeSteps(), Sink: forward{r}}.Run(ctx, own, workflow.Options{})
	if err != nil {
		return nil, err
	}
	return own.Left()
}

// forward reports the events of a run within a step as those of the step.
type forward struct{ r workflow.Reporter }

// Event forwards an event of the inner run.
func (f forward) Event(e workflow.Event) {
	switch e.Type {
	case workflow.PhaseChanged:
		f.r.Changed("%s", e.Message)
	case workflow.PhaseWaiting:
		f.r.Waiting(e.Message, e.Why)
	case workflow.PhaseStarted:
		f.r.Alive()
	}
}

// Taken is the report of the pod on a node.
type Taken struct {
	Left []string `json:"left,omitempty"`
}

// reportBytes is below the 4096 bytes after which the kubelet cuts off a pod's report.
const reportBytes = 4000

// NewTaken returns the report on a node's kubeconfigs. It counts those that do not fit.
func NewTaken(left []string) Taken {
	size := 0
	for i, f := range left {
		quoted, _ := json.Marshal(f) // text always has a form
		if size += len(quoted) + len(","); size > reportBytes {
			return Taken{Left: append(slices.Clone(left[:i]), fmt.Sprintf("and %d more", len(left)-i))}
		}
	}
	return Taken{Left: left}
}

// parseTaken parses such a report.
func parseTaken(text string) (Taken, error) {
	var t Taken
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("reading the report of a node: %w", err)
	}
	return t, nil
}

// Row is a node in the status.
type Row struct {
	Node         string   `json:"node"`
	ControlPlane bool     `json:"controlPlane"`
	Ready        bool     `json:"ready"`
	Stage        Stage    `json:"stage,omitempty"`
	Left         []string `json:"left,omitempty"`
}

// Status is the progress of a rotation.
type Status struct {
	Underway bool    `json:"underway"`
	Record   *Record `json:"rotation,omitempty"`
	Nodes    []Row   `json:"nodes"`
	Next     string  `json:"next"`
	// TwoAuthorities is set if this machine trusts two CAs without a rotation: its record was deleted.
	TwoAuthorities bool `json:"twoAuthorities,omitempty"`
}

// Status reads the progress of the rotation.
func (n *Rotation) Status(ctx context.Context) (Status, error) {
	c, err := n.client()
	if err != nil {
		return Status{}, err
	}
	all, err := n.members(ctx, c)
	if err != nil {
		return Status{}, err
	}
	s := Status{Underway: n.Record != nil, Record: n.Record, Next: "ocadm certs rotate-ca", TwoAuthorities: n.Record == nil && kubernetes.Rotating(n.Host)}
	done := true
	for _, m := range all {
		row := Row{Node: m.name, ControlPlane: m.controlPlane, Ready: m.ready}
		if n.Record != nil {
			row.Stage, row.Left = n.Record.Nodes[m.name], n.Record.Left[m.name]
			done = done && n.has(m.name, Sign)
		}
		s.Nodes = append(s.Nodes, row)
	}
	switch {
	case n.Record == nil:
	case n.Record.Reverting:
		s.Next = "ocadm certs rotate-ca --revert"
	case n.Record.Stage == Drop, n.Record.Stage == Sign && done:
		s.Next = "ocadm certs rotate-ca --finish"
	}
	return s, nil
}
