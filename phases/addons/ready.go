// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// readyPatience is how long the wait for all addons may go on without a change.
const readyPatience = 10 * time.Minute

// Ready waits until this node is Ready, cluster DNS answers and every addon runs. It watches all of them concurrently.
func Ready() host.Phase {
	return host.Await(host.Phase{
		Name: "ready", Short: "Wait until the node, DNS and the addons are ready",
		Long: "Waits for this node, its kube-proxy, CoreDNS, the pod network, storage, web access and the embedded database, and reports the causes if any of them is not ready.\n" +
			"With --cni none, it does not wait for the node and DNS.",
		Patience: readyPatience,
	}, func(ctx context.Context, h *host.Host, c client.WithWatch) bool {
		return allReady(ctx, c, targets(h))
	}, func(ctx context.Context, h *host.Host, c client.WithWatch, r workflow.Reporter) error {
		return waitAll(ctx, c, targets(h), r)
	})
}

// target is one object to wait for, with its name for people.
type target struct {
	what string
	obj  client.Object
	// on is the node whose pod of a DaemonSet must be ready; empty means all nodes.
	on string
	// failure returns the last error and restart count of the target's container, read from this machine; nil for targets without one.
	failure func() (line string, restarts int)
}

// ready reports whether the target is ready now.
func (t target) ready(ctx context.Context, c client.Client) bool {
	if err := c.Get(ctx, client.ObjectKeyFromObject(t.obj), t.obj); err != nil {
		return false
	}
	if t.on == "" {
		ok, _ := kube.Ready(t.obj, nil)
		return ok
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(t.obj.GetNamespace())); err != nil {
		return false
	}
	ok, _ := kube.ReadyOn(t.on)(t.obj, pods.Items)
	return ok
}

func allReady(ctx context.Context, c client.Client, all []target) bool {
	return !slices.ContainsFunc(all, func(t target) bool { return !t.ready(ctx, c) })
}

func (t target) wait(ctx context.Context, c client.WithWatch, report func(string)) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	last := ""
	say := func(why string) {
		if t.failure != nil {
			if line, restarts := t.failure(); line != "" {
				why += ": " + line
				if restarts >= manyRestarts {
					giveUp(errKeepsEnding)
				}
			}
		}
		last = why
		report(why)
	}
	var err error
	if d, ok := t.obj.(*appsv1.DaemonSet); ok && t.on != "" {
		err = kube.WaitReadyOn(ctx, c, d, t.on, say)
	} else {
		err = kube.WaitReady(ctx, c, t.obj, say)
	}
	if err != nil && errors.Is(context.Cause(ctx), errKeepsEnding) {
		return &wait.Error{What: t.what, Why: last, Err: errKeepsEnding}
	}
	return err
}

// manyRestarts is how many restarts of a container make a wait give up.
const manyRestarts = 5

var errKeepsEnding = errors.New("its container keeps restarting")

// kubeProxy waits for this node's kube-proxy: without it no service is reachable, including cluster DNS and the API server.
func kubeProxy(h *host.Host) target {
	return target{
		what: "kube-proxy", on: h.Config.Node.Name, obj: &appsv1.DaemonSet{ObjectMeta: named("kube-system", "kube-proxy")},
		failure: func() (string, int) { return kubernetes.Failure(h, "kube-system_kube-proxy-*", "kube-proxy") },
	}
}

// targets returns what a configuration must wait for.
func targets(h *host.Host) []target {
	c := h.Config
	var out []target
	if c.Node.Name != "" && !slices.Contains(c.Run.SkipPhases, "addon") && !slices.Contains(c.Run.SkipPhases, "addon/kube-proxy") {
		out = append(out, kubeProxy(h))
	}
	if c.Addons.CNI != "none" {
		dns := &appsv1.Deployment{ObjectMeta: named("kube-system", "coredns")}
		out = append(out, target{what: "node " + c.Node.Name, obj: &corev1.Node{ObjectMeta: named("", c.Node.Name)}}, target{what: "DNS", obj: dns})
	}
	for _, a := range All() {
		if a.Skip(c) != "" || slices.Contains(c.Run.SkipPhases, a.Name) {
			continue // this run leaves it out
		}
		for _, o := range a.Waits {
			if o.GetNamespace() == "" {
				o.SetNamespace(c.Cloud.Namespace)
			}
			out = append(out, target{what: a.Name, obj: o})
		}
	}
	return out
}

func waitAll(ctx context.Context, c client.WithWatch, all []target, r workflow.Reporter) error {
	waits := make([]wait.Wait, len(all))
	for i, t := range all {
		waits[i] = wait.Wait{What: t.what, Run: func(ctx context.Context, report func(string)) error {
			if err := t.wait(ctx, c, report); err != nil {
				return notReady(t, err)
			}
			return nil
		}}
	}
	done := 0
	err := wait.All(ctx, func(what, why string) {
		r.Waiting(what, why)
		if why != "" {
			return
		}
		done++
		r.Info("%s is ready", what)
		r.Progress(int64(done), int64(len(all)), "ready")
	}, waits...)
	return asFindings(err)
}

func notReady(t target, err error) error {
	if errors.Is(err, errKeepsEnding) {
		return finding.New("OCA-5002", t.what+" keeps crashing", wait.Why(err), "correct the cause, then run the same command again: it continues from here").Wrap(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	look := "kubectl describe node " + t.obj.GetName() // the only target without a namespace
	if ns := t.obj.GetNamespace(); ns != "" {
		look = "kubectl -n " + ns + " get pods,events"
	}
	return finding.New("OCA-5001", t.what+" did not become ready in time", wait.Why(err),
		look+"   # then run the same command again: it continues from here").Wrap(err)
}

// asFindings collects the findings among joined errors into a list; any other error comes first.
func asFindings(err error) error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err
	}
	var l finding.List
	for _, e := range joined.Unwrap() {
		var f finding.Finding
		if !errors.As(e, &f) {
			return err
		}
		l = append(l, f)
	}
	return l
}
