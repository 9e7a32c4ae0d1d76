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
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// readyTimeout bounds the wait for all addons; images may have to be pulled.
const readyTimeout = 15 * time.Minute

// Ready waits until this node is Ready, cluster DNS answers and every addon runs. Each is waited for by watch, all at once.
func Ready() host.Phase {
	return host.Phase{
		Name: "ready", Short: "Wait until the node, DNS and the addons are ready",
		Long: "Waits for this node, CoreDNS, the pod network, storage, web access and the embedded database, and says why what is missing is missing.\n" +
			"The node and DNS are not waited for with --cni none.",
		Timeout: readyTimeout,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			c, err := h.Kube(ctx)
			if err != nil {
				return false, nil // nobody answers yet: nothing is ready
			}
			return readyNow(ctx, c, targets(h.Config)), nil
		},
		Plan: func(context.Context, *host.Host) ([]string, error) { return nil, nil },
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			c, err := h.Kube(ctx)
			if err != nil {
				return err
			}
			return waitAll(ctx, c, targets(h.Config), r)
		},
	}
}

// target is one object to wait for, under the name people know it by.
type target struct {
	what string
	obj  client.Object
}

// targets are what a configuration has to wait for.
func targets(c *config.Config) []target {
	var out []target
	if c.Addons.CNI != "none" {
		dns := &appsv1.Deployment{ObjectMeta: named("kube-system", "coredns")}
		out = append(out, target{"node " + c.Node.Name, &corev1.Node{ObjectMeta: named("", c.Node.Name)}}, target{"DNS", dns})
	}
	for _, a := range All() {
		if a.Skip(c) != "" || slices.Contains(c.Run.SkipPhases, a.Name) {
			continue // what this run leaves out is not waited for
		}
		for _, o := range a.Waits {
			if o.GetNamespace() == "" {
				o.SetNamespace(c.Cloud.Namespace)
			}
			out = append(out, target{a.Name, o})
		}
	}
	return out
}

func readyNow(ctx context.Context, c client.Client, all []target) bool {
	for _, t := range all {
		if err := c.Get(ctx, client.ObjectKeyFromObject(t.obj), t.obj); err != nil {
			return false
		}
		if ok, _ := kube.Ready(t.obj, nil); !ok {
			return false
		}
	}
	return true
}

func waitAll(ctx context.Context, c client.WithWatch, all []target, r workflow.Reporter) error {
	waits := make([]wait.Wait, len(all))
	for i, t := range all {
		waits[i] = wait.Wait{What: t.what, Run: func(ctx context.Context, report func(string)) error {
			if err := kube.WaitReady(ctx, c, t.obj, report); err != nil {
				return notReady(t, err)
			}
			return nil
		}}
	}
	done := 0
	err := wait.All(ctx, func(what, why string) {
		if why != "" {
			r.Waiting(what, why)
			return
		}
		done++
		r.Info("%s is ready", what)
		r.Progress(int64(done), int64(len(all)), "ready")
	}, waits...)
	return asFindings(err)
}

func notReady(t target, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	look := "kubectl describe " + kindOf(t.obj) + " " + t.obj.GetName()
	if ns := t.obj.GetNamespace(); ns != "" {
		look = "kubectl -n " + ns + " get pods,events"
	}
	return finding.Finding{
		Code: "OCA-5001", Severity: finding.Error, What: t.what + " did not become ready in time", Cause: wait.Why(err),
		Remedy: look + "   # then repeat the command: it goes on from here", Err: err,
	}
}

func kindOf(o client.Object) string {
	if _, ok := o.(*corev1.Node); ok {
		return "node"
	}
	return "pod"
}

// asFindings makes one list of the findings among joined errors; another error comes first.
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
