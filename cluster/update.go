// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Update is a change of a cloud. Empty fields change nothing.
type Update struct {
	Key                       client.ObjectKey
	Version                   string
	ImageRepository           string
	Profile                   string
	Edition                   string
	DisableResourceManagement *bool
	// OperatorVersion is the tag of the operator's image; ImageRepository moves it too.
	OperatorVersion string
	// OperatorImage is the complete image of the operator; it overrides OperatorVersion and ImageRepository.
	OperatorImage string
	// OperatorOnly leaves the cloud as it is.
	OperatorOnly bool
	// Manifests returns those of the operator for an image. A program of the wanted version has the matching CRD and permissions, and applies them.
	// If nil, only the image is set.
	Manifests func(image string) ([]*unstructured.Unstructured, error)
	// Bring makes an image available to the nodes before the operator uses it; nil if a registry has it.
	Bring func(image string) error
	// Operation is created to change the cloud, instead of changing it directly. A cloud that has never run is changed directly. If nil, every cloud
	// is, and all components move together.
	Operation *Operation
	// Report receives what the update waits for, and why.
	Report func(what, why string)
}

// Updated lists what an update changed, one line each.
type Updated struct {
	Changes []string `json:"changes"`
	// Operation is the name of the operation that changes the cloud, "" if nothing had to change or it was changed directly.
	Operation string `json:"operation,omitempty"`
}

// Apply updates the operator first, waits until only the new one runs, and then changes the cloud, because an old operator must never see a new
// version. It does not wait for the cloud; Wait does.
func (u Update) Apply(ctx context.Context, c client.WithWatch) (Updated, error) {
	var done Updated
	var live *unstructured.Unstructured
	if !u.OperatorOnly { // first, so that the operator is not updated for a cloud that does not exist
		var err error
		if live, err = get(ctx, c, u.Key); err != nil && (u.needsCloud() || !apierrors.IsNotFound(err)) {
			return done, err
		}
	}
	changed, err := u.operator(ctx, c)
	done.Changes = append(done.Changes, changed...)
	if err != nil || live == nil {
		return done, err
	}
	cr, err := typed(live)
	if err != nil {
		return done, err
	}
	patch, lines := u.patch(live, len(changed) > 0)
	if len(lines) == 0 {
		if r := cr.Status.Rollout; r != nil && u.Operation != nil { // it has changed the spec, but may still revert
			done.Operation = r.Operation
		}
		return done, nil
	}
	if u.Operation != nil && cr.Status.Release.Version != "" && cr.Status.HasRun() {
		p := v1alpha1.UpdateParameters{Version: u.Version, ImageRepository: u.ImageRepository, Edition: u.Edition,
			DisableResourceManagement: u.DisableResourceManagement, Profile: u.Profile}
		if given := u.Operation.Spec.Update; given != nil {
			p.AllowDowngrade, p.NoBackup = given.AllowDowngrade, given.NoBackup
		}
		u.Operation.Namespace, u.Operation.Spec.Update = u.Key.Namespace, &p
		if _, err := OperateOnce(ctx, c, u.Operation); err != nil {
			return done, err
		}
		done.Changes, done.Operation = append(done.Changes, lines...), u.Operation.Name
		return done, nil
	}
	if u.Operation == nil {
		if err := unstructured.SetNestedField(patch, strconv.Itoa(cr.Status.Release.Revision), "metadata", "annotations", v1alpha1.AnnotationAtOnce); err != nil {
			return done, err
		}
	}
	if err := merge(ctx, c, live, patch); err != nil {
		return done, fmt.Errorf("updating cloud %s: %w", u.Key, err)
	}
	done.Changes = append(done.Changes, lines...)
	return done, nil
}

// needsCloud reports whether the update changes more than the operator and so needs a cloud.
func (u Update) needsCloud() bool {
	return u.Version != "" || u.ImageRepository != "" || u.Profile != "" || u.Edition != "" || u.DisableResourceManagement != nil || u.OperatorVersion == "" && u.OperatorImage == ""
}

func (u Update) operator(ctx context.Context, c client.WithWatch) ([]string, error) {
	if u.OperatorVersion == "" && u.ImageRepository == "" && u.OperatorImage == "" {
		return nil, nil
	}
	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: DefaultNamespace, Name: OperatorName}
	if err := c.Get(ctx, key, d); apierrors.IsNotFound(err) {
		return nil, finding.Errorf("OCA-7008", "Cannot update the operator", finding.InstallOperator, "reading Deployment %s: %w", key, err)
	} else if err != nil {
		return nil, fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return nil, fmt.Errorf("updating the operator: Deployment %s has no container", key)
	}
	was := d.Spec.Template.Spec.Containers[0]
	image := cmp.Or(u.OperatorImage, OperatorImage(was.Image, u.ImageRepository, u.OperatorVersion))
	if err := OfHelm(d, "image="+image); err != nil {
		if u.Manifests = nil; image != was.Image {
			return nil, err
		}
	}
	changes, err := u.setOperator(ctx, c, d, image)
	if err != nil {
		return nil, err
	}
	err = kube.WaitStarted(ctx, c, d, kube.StartLimit, func(why string) { u.Report("operator", why) })
	return changes, notStarted(err, key.Namespace, was.Image, image)
}

// notStarted returns a finding if the new image of the operator did not start in time. If the image is this program's, the remedy is how to provide it.
func notStarted(err error, namespace, was, image string) error {
	missing := lists.Filter(finding.Of(err), func(f finding.Finding) bool { return f.Code == "OCA-4175" })
	if len(missing) == 0 && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	remedy := fmt.Sprintf("kubectl -n %s describe pods -l app=%s", namespace, OperatorName)
	if len(missing) > 0 && images.Split(image).Tag == version.Version {
		remedy = missing[0].Remedy
	}
	if was != image { // its registry may have changed, too
		remedy += "; to go back: ocadm cluster update --operator-only --operator-image " + was
	}
	return finding.New("OCA-7001", "The operator did not become ready in time; the cloud was not changed", wait.Why(err), remedy).Wrap(err)
}

func (u Update) setOperator(ctx context.Context, c client.WithWatch, d *appsv1.Deployment, image string) ([]string, error) {
	if u.Bring != nil {
		if err := u.Bring(image); err != nil {
			return nil, err
		}
	}
	if u.Manifests != nil {
		objs, err := u.Manifests(image)
		if err != nil {
			return nil, err
		}
		set, err := kube.Apply(ctx, c, kube.FieldManager, objs...)
		return lists.Map(set.Changed(), kube.Change.String), err
	}
	first := d.Spec.Template.Spec.Containers[0]
	if first.Image == image {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": first.Name, "image": image, "imagePullPolicy": images.PullPolicy(image),
			"env": []any{map[string]any{"name": OperatorImageVariable, "value": image}}}},
	}}}})
	if err != nil {
		return nil, fmt.Errorf("updating the operator: %w", err)
	}
	if err := c.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(kube.FieldManager)); err != nil {
		return nil, fmt.Errorf("updating the operator: %w", err)
	}
	return []string{fmt.Sprintf("operator: %s → %s", first.Image, image)}, nil
}

// OperatorImage changes the repository or tag of an image, or both. The digest of the old tag is dropped. It is pure.
func OperatorImage(image, repository, tag string) string {
	r := images.Split(image)
	if tag != "" && tag != r.Tag {
		r.Tag, r.Digest = tag, ""
	}
	return images.Rewrite(r.String(), repository)
}

// autoupdateAnnotation is left behind by the autoupdate service.
const autoupdateAnnotation = "autoupdate.onecloud.yunion.io/current-version"

// patch returns the merge patch for a cloud, and a line for each change. newOperator is true if the operator was just replaced and may not have
// reported yet whether it has changes. It is pure.
func (u Update) patch(live *unstructured.Unstructured, newOperator bool) (map[string]any, []string) {
	spec, annotations := map[string]any{}, map[string]any{}
	var lines []string
	set := func(field, want string) {
		got, _, _ := unstructured.NestedString(live.Object, "spec", field)
		if want != "" && want != got {
			spec[field] = want
			lines = append(lines, fmt.Sprintf("spec.%s: %s → %s", field, orNone(got), want))
		}
	}
	set("version", u.Version)
	set("imageRepository", u.ImageRepository)
	set("profile", u.Profile)
	if got := live.GetAnnotations()[v1alpha1.AnnotationEdition]; u.Edition != "" && u.Edition != got && !(got == "" && u.Edition == defaultEdition) {
		annotations[v1alpha1.AnnotationEdition] = u.Edition
		lines = append(lines, fmt.Sprintf("edition: %s → %s", orNone(got), u.Edition))
	}
	if u.DisableResourceManagement != nil {
		got, _, _ := unstructured.NestedBool(live.Object, "spec", "disableResourceManagement")
		if got != *u.DisableResourceManagement {
			spec["disableResourceManagement"] = *u.DisableResourceManagement
			lines = append(lines, fmt.Sprintf("spec.disableResourceManagement: %t → %t", got, *u.DisableResourceManagement))
		}
	}
	if len(lines) > 0 && u.Version != "" { // as an operation does
		lines = append(lines, unpin(live, spec, annotations)...)
	}
	if revision, _, _ := unstructured.NestedInt64(live.Object, "status", "release", "revision"); revision > 0 && (newOperator || updateAvailable(live)) {
		if r := strconv.FormatInt(revision, 10); live.GetAnnotations()[v1alpha1.AnnotationUpdateFrom] != r {
			annotations[v1alpha1.AnnotationUpdateFrom] = r
			lines = append(lines, "release "+r+" → what the operator renders now")
		}
	}
	out := map[string]any{"spec": spec} // valid, even if it changes nothing: diff sends it
	if len(annotations) > 0 {
		out["metadata"] = map[string]any{"annotations": annotations}
	}
	return out, lines
}

// updateAvailable reports whether the operator has changes that wait for an update. During a pause it may have, and the update is refused for the pause.
func updateAvailable(live *unstructured.Unstructured) bool {
	cr, err := typed(live)
	if err != nil {
		return false
	}
	is := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionUpdateAvailable)
	return is != nil && (is.Status == metav1.ConditionTrue || is.Reason == status.ReasonPaused)
}

// unpin removes the tags that the autoupdate service leaves. They would keep the host agents at an older version.
func unpin(live *unstructured.Unstructured, spec, annotations map[string]any) []string {
	var lines []string
	for _, block := range []string{"autoupdate", "hostagent"} {
		if tag, _, _ := unstructured.NestedString(live.Object, "spec", block, "tag"); tag != "" {
			spec[block] = map[string]any{"tag": nil}
			lines = append(lines, fmt.Sprintf("spec.%s.tag: %s → (spec.version)", block, tag))
		}
	}
	if _, there := live.GetAnnotations()[autoupdateAnnotation]; there {
		annotations[autoupdateAnnotation] = nil
	}
	return lines
}

func orNone(s string) string { return cmp.Or(s, "(none)") }

func merge(ctx context.Context, c client.Client, o client.Object, patch map[string]any) error {
	return kube.Merge(ctx, c, o, kube.FieldManager, patch)
}
