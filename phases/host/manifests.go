// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
)

// Looking bounds the API requests of a check or a plan.
const Looking = 10 * time.Second

// Look calls ask, which must only read from the cluster, with a short timeout.
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
	// Objects renders the objects. c is nil if there is no cluster yet.
	Objects func(ctx context.Context, h *Host, c client.WithWatch) ([]*unstructured.Unstructured, error)
	// Before prepares what the objects need, and After does what needs the objects. With look, they only return what they would change. Both may be
	// nil.
	Before, After func(ctx context.Context, h *Host, c client.WithWatch, look bool) (kube.ChangeSet, error)
}

// Phase makes p a phase whose check and plan compare the cluster with the objects, and whose run applies them.
func (m Manifests) Phase(p Phase) Phase {
	p.Check = func(ctx context.Context, h *Host) (bool, error) {
		set, err := m.changes(ctx, h)
		return err == nil && len(set) == 0, nil // if the cluster does not answer, Run reports why
	}
	p.Plan = func(ctx context.Context, h *Host) ([]string, error) {
		set, err := m.changes(ctx, h)
		if err != nil && len(finding.Of(err)) == 0 { // there is no cluster yet, so everything is created
			set, err = m.created(ctx, h)
		}
		return lists.Map(set, kube.Change.Planned), err
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

// walk goes through the three steps and returns their changes.
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

// created returns the changes as if none of the objects existed.
func (m Manifests) created(ctx context.Context, h *Host) (kube.ChangeSet, error) {
	objs, err := m.objects(ctx, h, nil)
	return lists.Map(objs, func(o *unstructured.Unstructured) kube.Change {
		return kube.Change{Action: kube.Created, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
	}), err
}

// Await makes p a phase that only waits for pods: its check asks once whether they are ready, its run waits.
func Await(p Phase, ready func(context.Context, *Host, client.WithWatch) bool,
	wait func(context.Context, *Host, client.WithWatch, workflow.Reporter) error) Phase {
	p.Plan = workflow.Says[*Host]()
	p.Check = func(ctx context.Context, h *Host) (ok bool, _ error) {
		_ = h.Look(ctx, func(ctx context.Context, c client.WithWatch) error { // if the cluster does not answer, nothing is ready
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

// WhilePodsMove runs wait, which waits for a result of running pods. The phase keeps its patience while the pods make progress or pull images.
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
