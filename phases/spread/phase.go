// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// PhaseName is the name of the phase.
	PhaseName = "spread-dns"
	// patience is how long the phase waits for a node, and the pod on it, to be Ready. The join has already succeeded.
	patience = 2 * time.Minute
	interval = time.Second
)

// DNS moves a pod of CoreDNS to another control-plane node if all of them share one. kubeadm's anti-affinity is only a preference, which counts when
// a pod is scheduled: init, with its one node, leaves them there permanently. DNS evicts one pod instead of restarting all: the others keep
// answering, and the new pod avoids their node. A rollout might place both on the second of two nodes.
func DNS(after ...string) host.Phase {
	return host.Phase{
		Name: PhaseName, Short: "Move a pod of cluster DNS to another control-plane node if all share one", After: after, Timeout: patience + time.Minute,
		Long: "init places all pods of CoreDNS on the only node, and Kubernetes leaves them there: without that node, the cluster has no DNS until they are\n" +
			"replaced. This phase evicts one of them once another control-plane node is Ready; the others answer in the meantime. It never fails a join, and\n" +
			"does nothing if the pods are on several nodes, or if CoreDNS is not kubeadm's.",
		Skip:  kubernetes.NotControlPlane,
		Check: check(readDNS, copies.done),
		Plan:  workflow.Says[*host.Host]("if all pods of CoreDNS share one node: evict one of them"),
		Run:   run(move, "CoreDNS may still depend on one node"),
	}
}

// check returns a check that does not fail if reading fails: the phase then runs, and reports why.
func check(read func(context.Context, client.Reader) (copies, error), done func(copies) bool) func(context.Context, *host.Host) (bool, error) {
	return func(ctx context.Context, h *host.Host) (bool, error) {
		k, err := h.Kube(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // see above
		}
		c, err := read(ctx, k)
		return err == nil && done(c), nil
	}
}

// run returns a phase's function that never fails a join: it reports what it could not do.
func run(do func(ctx context.Context, k client.Client, every time.Duration, r workflow.Reporter) error, left string) func(context.Context, *host.Host, workflow.Reporter) error {
	return func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
		k, err := h.Kube(ctx)
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			err = do(limited, k, interval, r)
		}
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return context.Cause(ctx)
		}
		if err != nil {
			r.Info("%s, see ocadm ha status: %v", left, err)
		}
		return nil
	}
}

// until repeats step until it is done or the API server forbids it. A step may be done with an error if a retry would not help.
func until(ctx context.Context, what string, every time.Duration, r workflow.Reporter, step func(context.Context) (bool, string, error)) error {
	var last error
	err := wait.Until(ctx, what, every, func(ctx context.Context) (bool, string, error) {
		done, why, err := step(ctx)
		if done || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			last = err
			return true, "", nil
		}
		return done, why, err
	}, func(why string) { r.Waiting(what, why) })
	r.Waiting(what, "")
	return errors.Join(last, err)
}

// move moves one pod, once, and waits until its successor is ready on another node.
func move(ctx context.Context, k client.Client, every time.Duration, r workflow.Reporter) error {
	return until(ctx, "CoreDNS", every, r, (&mover{k: k, r: r}).step)
}

type mover struct {
	k client.Client
	r workflow.Reporter
	// moved is set once a pod was evicted.
	moved bool
}

// step takes the next step. It reports whether that was the last, or what it waits for.
func (m *mover) step(ctx context.Context) (bool, string, error) {
	d, err := readDNS(ctx, m.k)
	switch {
	case err != nil:
		return false, "", err
	case d.done():
		if !m.moved {
			return true, "", nil
		}
		why := d.unready()
		return why == "", why, nil
	case !d.onOneNode():
		return false, "a pod has no node yet", nil
	}
	pod, why := d.next()
	if pod == nil {
		return false, why, nil
	}
	if m.moved {
		return true, "", fmt.Errorf("the new pod was also placed on node %s", d.node())
	}
	err = kube.EvictPod(ctx, m.k, pod)
	switch {
	case apierrors.IsTooManyRequests(err): // a disruption budget, which may soon allow it
		return false, err.Error(), nil
	case apierrors.IsNotFound(err):
		return false, "pod " + pod.Name + " is gone", nil
	case err != nil:
		return true, "", fmt.Errorf("evicting pod %s: %w", pod.Name, err)
	}
	m.moved = true
	m.r.Changed("evicted pod %s of CoreDNS, which shared node %s with the others", pod.Name, d.node())
	return false, "a new pod starts", nil
}
