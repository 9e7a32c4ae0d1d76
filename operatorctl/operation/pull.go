// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/status"
)

const (
	// pullPatience is how long pulling may make no progress.
	pullPatience = 20 * time.Minute
	// pullPods is how many pods pull concurrently, pullPodsOfNode how many of them on one node.
	pullPods, pullPodsOfNode = 64, 8
	// pullTries is how many pods are tried if they are deleted, or if a kubelet rejects them.
	pullTries = 3
	// pullLook is how often nodes and failing images are checked.
	pullLook = 10 * time.Second
	// waitsShown is how many of the images, or of the pods, that a step waits for are in a line of its progress.
	waitsShown = 3
)

// pull pulls the images of the next release on the nodes that may run them: docs/decisions/0049. It does not change the cloud.
func pull(next func(context.Context, *Run) (*release.Release, error), remedy string) Step {
	return Step{
		Name: "pull", Short: "Pull the images of the release on the nodes", ReadOnly: true, Patience: pullPatience,
		Skip: workflow.SkipIf("no target release was specified", func(r *Run) bool {
			spec := r.Operation.Spec
			return spec.Action == v1alpha1.ActionCheck && spec.Update == nil && spec.Rollback == nil
		}),
		Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
			to, err := next(ctx, r)
			if err != nil {
				return err
			}
			all, err := podsOf(to)
			if err != nil {
				return err
			}
			var nodes corev1.NodeList
			switch err := patiently(ctx, func() error { return r.Direct.List(ctx, &nodes) }); {
			case apierrors.IsForbidden(err):
				return r.warn(ctx, report, finding.Warn("OCA-7070", "Images are not pulled in advance on some nodes",
					"the operator is not allowed to read nodes", "ocadm init phase operator"))
			case err != nil:
				return fmt.Errorf("listing nodes: %w", err)
			}
			p := &puller{Run: r, report: report, demand: demandOf(all, nodes.Items), open: map[types.UID]*batch{}, seen: map[types.UID]bool{}}
			p.all = p.demand.batches()
			p.waiting = slices.Clone(p.all)
			err = errors.Join(p.clean(ctx), p.run(ctx))
			if list := refused(p.all, remedy); len(list) > 0 && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
				return list
			}
			if err != nil {
				return err
			}
			return p.conclude(ctx)
		},
	}
}

// Remedies for images that cannot be pulled.
const (
	remedyUpdate = "use another --version or --image-repository, or bring the images to the nodes: ocadm init phase depot --bundle FILE with a bundle of " +
		"that release; then ocadm cluster update again"
	remedyRollback = "bring the images to the nodes: ocadm init phase depot --bundle FILE with a bundle of that release, or choose another release: " +
		"ocadm cluster history"
)

// pullRendered and pullKept return the next release of an update and of a rollback.
func pullRendered(ctx context.Context, r *Run) (*release.Release, error) {
	_, view, err := preview(ctx, r)
	return view.Next, err
}

func pullKept(ctx context.Context, r *Run) (*release.Release, error) {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return nil, err
	}
	return r.target(ctx, cloud)
}

type puller struct {
	*Run
	report workflow.Reporter
	demand demand
	// all are the pods that pull; waiting are those not created yet, open those that run. seen are those that the API server has shown.
	all, waiting []*batch
	open         map[types.UID]*batch
	seen         map[types.UID]bool
	// full are the nodes that rejected a pod, with the reason.
	full map[string]string
}

// run creates pods, and follows them until there is nothing left to wait for.
func (p *puller) run(ctx context.Context) error {
	if len(p.all) == 0 {
		return nil
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		_ = p.clean(ctx) // otherwise the next operation does it
	}()
	following, stop := context.WithCancel(ctx)
	defer stop()
	shown := make(chan []client.Object)
	go kube.Follow(following, p.Pods, &corev1.Pod{}, shown, client.InNamespace(p.Operation.Namespace), client.MatchingLabels{labelPull: p.Operation.Name})
	look := time.NewTicker(pullLook)
	defer look.Stop()
	for {
		if err := p.fill(ctx); err != nil {
			return err
		}
		p.progress()
		if len(p.open)+len(p.waiting) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				for _, b := range p.all {
					b.settle(pullRefused, "the kubelet has not reported a result")
				}
			}
			return context.Cause(ctx)
		case objects := <-shown:
			p.look(ctx, objects)
		case <-look.C:
			if err := p.lose(ctx); err != nil {
				return err
			}
		}
	}
}

// fill creates as many pods as may pull concurrently.
func (p *puller) fill(ctx context.Context) error {
	busy := map[string]int{}
	for _, b := range p.open {
		busy[b.node]++
	}
	var rest []*batch
	for i, b := range p.waiting {
		if len(p.open) == pullPods {
			rest = append(rest, p.waiting[i:]...)
			break
		}
		if busy[b.node] == pullPodsOfNode {
			rest = append(rest, b)
			continue
		}
		o := b.pod(p.Operation, p.demand)
		if err := patiently(ctx, func() error { return p.Pods.Create(ctx, o, client.FieldOwner(v1alpha1.ManagerOperator)) }); err != nil {
			return cannotPull(err)
		}
		b.tries++
		busy[b.node]++
		p.open[o.UID] = b
	}
	p.waiting = rest
	return nil
}

// look evaluates what the kubelets report of the pods.
func (p *puller) look(ctx context.Context, objects []client.Object) {
	there := map[types.UID]bool{}
	for _, o := range objects {
		there[o.GetUID()], p.seen[o.GetUID()] = true, true
		pod, _ := kube.As[corev1.Pod](o)
		b := p.open[o.GetUID()]
		if b == nil || pod == nil {
			continue
		}
		rejected := b.judge(pod, time.Now())
		switch {
		case noRoom.MatchString(rejected):
			b.settle(pullFull, rejected)
		case rejected != "":
			p.again(b, rejected)
		}
		if b.over() || rejected != "" {
			delete(p.open, o.GetUID())
			_ = p.Pods.Delete(ctx, pod) // otherwise clean does it
		}
	}
	for uid, b := range p.open {
		if p.seen[uid] && !there[uid] {
			delete(p.open, uid)
			p.again(b, "its pod was deleted")
		}
	}
}

// again queues a batch for another pod, unless it was tried too often.
func (p *puller) again(b *batch, why string) {
	if b.tries < pullTries {
		p.waiting = append(p.waiting, b)
		return
	}
	b.settle(pullLeft, why)
	if p.full == nil {
		p.full = map[string]string{}
	}
	p.full[b.node] = why
}

// lose gives up on nodes that are no longer Ready, and on images that have failed for too long.
func (p *puller) lose(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := p.Direct.List(ctx, &nodes); err != nil {
		p.report.Waiting("the nodes", err.Error())
		return nil
	}
	ready := map[string]bool{}
	for i := range nodes.Items {
		n := status.NodeOf(&nodes.Items[i])
		if ready[n.Name] = n.Ready; !n.Ready && p.demand.missing[n.Name] != nil {
			p.demand.lost[n.Name] = n.Message
		}
	}
	gone := func(b *batch) bool {
		if !ready[b.node] {
			b.settle(pullLeft, "")
		}
		return b.over()
	}
	p.waiting = slices.DeleteFunc(p.waiting, gone)
	for uid, b := range p.open {
		b.tire(time.Now())
		if gone(b) {
			delete(p.open, uid)
		}
	}
	return nil
}

// progress reports the progress, and what it waits for.
func (p *puller) progress() {
	done, total := p.demand.present, p.demand.present
	var waits []string
	for _, b := range p.all {
		total += len(b.images)
		rest := b.open()
		done += len(b.images) - len(rest)
		for _, image := range rest {
			if a := b.answers[image]; a.state == pullFails {
				waits = append(waits, fmt.Sprintf("%s on node %s: %s", image, b.node, a.text))
			}
		}
	}
	if len(waits) == 0 {
		for _, b := range p.open {
			switch rest := b.open(); len(rest) {
			case 0:
			case 1:
				waits = append(waits, fmt.Sprintf("node %s is pulling %s", b.node, rest[0]))
			default:
				waits = append(waits, fmt.Sprintf("node %s is pulling %s and %d more", b.node, rest[0], len(rest)-1))
			}
		}
	}
	slices.Sort(waits)
	p.report.Progress(int64(done), int64(total), "images")
	if len(waits) > 0 {
		p.report.Waiting("the images", strings.Join(lists.Some(waits, waitsShown), "; "))
	}
}

// conclude reports what was done, and which nodes were left out.
func (p *puller) conclude(ctx context.Context) error {
	p.report.Changed("images: %d, nodes: %d; pulled or checked: %d, reported by the nodes: %d", p.demand.images, p.demand.nodes,
		count(p.all, pulled), p.demand.present)
	parts := lists.Map(slices.Sorted(maps.Keys(p.demand.lost)), func(name string) string { return fmt.Sprintf("node %s is not Ready: %s", name, p.demand.lost[name]) })
	parts = append(parts, lists.Map(slices.Sorted(maps.Keys(p.full)), func(name string) string { return fmt.Sprintf("node %s accepts no pod: %s", name, p.full[name]) })...)
	if len(parts) == 0 {
		return nil
	}
	return p.warn(ctx, p.report, finding.Warn("OCA-7070", "Images are not pulled in advance on some nodes", strings.Join(parts, "; "),
		"kubectl get nodes; these nodes pull the images when they are back"))
}

// warn adds a warning to the findings of the operation.
func (r *Run) warn(ctx context.Context, report workflow.Reporter, f finding.Finding) error {
	report.Info("%s %s", f.Code, f.Error())
	return r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Findings = slices.DeleteFunc(s.Findings, func(was v1alpha1.OperationFinding) bool { return was.Code == f.Code })
		s.Findings = append(s.Findings, Findings(finding.List{f})...)
	})
}

// clean removes the pods of this operation, and those of the cloud's earlier operations whose operator was killed.
func (p *puller) clean(ctx context.Context) error {
	return p.remove(ctx, &corev1.PodList{}, nil, client.HasLabels{labelPull}, client.MatchingLabels{v1alpha1.LabelOperationCloud: p.Operation.Spec.Cloud})
}

// cleanPull removes the pods of a killed operator.
func cleanPull(ctx context.Context, r *Run) error { return (&puller{Run: r}).clean(ctx) }

// remove deletes the objects of a kind that have labels. then, unless nil, is called after each.
func (r *Run) remove(ctx context.Context, all client.ObjectList, then func(client.Object) error, of ...client.ListOption) error {
	if err := r.Pods.List(ctx, all, append(of, client.InNamespace(r.Operation.Namespace))...); err != nil {
		return fmt.Errorf("listing what the operation created: %w", err)
	}
	var errs []error
	_ = meta.EachListItem(all, func(item runtime.Object) error {
		o, _ := item.(client.Object) // as each API object is
		if err := client.IgnoreNotFound(r.Pods.Delete(ctx, o)); err != nil {
			errs = append(errs, fmt.Errorf("deleting %s: %w", o.GetName(), err))
		} else if then != nil {
			errs = append(errs, then(o))
		}
		return nil
	})
	return errors.Join(errs...)
}

// allowPods is the remedy if the API server refuses a pod.
const allowPods = "allow the operator to create pods in the namespace of the cloud: kubectl get resourcequota; ocadm init phase operator"

// cannotPull returns the error that nothing is known about the images.
func cannotPull(err error) error {
	if apierrors.IsForbidden(err) {
		return finding.Errorf("OCA-7071", "The images of the release cannot be pulled in advance", allowPods, "%w", err)
	}
	return fmt.Errorf("creating a pod that pulls images: %w", err)
}
