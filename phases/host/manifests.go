// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

// Looking bounds what a check or a plan asks of the API server.
const Looking = 10 * time.Second

// Look asks the cluster something that changes nothing, within a short time.
func (h *Host) Look(ctx context.Context, ask func(context.Context, client.WithWatch) error) error {
	ctx, cancel := context.WithTimeout(ctx, Looking)
	defer cancel()
	c, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	return ask(ctx, c)
}

// Manifests are objects that a phase applies to the cluster.
type Manifests struct {
	// Objects renders them. c is nil while there is no cluster.
	Objects func(ctx context.Context, h *Host, c client.WithWatch) ([]*unstructured.Unstructured, error)
	// Before makes what the objects need, and After what they are needed for; with look they only return what they would change. Both may
	// be nil.
	Before, After func(ctx context.Context, h *Host, c client.WithWatch, look bool) (kube.ChangeSet, error)
}

// Phase fills in the work of a phase: its check and plan compare the cluster with the objects, its run applies them.
func (m Manifests) Phase(p Phase) Phase {
	p.Check = func(ctx context.Context, h *Host) (bool, error) {
		set, err := m.changes(ctx, h)
		return err == nil && len(set) == 0, nil // without an answer the work is not done, and Run reports what is wrong
	}
	p.Plan = func(ctx context.Context, h *Host) ([]string, error) {
		set, err := m.changes(ctx, h)
		if err != nil { // there is no cluster yet: everything is made
			if set, err = m.created(ctx, h); err != nil {
				return nil, err
			}
		}
		var lines []string
		for _, c := range set {
			lines = append(lines, c.Planned())
		}
		return lines, nil
	}
	p.Run = func(ctx context.Context, h *Host, r workflow.Reporter) error {
		c, err := h.Kube(ctx)
		if err != nil {
			return err
		}
		set, err := m.walk(ctx, h, c, false, kube.Apply)
		for _, change := range set {
			r.Changed("%s", change)
		}
		return err
	}
	return p
}

func (m Manifests) changes(ctx context.Context, h *Host) (set kube.ChangeSet, err error) {
	err = h.Look(ctx, func(ctx context.Context, c client.WithWatch) error {
		set, err = m.walk(ctx, h, c, true, diff)
		return err
	})
	return set, err
}

func diff(ctx context.Context, c client.WithWatch, manager string, objs ...*unstructured.Unstructured) (kube.ChangeSet, error) {
	return kube.Diff(ctx, c, manager, objs...)
}

// walk goes through the three steps and returns what they change.
func (m Manifests) walk(ctx context.Context, h *Host, c client.WithWatch, look bool,
	do func(context.Context, client.WithWatch, string, ...*unstructured.Unstructured) (kube.ChangeSet, error),
) (kube.ChangeSet, error) {
	var all kube.ChangeSet
	if m.Before != nil {
		set, err := m.Before(ctx, h, c, look)
		if all = append(all, set...); err != nil {
			return all, err
		}
	}
	objs, err := m.objects(ctx, h, c)
	if err != nil {
		return all, err
	}
	set, err := do(ctx, c, kube.FieldManager, objs...)
	if all = append(all, set.Changed()...); err != nil || m.After == nil {
		return all, err
	}
	set, err = m.After(ctx, h, c, look)
	return append(all, set.Changed()...), err
}

func (m Manifests) objects(ctx context.Context, h *Host, c client.WithWatch) ([]*unstructured.Unstructured, error) {
	objs, err := m.Objects(ctx, h, c)
	if err != nil {
		return nil, err
	}
	return WithPullSecret(h.Config.Node.RegistryAuth, objs)
}

// created are the objects as if none were there.
func (m Manifests) created(ctx context.Context, h *Host) (kube.ChangeSet, error) {
	objs, err := m.objects(ctx, h, nil)
	var set kube.ChangeSet
	for _, o := range objs {
		set = append(set, kube.Change{Action: kube.Created, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()})
	}
	return set, err
}

// Await fills in the work of a phase that only waits for pods: its check asks once whether they are ready, its run waits.
func Await(p Phase, ready func(context.Context, *Host, client.WithWatch) bool,
	wait func(context.Context, *Host, client.WithWatch, workflow.Reporter) error) Phase {
	p.Plan = workflow.Says[*Host]()
	p.Check = func(ctx context.Context, h *Host) (ok bool, _ error) {
		_ = h.Look(ctx, func(ctx context.Context, c client.WithWatch) error { // without an answer nothing is ready
			ok = ready(ctx, h, c)
			return nil
		})
		return ok, nil
	}
	p.Run = func(ctx context.Context, h *Host, r workflow.Reporter) error {
		c, err := h.Kube(ctx)
		if err != nil {
			return err
		}
		return WhilePodsMove(ctx, c, r, func() error { return wait(ctx, h, c, r) })
	}
	return p
}

// WhilePodsMove waits for something that pods bring about. As long as they move on, or images are pulled for them, the phase keeps its
// patience.
func WhilePodsMove(ctx context.Context, c client.WithWatch, r workflow.Reporter, wait func() error) error {
	following, stop := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		kube.Activity(following, c, func(pulling string) {
			r.Alive()
			if pulling != "" {
				pulling += " is being pulled"
			}
			r.Waiting("images", pulling)
		})
	})
	defer g.Wait()
	defer stop()
	return wait()
}
