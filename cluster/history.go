// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/release"
)

// Release is an entry in the history of a cloud.
type Release struct {
	release.Summary
	// InForce marks the release that the cloud is kept at, Good the last one that every component served.
	InForce bool `json:"inForce"`
	Good    bool `json:"good"`
}

// Views is implemented by the REST API client: it provides results that other clients compute from objects which the user may not read.
type Views interface {
	Releases(ctx context.Context, cloud client.ObjectKey) ([]Release, error)
	Backups(ctx context.Context, cloud client.ObjectKey) (backup.History, error)
	OperationLog(ctx context.Context, operation client.ObjectKey) (string, error)
	AddMachines(ctx context.Context, all []Machine, report func(name, action string)) error
}

// History lists the releases of a cloud, latest first.
func History(ctx context.Context, c client.Client, key client.ObjectKey) ([]Release, error) {
	if v, ok := c.(Views); ok {
		return v.Releases(ctx, key)
	}
	u, err := get(ctx, c, key)
	if err != nil {
		return nil, err
	}
	status, err := statusOf(u.Object)
	if err != nil {
		return nil, err
	}
	return Releases(ctx, c, key, status)
}

// Releases is History for a caller that has the status of the cloud. It reads only Secrets.
func Releases(ctx context.Context, c client.Client, key client.ObjectKey, status Status) ([]Release, error) {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.HasLabels{v1alpha1.LabelRelease}); err != nil {
		return nil, fmt.Errorf("listing the releases of cloud %s: %w", key, err)
	}
	all, damaged := release.Summaries(list.Items, key.Name)
	out := []Release{}
	for _, s := range append(all, damaged...) {
		out = append(out, Release{Summary: s, InForce: s.Revision == status.Release.Revision, Good: s.Revision == status.Release.Good})
	}
	slices.SortFunc(out, func(a, b Release) int { return b.Revision - a.Revision })
	return out, nil
}

// Backups returns the last backup attempts of a cloud, latest first.
func Backups(ctx context.Context, c client.Client, key client.ObjectKey) (backup.History, error) {
	if v, ok := c.(Views); ok {
		return v.Backups(ctx, key)
	}
	return archive.History(ctx, c, key.Namespace)
}

// Released returns the objects of all stored releases of all clouds: a rollback restores them.
func Released(ctx context.Context, c client.Client) ([]map[string]any, error) {
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.HasLabels{v1alpha1.LabelRelease}); err != nil {
		return nil, fmt.Errorf("listing the releases of clouds: %w", err)
	}
	var out []map[string]any
	for i := range list.Items {
		r, err := release.Decode(&list.Items[i])
		if err != nil {
			return nil, finding.Errorf("OCA-2335", "A release of a cloud cannot be read, so the images that it needs are unknown",
				fmt.Sprintf("use the ocadm that wrote it, if that is newer; if ocadm cluster history shows another release in force: kubectl -n %s delete secret %s",
					list.Items[i].Namespace, list.Items[i].Name), "%w", err)
		}
		out = append(out, lists.Map(r.Objects, func(o release.Object) map[string]any { return o.Content })...)
	}
	return out, nil
}

// Proposal is a change of a cloud to be previewed.
type Proposal struct {
	Update Update
	// File is a manifest of the cloud; if it is not nil, Update is ignored.
	File []byte
}

// Diff compares releases: with no revision, the one in force with the proposal; with one, that one with the one in force; with two, both.
func Diff(ctx context.Context, c client.Client, key client.ObjectKey, p Proposal, revisions ...int) (release.Diff, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return release.Diff{}, err
	}
	if len(revisions) == 0 {
		return p.diff(ctx, c, u)
	}
	status, err := statusOf(u.Object)
	if err != nil {
		return release.Diff{}, err
	}
	var both []*release.Release
	for _, n := range append(revisions, status.Release.Revision)[:2] {
		r, err := operation.ReadRelease(ctx, c, key, n)
		if err != nil {
			return release.Diff{}, err
		}
		both = append(both, r)
	}
	return release.Compare(both[0], both[1], func(text string) string { return text }), nil
}

// diff makes a trial change, and asks the reconciler of this program for the result.
func (p Proposal) diff(ctx context.Context, c client.Client, live *unstructured.Unstructured) (release.Diff, error) {
	var patch []byte
	var err error
	owner := kube.FieldManager
	if p.File != nil {
		owner = "kubectl-client-side-apply"
		patch, err = applied(p.File, live)
	} else {
		change, _ := p.Update.patch(live, true)
		patch, err = json.Marshal(change)
	}
	if err != nil {
		return release.Diff{}, err
	}
	trial := live.DeepCopy()
	if err := c.Patch(ctx, trial, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner), client.DryRunAll); err != nil {
		return release.Diff{}, fmt.Errorf("changing cloud %s in a dry run: %w", client.ObjectKeyFromObject(live), err)
	}
	cr, err := typed(trial)
	if err != nil {
		return release.Diff{}, err
	}
	image, err := RunningOperatorImage(ctx, c)
	if err != nil {
		return release.Diff{}, err
	}
	view, err := reconcile.PreviewOf(ctx, c, c, reconcile.Options{Image: image}, cr)
	if err != nil {
		return release.Diff{}, err
	}
	return release.Compare(view.Now, view.Next, view.Redact), nil
}

// RunningOperatorImage returns what the operator considers its own image; "" without an operator.
func RunningOperatorImage(ctx context.Context, c client.Reader) (string, error) {
	d := &appsv1.Deployment{}
	if _, err := kube.Find(ctx, c, client.ObjectKey{Namespace: DefaultNamespace, Name: OperatorName}, d, "the operator's Deployment"); err != nil {
		return "", err
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, e := range container.Env {
			if e.Name == OperatorImageVariable {
				return e.Value, nil
			}
		}
	}
	return "", nil
}

// applied returns what "kubectl apply -f" would change.
func applied(file []byte, live *unstructured.Unstructured) ([]byte, error) {
	docs, err := kube.Decode(file)
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		if doc.GetKind() != v1alpha1.Kind || doc.GetName() != live.GetName() {
			continue
		}
		unstructured.RemoveNestedField(doc.Object, "status")
		for _, field := range []string{"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(doc.Object, "metadata", field)
		}
		want, err := json.Marshal(doc.Object)
		if err != nil {
			return nil, err
		}
		is, err := json.Marshal(live.Object)
		if err != nil {
			return nil, err
		}
		return jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(live.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"]), want, is)
	}
	return nil, finding.New("OCA-7021", "The file contains no cloud named "+live.GetName(), "it has "+strconv.Itoa(len(docs))+" other objects",
		"ocadm cluster diff -f FILE --name NAME")
}
