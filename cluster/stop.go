// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Stop stops everything in a cloud that may write to its databases, and keeps the operator from starting it. Node agents that use databases only
// through services keep running, and so do virtual machines. A cloud that is already stopped stays so, with its record of who stopped it. by is the
// operation that stops it, "" for a user.
func Stop(ctx context.Context, c client.WithWatch, key client.ObjectKey, by string, report func(what, why string)) error {
	if err := pause(ctx, c, key, by, func(why string) { report("operator", why) }); err != nil {
		return fmt.Errorf("pausing cloud %s: %w", key, err)
	}
	var refused error
	err := wait.Until(ctx, "the end of the services", stopInterval, func(ctx context.Context) (bool, string, error) {
		done, why, err := stopped(ctx, c, key)
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // waiting does not change that
			refused, done, err = err, true, nil
		}
		return done, why, err
	}, func(why string) { report("services", why) })
	return halfStopped(key, by, cmp.Or(refused, err))
}

// halfStopped adds to the error of a user's stop what it leaves. An operation starts the services again.
func halfStopped(key client.ObjectKey, by string, err error) error {
	const next = "to stop the rest: ocadm cluster stop; to start all: ocadm cluster start"
	what := fmt.Sprintf("Cloud %s is paused, and may be half stopped", key)
	switch {
	case err == nil || by != "":
		return err
	case errors.Is(err, context.Canceled): // the exit status is that of an interruption
		return fmt.Errorf("%s; %s: %w", what, next, err)
	}
	return finding.Errorf("OCA-7022", what, next, "%w", err)
}

// halt is how a cloud was stopped: whether it is, whether it was paused before, and by whom. A start ends it.
type halt [3]string

func haltOf(cloud client.Object) halt {
	a := cloud.GetAnnotations()
	return halt{a[v1alpha1.AnnotationPaused], a[v1alpha1.AnnotationPausedBefore], a[v1alpha1.AnnotationStoppedBy]}
}

// halting is what a restore and a move have in common: they stop a cloud, and work on its databases meanwhile.
type halting struct {
	client client.WithWatch
	key    client.ObjectKey
	// from is the database server on which the databases were when the user confirmed.
	from v1alpha1.DatabaseServer
	// operation has a name once it runs.
	operation *Operation
	// halt is how the cloud was stopped.
	halt halt
}

func (x *halting) stop(ctx context.Context, r workflow.Reporter) error {
	if err := Stop(ctx, x.client, x.key, x.operation.Name, r.Waiting); err != nil {
		return err
	}
	cloud, err := get(ctx, x.client, x.key)
	if err == nil {
		x.halt = haltOf(cloud)
	}
	return err
}

// stillStopped returns a finding if the cloud is no longer stopped as before.
func (x *halting) stillStopped(ctx context.Context) error {
	cloud, err := get(ctx, x.client, x.key)
	if err != nil || x.halt == haltOf(cloud) {
		return err
	}
	return finding.New(codeStopped, fmt.Sprintf("Cloud %s has been started", x.key), "its services may have written to the databases since they were stopped",
		"run the command again, and leave the cloud stopped until it ends")
}

// codeStopped is the code of findings about a cloud that a restore or a move needs stopped.
const codeStopped = "OCA-7429"

// StartAsked starts a cloud at the request of a user. It refuses while a restore or a move works on the databases.
func StartAsked(ctx context.Context, c client.WithWatch, key client.ObjectKey) error {
	list, err := Operations(ctx, c, key.Namespace, key.Name)
	if err != nil && !cannotList(err) {
		return err
	}
	for _, o := range list {
		works := o.Spec.Action == v1alpha1.ActionRestore || o.Spec.Action == v1alpha1.ActionMoveDatabase
		if held := o.Annotations[v1alpha1.AnnotationControl] == v1alpha1.OperationPause; works && !held && o.Status.Phase.Active() {
			return finding.New(codeStopped, fmt.Sprintf("Cloud %s is stopped for operation %s", key, o.Name), "the operation replaces or copies its databases",
				"ocadm operation show "+o.Name+"; to end it: ocadm operation cancel "+o.Name+". If its program is gone, the operator ends it within two minutes")
		}
	}
	return Start(ctx, c, key)
}

// cannotList reports whether an account may not list operations, or the cluster does not define them.
func cannotList(err error) bool {
	return apierrors.IsForbidden(err) || meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

const (
	stopInterval = time.Second
	// followTimeout is how long an operator may take to follow a start.
	followTimeout = time.Minute
)

// pause keeps the operator from starting anything, and returns once the operator has seen that. It records the cloud's earlier pause.
func pause(ctx context.Context, c client.WithWatch, key client.ObjectKey, by string, report func(why string)) error {
	u, err := get(ctx, c, key)
	if err != nil {
		return err
	}
	waited := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	before := u.GetAnnotations()[v1alpha1.AnnotationPaused]
	_, noted := u.GetAnnotations()[v1alpha1.AnnotationPausedBefore]
	if before == "true" && !noted {
		stopped, err := operation.Stopped(ctx, c, key) // stopped by an ocadm that recorded nothing
		if err != nil {
			return err
		}
		if stopped {
			before, by = "", ""
		}
	}
	if u.GetAnnotations()[v1alpha1.AnnotationPaused] != "true" {
		// The status may be that of an earlier pause whose end the operator is still processing: it creates pods then, and reports so afterwards. An
		// operator that cannot reconcile the cloud at all creates none, and never reports.
		following, cancel := context.WithTimeout(ctx, followTimeout)
		defer cancel()
		_ = kube.WaitFor(following, c, waited, func(o client.Object) (bool, string) {
			return !isPaused(o), "the operator has not processed the last start yet"
		}, report)
		noted = false
	}
	if !noted {
		patch := map[string]any{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: before, v1alpha1.AnnotationStoppedBy: by}
		if by == "" {
			patch[v1alpha1.AnnotationStoppedBy] = nil
		}
		if err := merge(ctx, c, u, map[string]any{"metadata": map[string]any{"annotations": patch}}); err != nil {
			return err
		}
	}
	return halfStopped(key, by, kube.WaitFor(ctx, c, waited, func(o client.Object) (bool, string) {
		return isPaused(o), "the operator has not paused yet"
	}, report))
}

// stopped stops what may write to the databases, and reports whether nothing of it is left, else why not. It lists everything again each time,
// because the operator may still create what it had started when it was paused.
func stopped(ctx context.Context, c client.Client, key client.ObjectKey) (done bool, why string, err error) {
	deployments, err := operation.Services(ctx, c, key)
	if err != nil {
		return false, "", err
	}
	agents, err := operation.Writers(ctx, c, key)
	if err != nil {
		return false, "", err
	}
	var selectors []*metav1.LabelSelector
	for i := range deployments {
		d := &deployments[i]
		selectors = append(selectors, d.Spec.Selector)
		if n := ptr.Deref(d.Spec.Replicas, 1); n > 0 {
			patch := annotation(operation.AnnotationStopped, strconv.Itoa(int(n)))
			patch["spec"] = map[string]any{"replicas": 0}
			if err := merge(ctx, c, d, patch); err != nil {
				return false, "", fmt.Errorf("stopping Deployment %s: %w", d.Name, err)
			}
			why = d.Name + " is stopping"
		} else if d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > 0 {
			why = d.Name + " has " + lists.Counted(d.Status.Replicas, "pod")
		}
	}
	for i := range agents {
		d := &agents[i]
		selectors = append(selectors, d.Spec.Selector)
		if d.Spec.Template.Spec.NodeSelector[v1alpha1.LabelNoNode] == "" {
			patch := annotation(operation.AnnotationStopped, "true")
			patch["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{v1alpha1.LabelNoNode: "true"}}}}
			if err := merge(ctx, c, d, patch); err != nil {
				return false, "", fmt.Errorf("stopping DaemonSet %s: %w", d.Name, err)
			}
			why = d.Name + " is stopping"
		} else if s := d.Status; s.ObservedGeneration < d.Generation || s.CurrentNumberScheduled+s.NumberMisscheduled > 0 {
			why = d.Name + " has " + lists.Counted(s.CurrentNumberScheduled+s.NumberMisscheduled, "pod")
		}
	}
	if why != "" {
		return false, why, nil
	}
	why, err = ending(ctx, c, key.Namespace, selectors)
	return err == nil && why == "", why, err
}

// ending names a pod of some workloads that still runs. The workload itself no longer counts a deleted pod.
func ending(ctx context.Context, c client.Client, namespace string, of []*metav1.LabelSelector) (string, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("listing pods: %w", err)
	}
	for _, s := range of {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return "", fmt.Errorf("reading a selector of pods: %w", err)
		}
		for _, p := range pods.Items {
			if !kube.PodEnded(&p) && p.Spec.NodeName != "" && selector.Matches(labels.Set(p.Labels)) {
				return fmt.Sprintf("pod %s is still terminating on node %s", p.Name, p.Spec.NodeName), nil
			}
		}
	}
	return "", nil
}

// endPause ends the earlier pause of a stopped cloud: a paused component would keep using the old database server or passwords.
func endPause(ctx context.Context, c client.Client, key client.ObjectKey, changed func(format string, args ...any)) error {
	u, err := get(ctx, c, key)
	if err != nil {
		return err
	}
	before := u.GetAnnotations()[v1alpha1.AnnotationPausedBefore]
	if before == "" {
		return nil
	}
	if err := merge(ctx, c, u, annotation(v1alpha1.AnnotationPausedBefore, "")); err != nil {
		return fmt.Errorf("ending the pause of cloud %s: %w", key, err)
	}
	changed("the pause (%s) has ended: every component must follow", before)
	return nil
}

func (x *halting) startAgain(ctx context.Context, r workflow.Reporter) error {
	_, err := startAgain(ctx, x.client, x.key, x.operation.Name, r)
	return err
}

// startAgain starts the services that an operation stopped. A cloud that was already stopped before stays so.
func startAgain(ctx context.Context, c client.Client, key client.ObjectKey, by string, r workflow.Reporter) (started bool, err error) {
	started, err = operation.StartAgain(ctx, c, key, kube.FieldManager, by)
	if err == nil && !started {
		r.Info("the cloud was not stopped by this operation, and does not change")
	}
	return started, err
}

// restoredHold is how long a cloud must stay ready after a restore of etcd stopped it. Until then, pods have the status of the snapshot: a kubelet
// that lost the API server lists its pods again within a minute (client-go waits 30 s between attempts, and up to twice that with jitter).
const restoredHold = time.Minute

// Hold returns how long a stopped cloud must stay ready after its start to count as running, see WaitHeld.
func Hold(ctx context.Context, c client.Client, key client.ObjectKey) (time.Duration, error) {
	u, err := get(ctx, c, key)
	if err != nil || u.GetAnnotations()[v1alpha1.AnnotationStoppedBy] != v1alpha1.StoppedByRestore {
		return 0, err
	}
	return restoredHold, nil
}

// Start lets the operator start the services that Stop stopped.
func Start(ctx context.Context, c client.WithWatch, key client.ObjectKey) error {
	return operation.Start(ctx, c, key, kube.FieldManager)
}

func annotation(name string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: value}}}
}

// isPaused reports whether the operator has seen that the cloud is paused.
func isPaused(o client.Object) bool {
	cloud, there := kube.As[v1alpha1.OnecloudCluster](o)
	if !there {
		return false
	}
	p := meta.FindStatusCondition(cloud.Status.Conditions, v1alpha1.ConditionProgressing)
	return p != nil && p.Reason == status.ReasonPaused
}
