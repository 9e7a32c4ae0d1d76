// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/status"
)

// wanted returns the operation that a user requests by changing the cloud, or nil: with another spec.version, with the annotation that moves a release to
// what the operator renders now, or with the annotation that names an action. Its name is derived from the request, so that it is created only once. It is
// pure.
func wanted(cloud *v1alpha1.OnecloudCluster, all []*v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	in := cloud.Status.Release
	if !cloud.Status.HasRun() || in.Revision == 0 || in.Version == "" || cloud.DeletionTimestamp != nil {
		return nil // it has never run: there is nothing to move from
	}
	o := &v1alpha1.OnecloudOperation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: cloud.Name, Requester: byEdit}}
	o.Namespace, o.Labels = cloud.Namespace, map[string]string{v1alpha1.LabelOperationCloud: cloud.Name}
	unfinished := slices.ContainsFunc(all, func(o *v1alpha1.OnecloudOperation) bool {
		return !o.Status.Phase.Final() && moves(o)
	})
	action, as := actionAsked(cloud)
	switch {
	case action != "":
		o.Spec.Action, o.Name = action, as
		if action == v1alpha1.ActionUpdate && cloud.Spec.Version != "" && cloud.Spec.Version != in.Version {
			o.Spec.Update = &v1alpha1.UpdateParameters{Version: cloud.Spec.Version}
		}
	case unfinished || cloud.Annotations[v1alpha1.AnnotationAtOnce] == strconv.Itoa(in.Revision):
		return nil
	case cloud.Spec.Version != "" && cloud.Spec.Version != in.Version:
		o.Spec.Action, o.Spec.Update = v1alpha1.ActionUpdate, &v1alpha1.UpdateParameters{Version: cloud.Spec.Version}
		o.Name = ofEdit(cloud)
	case cloud.Annotations[v1alpha1.AnnotationUpdateFrom] == strconv.Itoa(in.Revision):
		o.Spec.Action = v1alpha1.ActionUpdate
		o.Name = name(cloud.Name, o.Spec.Action, strconv.Itoa(in.Revision))
	default:
		return nil
	}
	if action == "" && slices.ContainsFunc(all, func(other *v1alpha1.OnecloudOperation) bool { return other.Name == o.Name }) {
		return nil
	}
	return o
}

// ofEdit returns the name of the update that the current spec.version requests. Another edit is another request, even for the same version.
func ofEdit(cloud *v1alpha1.OnecloudCluster) string {
	return name(cloud.Name, v1alpha1.ActionUpdate, strconv.Itoa(cloud.Status.Release.Revision), strconv.FormatInt(cloud.Generation, 10), cloud.Spec.Version)
}

// unmoved returns the update that the current spec.version requested and that ended without success, or nil. It is pure.
func unmoved(cloud *v1alpha1.OnecloudCluster, all []*v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	if in := cloud.Status.Release.Version; cloud.DeletionTimestamp != nil || in == "" || cloud.Spec.Version == in {
		return nil
	}
	i := slices.IndexFunc(all, func(o *v1alpha1.OnecloudOperation) bool {
		return o.Name == ofEdit(cloud) && o.Status.Phase.Final() && o.Status.Phase != v1alpha1.OperationSucceeded
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// byEdit is the requester of an operation that an edit of the cloud requests.
const byEdit = "the resource of the cloud"

// withdrawn returns an update that an edit requested and that has changed nothing yet, if spec.version has been edited again since; otherwise nil. It is
// pure.
func withdrawn(cloud *v1alpha1.OnecloudCluster, all []*v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	for _, o := range all {
		if !touched(o) && !o.Status.Phase.Final() && o.Status.Phase != v1alpha1.OperationReverting && !cancelled(o) && o.Spec.Requester == byEdit &&
			o.Spec.Update != nil && o.Spec.Update.Version != cloud.Spec.Version {
			return o
		}
	}
	return nil
}

// An edit whose update has failed twice waits that long: refusedAfter if a check refused it, retryAfter if it changed the cloud. The time doubles with each
// failure, up to retryAtMost.
const refusedAfter, retryAfter, retryAtMost = time.Minute, 10 * time.Minute, 24 * time.Hour

// repeated returns how often an update that edits requested has failed in succession, and when it may run again. A program that applies a manifest again
// and again must not stop the services each time. all is sorted by InTurn. It is pure.
func repeated(o *v1alpha1.OnecloudOperation, all []*v1alpha1.OnecloudOperation) (failures int, again time.Time) {
	if o.Spec.Requester != byEdit || o.Spec.Update == nil {
		return 0, again
	}
	for _, other := range all {
		switch phase := other.Status.Phase; {
		case other.Spec.Action != o.Spec.Action || other.Spec.Update == nil || other.Spec.Update.Version != o.Spec.Update.Version:
		case phase == v1alpha1.OperationSucceeded:
			failures = 0
		case other.Spec.Requester == byEdit && (phase == v1alpha1.OperationFailed || phase == v1alpha1.OperationReverted):
			wait := refusedAfter
			if touched(other) {
				wait = retryAfter
			}
			failures++
			again = other.Status.End.Add(min(retryAtMost, wait<<min(11, max(0, failures-2))))
		}
	}
	if failures < 2 {
		again = time.Time{}
	}
	return failures, again
}

// touched reports whether an update has changed the cloud.
func touched(o *v1alpha1.OnecloudOperation) bool {
	return o.Status.Rollout != nil && o.Status.Rollout.Undo != ""
}

// putBack resets spec.version to that of the current release, after an update that did not move the cloud.
func (c *Controller) putBack(ctx context.Context, cloud *v1alpha1.OnecloudCluster, o *v1alpha1.OnecloudOperation) error {
	asked := cloud.Spec.Version
	err := kube.Merge(ctx, c.Client, cloud.DeepCopy(), v1alpha1.ManagerOperator, map[string]any{
		"metadata": map[string]any{"resourceVersion": cloud.ResourceVersion}, "spec": map[string]any{"version": cloud.Status.Release.Version},
	})
	if apierrors.IsConflict(err) {
		return nil // the next reconcile has the newer one
	}
	if err != nil {
		return fmt.Errorf("resetting spec.version: %w", err)
	}
	c.Events.Eventf(cloud, o, corev1.EventTypeWarning, "UpdateRefused", o.Spec.Action, "spec.version was reset to %s from %s: operation %s has %s",
		cloud.Status.Release.Version, asked, o.Name, strings.ToLower(string(o.Status.Phase)))
	return nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// name joins parts to the name of an operation, of at most 60 valid characters.
func name(parts ...string) string {
	full := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(strings.Join(parts, "-")), "-"), "-")
	return strings.Trim(full[:min(len(full), maxName)], "-")
}

const maxName = 60

// trigger creates the operation that a user requests, and removes the annotation that requests it. It first adds the name of the operation to the
// annotation: the cloud changes meanwhile, and the same request, seen in another version of the cloud, would be another operation. It returns when to call
// it again, zero for the next change.
func (c *Controller) trigger(ctx context.Context, cloud *v1alpha1.OnecloudCluster, all []*v1alpha1.OnecloudOperation) (time.Duration, error) {
	if answer := created(cloud); answer != "" {
		return 0, c.annotate(ctx, cloud, answer)
	}
	if refused := unmoved(cloud, all); refused != nil && !c.AtOnce {
		return 0, c.putBack(ctx, cloud, refused)
	}
	if o := withdrawn(cloud, all); o != nil {
		c.Events.Eventf(cloud, o, corev1.EventTypeNormal, "UpdateWithdrawn", o.Spec.Action, "operation %s is cancelled: spec.version is %s now", o.Name, cloud.Spec.Version)
		return 0, SetControl(ctx, c.Client, o, v1alpha1.OperationCancel)
	}
	action, as := actionAsked(cloud)
	if action != "" && !strings.HasPrefix(as, name(cloud.Name, action)) { // any other word is a user's, who may repeat it
		return 0, c.annotate(ctx, cloud, action+" "+name(cloud.Name, action, cloud.ResourceVersion))
	}
	o := wanted(cloud, all)
	if o == nil || c.AtOnce && action == "" {
		return 0, nil
	}
	failures, again := repeated(o, all)
	if left := time.Until(again); left > 0 && left <= retryAtMost { // otherwise a clock was ahead when the last one ended
		text := fmt.Sprintf("the update to %s has failed %d times; the next attempt is at %s; to try now: ocadm cluster update --version %s",
			o.Spec.Update.Version, failures, again.UTC().Format(time.RFC3339), o.Spec.Update.Version)
		c.Events.Eventf(cloud, nil, corev1.EventTypeWarning, "UpdateDelayed", o.Spec.Action, "%s", finding.Here(text, cloud.Namespace, cloud.Name))
		return left, nil
	}
	err := c.Client.Create(ctx, o, client.FieldOwner(v1alpha1.ManagerOperator))
	switch {
	case apierrors.IsInvalid(err): // no such action
		c.Log.Warn("the annotation of a cloud requests an invalid operation", "cluster", cloud.Name, "namespace", cloud.Namespace, "error", err)
		c.Events.Eventf(cloud, nil, corev1.EventTypeWarning, "OperationRefused", "Reconcile", "%s",
			status.Note(fmt.Sprintf("annotation %s: %s: %s", v1alpha1.AnnotationOperation, action, err)))
	case err != nil && !apierrors.IsAlreadyExists(err):
		return 0, fmt.Errorf("creating operation %s: %w", o.Name, err)
	}
	if action == "" {
		return 0, nil
	}
	return 0, c.annotate(ctx, cloud, nil)
}

// annotate replaces the annotation with which a user requests something, or removes it (nil).
func (c *Controller) annotate(ctx context.Context, cloud *v1alpha1.OnecloudCluster, value any) error {
	err := kube.Merge(ctx, c.Client, cloud.DeepCopy(), v1alpha1.ManagerOperator, map[string]any{"metadata": map[string]any{
		"resourceVersion": cloud.ResourceVersion, "annotations": map[string]any{v1alpha1.AnnotationOperation: value},
	}})
	if apierrors.IsConflict(err) {
		return nil // the next reconcile has the newer one
	}
	return err
}

// Values of the annotation that are not actions: a client that creates a cloud writes RequestCreating, and gets one of these when the creation has ended.
const createFinished, createFailed = "create-finished", "create-failed"

// actionAsked returns the action that the annotation of a cloud names, or "", and the name of its operation, "" before the operator has written it.
func actionAsked(cloud *v1alpha1.OnecloudCluster) (action, as string) {
	switch word := cloud.Annotations[v1alpha1.AnnotationOperation]; word {
	case v1alpha1.RequestCreating, createFinished, createFailed:
		return "", ""
	default:
		action, as, _ = strings.Cut(word, " ")
		return action, as
	}
}

// created returns the answer to a client that waits for a cloud, or "" while the cloud is being created. It is pure.
func created(cloud *v1alpha1.OnecloudCluster) string {
	if cloud.Annotations[v1alpha1.AnnotationOperation] != v1alpha1.RequestCreating || cloud.Status.ObservedGeneration != cloud.Generation {
		return ""
	}
	return map[v1alpha1.Phase]string{v1alpha1.PhaseRunning: createFinished, v1alpha1.PhaseFailed: createFailed}[cloud.Status.Phase]
}
