// SPDX-License-Identifier: Apache-2.0

// Package ha extends a control plane that was created with one node to several, and tests that it survives the loss of any part.
package ha

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/nodefault"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
	"yunion.io/x/ocadm/phases/vip"
)

// The goals for outages.
const (
	APIGoal     = 10 * time.Second
	ConsoleGoal = 30 * time.Second
)

const (
	// pauseFor exceeds the goal for the API, but not the time after which a node counts as lost and its pods move.
	pauseFor = 15 * time.Second
	// cutFor exceeds the goal for the console.
	cutFor = 45 * time.Second
	// recoverTimeout is how long the control plane may take to recover.
	recoverTimeout = 5 * time.Minute
	faultTimeout   = settleTimeout + cutFor + podSpare + recoverTimeout + 2*time.Minute
	interval       = time.Second
	namespace      = nodepod.Namespace
	// name is the name of the objects that a test creates in the cluster while it runs: the pod that injects a fault, and the ConfigMap for test writes.
	name = "ocadm-ha-test"
	// podSpare is how much longer than its fault the pod may live. A node that is cut off reports its end late.
	podSpare     = 2 * time.Minute
	leaveTimeout = 30 * time.Second
	// answerWithin is how long the API server may take to answer at first: longer than clients see any fault silence it.
	answerWithin = 2 * pauseFor
)

// Test is the state shared by the steps of a test.
type Test struct {
	Host *host.Host
	K    client.WithWatch
	// Console is the address of a cloud's console that answers, or "". Silent is then the address of one that should answer.
	Console, Silent string
	// Cut is the node to cut off; "" selects the holder of the virtual address.
	Cut string

	Outcomes []Outcome
	// unready lists the pods that were not ready before the first fault.
	unready []string
}

// Outcome is the result of a fault. Times are in seconds.
type Outcome struct {
	Fault string `json:"fault"`
	Node  string `json:"node"`
	// API and Console are the longest times without an answer; Console is nil if no console was tested.
	API     float64  `json:"apiOutageSeconds"`
	Console *float64 `json:"consoleOutageSeconds,omitempty"`
	// Written counts the acknowledged writes, Lost those that were missing afterwards.
	Written int `json:"acknowledgedWrites"`
	Lost    int `json:"lostWrites"`
	// Whole is the time from the end of the fault until full recovery.
	Whole float64 `json:"wholeAfterSeconds"`
	Met   bool    `json:"met"`
}

// judge compares the outcome with the goals.
func (o *Outcome) judge() {
	o.Met = o.API <= APIGoal.Seconds() && (o.Console == nil || *o.Console <= ConsoleGoal.Seconds()) && o.Lost == 0
}

// Begin checks the cluster, and refuses one that could not survive the test. It changes nothing. It calls waiting with what it waits for.
func Begin(ctx context.Context, h *host.Host, waiting func(why string)) (*Test, error) {
	k, err := impatient(ctx, h)
	if err != nil {
		return nil, err
	}
	h.Kube = func(context.Context) (client.WithWatch, error) { return k, nil }
	if err := patiently(ctx, func(ctx context.Context) error { return kubernetes.NeedEndpoint(ctx, k) }, waiting); err != nil {
		return nil, err
	}
	t := &Test{Host: h, K: k}
	s, err := vip.Look(ctx, h, k)
	if err != nil {
		return nil, err
	}
	left, err := t.left(ctx)
	if err != nil {
		return nil, err
	}
	if !left { // otherwise the damage of an earlier test is repaired first
		if err := survives(s); err != nil {
			return nil, err
		}
	}
	t.Console, t.Silent, err = t.console(ctx)
	return t, err
}

// patiently repeats a query until there is an answer: a test that was just killed may still block the API server.
func patiently(ctx context.Context, ask func(context.Context) error, waiting func(why string)) (answer error) {
	limited, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := wait.Until(limited, "the API server", interval, func(ctx context.Context) (bool, string, error) {
		answer = ask(ctx)
		final := apierrors.IsUnauthorized(answer) || apierrors.IsForbidden(answer) || apierrors.IsNotFound(answer)
		if answer == nil || len(finding.Of(answer)) > 0 || final {
			return true, "", nil
		}
		return false, "", answer
	}, waiting)
	return cmp.Or(answer, err)
}

// impatient returns a client that recovers quickly when the node behind its connection is lost. HTTP/2 would keep the connection for 45 seconds.
func impatient(ctx context.Context, h *host.Host) (client.WithWatch, error) {
	cfg, err := h.REST(ctx)
	if err != nil {
		return nil, err
	}
	c := rest.CopyConfig(cfg)
	c.NextProtos, c.Timeout = []string{"http/1.1"}, askTimeout
	if h.Files.DryRun {
		return kube.NewDryRun(c)
	}
	return kube.New(c)
}

// survives returns a finding for a control plane that is not fully healthy.
func survives(s vip.Status) error {
	if s.Tolerates > 0 && len(s.Problems) == 0 {
		return nil
	}
	return finding.New("OCA-4170", "The control plane would not survive the test", fmt.Sprintf("it tolerates the loss of %d more nodes; the evidence lists its problems", s.Tolerates),
		"see ocadm ha status; set up three working control-plane nodes, then run the same command again").With(s.Problems...)
}

// console returns the address of a cloud's console that answers, or else of one that should.
func (t *Test) console(ctx context.Context) (at, silent string, err error) {
	list, err := cluster.All(ctx, t.K)
	if err != nil {
		return "", "", err
	}
	for _, o := range list {
		address := o.Spec.LoadBalancerEndpoint
		if address == "" {
			continue
		}
		if newConsole(address).answers(ctx) {
			return address, "", nil
		}
		silent = address
	}
	return "", silent, nil
}

// Step is a step of a test.
type Step = workflow.Phase[*Test]

// Steps returns the steps that test a control plane.
func Steps() []Step {
	steps := []Step{{
		Name: "begin", Short: "Check that the control plane is healthy", Timeout: 2*recoverTimeout + podSpare,
		Plan: workflow.Says[*Test](),
		Run: func(ctx context.Context, t *Test, r workflow.Reporter) error {
			if err := t.clean(ctx, r); err != nil {
				return err
			}
			return t.whole(ctx, r)
		},
	}}
	for _, f := range faults() {
		steps = append(steps, Step{
			Name: f.name, Short: f.short, Timeout: faultTimeout,
			Skip: workflow.SkipIf("the cluster has no virtual address", func(t *Test) bool {
				return f.kind == nodefault.KillKeepalived && !t.Host.Files.Exists(vip.ManifestFile)
			}),
			Plan: func(ctx context.Context, t *Test) ([]string, error) {
				node, err := f.node(ctx, t)
				return []string{fmt.Sprintf(f.plan, node)}, err
			},
			Run: func(ctx context.Context, t *Test, r workflow.Reporter) error { return t.run(ctx, r, f) },
		})
	}
	return steps
}

type fault struct {
	name, short, plan string
	kind              nodefault.Kind
	length            time.Duration
	// node selects the node whose loss is the worst.
	node func(context.Context, *Test) (string, error)
}

func faults() []fault {
	return []fault{
		{"virtual-address", "Kill keepalived on the node with the virtual address", "kill keepalived on %s, as in a crash", nodefault.KillKeepalived, time.Second, holder},
		{"api-server", "Pause the API server that is in use", "pause the API server of %s for " + pauseFor.String(), nodefault.PauseAPIServer, pauseFor, holder},
		{"etcd", "Pause the leader of etcd", "pause the member of etcd on %s for " + pauseFor.String(), nodefault.PauseEtcd, pauseFor, leader},
		{cutFault, "Cut a node off from the network", "cut %s off from the network for " + cutFor.String(), nodefault.CutNode, cutFor, other},
	}
}

// holder returns the node with the virtual address, or any other.
func holder(ctx context.Context, t *Test) (string, error) {
	s, err := vip.Look(ctx, t.Host, t.K)
	if err != nil {
		return "", err
	}
	return cmp.Or(s.Holder, s.Nodes[0].Name), nil
}

// leader returns the node with the leader of etcd.
func leader(ctx context.Context, t *Test) (string, error) {
	list, err := kubernetes.ObserveOwnEtcd(ctx, t.Host)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(list, func(o etcd.Observed) bool { return o.Leader }); i >= 0 {
		return list[i].Name, nil
	}
	return "", errors.New("finding the leader of etcd: no member leads")
}

// other returns a node other than this one, which measures: the chosen one, the holder of the virtual address, the leader of etcd, or any.
func other(ctx context.Context, t *Test) (string, error) {
	if t.Cut != "" {
		return t.Cut, nil
	}
	own := t.Host.Config.Node.Name
	for _, choose := range []func(context.Context, *Test) (string, error){holder, leader} {
		if node, err := choose(ctx, t); err != nil || node != own {
			return node, err
		}
	}
	s, err := vip.Look(ctx, t.Host, t.K)
	if err != nil {
		return "", err
	}
	return s.Nodes[slices.IndexFunc(s.Nodes, func(n vip.NodeStatus) bool { return n.Name != own })].Name, nil
}

// left reports whether a killed test left a pod.
func (t *Test) left(ctx context.Context) (bool, error) {
	return kube.Find(ctx, t.K, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{}, "the pod of an earlier test")
}

// clean removes what is left of a test. The fault ends with its pod.
func (t *Test) clean(ctx context.Context, r workflow.Reporter) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := client.IgnoreNotFound(t.K.Delete(ctx, cm)); err != nil {
		return fmt.Errorf("undoing a fault: %w", err)
	}
	return nodepod.Delete(ctx, t.K, name, func(why string) { r.Waiting("the end of an earlier fault", why) })
}
