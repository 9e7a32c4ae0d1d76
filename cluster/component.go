// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/render"
)

// ComponentRef names one component of a cloud.
type ComponentRef struct {
	Cloud client.ObjectKey
	Name  string
	// Block is the path of its block below spec: ["regionServer"], ["hostagent", "SdnAgent"].
	Block []string
	// Label is the value of the component label of its objects, "" if that is its name.
	Label string
}

// ComponentChange is a change of a component's block: its keys are componentFields. nil returns a field to the operator.
type ComponentChange map[string]any

// componentFields are the fields of a block that users change: three strings, a bool and an int64.
var componentFields = []string{"tag", "repository", "image", "disable", "replicas"}

// Follow returns the image of a component to the operator, so that it follows the cloud's version and repository again.
func Follow() ComponentChange {
	return ComponentChange{"tag": nil, "repository": nil, "image": nil}
}

// Apply changes the component's block in the cloud and returns a line for each change.
func (r ComponentRef) Apply(ctx context.Context, c client.Client, change ComponentChange) ([]string, error) {
	live, err := get(ctx, c, r.Cloud)
	if err != nil {
		return nil, err
	}
	block, same, lines := r.patch(live, change)
	if len(lines) == 0 {
		return nil, nil
	}
	patch := map[string]any{}
	if err = unstructured.SetNestedMap(patch, block, append([]string{"spec"}, r.Block...)...); err == nil {
		err = merge(ctx, c, live, patch)
	}
	for _, key := range same {
		if err == nil {
			err = choose(ctx, c, live, block[key], r.path(key)...)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("updating component %s of cloud %s: %w", r.Name, r.Cloud, err)
	}
	return lines, nil
}

// patch is pure. same lists the fields that already have the operator's value. A tag or repository removes a complete image, which would override it.
func (r ComponentRef) patch(live *unstructured.Unstructured, change ComponentChange) (block map[string]any, same, lines []string) {
	block, change = map[string]any{}, maps.Clone(change)
	if _, given := change["image"]; !given && r.chosen(live, "image") && (change["tag"] != nil || change["repository"] != nil) {
		change["image"] = nil
	}
	for _, key := range componentFields {
		want, given := change[key]
		got, there, _ := unstructured.NestedFieldNoCopy(live.Object, r.path(key)...)
		if chosen := r.chosen(live, key); !given || want == nil && !chosen || there && got == want && chosen {
			continue
		}
		block[key] = want
		if there && got == want {
			same = append(same, key)
		}
		lines = append(lines, fmt.Sprintf("%s: %v → %v", strings.Join(r.path(key), "."), cmp.Or(got, any("(none)")), cmp.Or(want, any("(none)"))))
	}
	return block, same, lines
}

// path returns the path of a field of the block in the cloud.
func (r ComponentRef) path(key string) []string {
	return append(append([]string{"spec"}, r.Block...), key)
}

// chosen reports whether a user set a field of the block, rather than the operator. The REST API does not show who did.
func (r ComponentRef) chosen(live *unstructured.Unstructured, key string) bool {
	_, there, _ := unstructured.NestedFieldNoCopy(live.Object, r.path(key)...)
	if managed := live.GetManagedFields(); !there || len(managed) == 0 {
		return there
	}
	path := fieldpath.Path(lists.Map(r.path(key), func(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }))
	return slices.ContainsFunc(live.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		set := &fieldpath.Set{}
		return m.Manager != v1alpha1.ManagerDefaults && m.Manager != v1alpha1.ManagerEarlier && m.FieldsV1 != nil &&
			set.FromJSON(m.FieldsV1.GetRawReader()) == nil && set.Has(path)
	})
}

// AnnotationRestartedAt is the annotation that "kubectl rollout restart" also sets.
const AnnotationRestartedAt = "kubectl.kubernetes.io/restartedAt"

// Restart restarts the pods of the component's workloads with a rolling update, and returns the workloads. seen is for WaitSeen: it reports whether a
// status is from after the restart.
func (r ComponentRef) Restart(ctx context.Context, c client.Client, now time.Time) (lines []string, seen func(Status) bool, err error) {
	workloads, err := r.Workloads(ctx, c)
	if err == nil && !slices.ContainsFunc(workloads, func(w client.Object) bool {
		d, is := w.(*appsv1.Deployment)
		return !is || ptr.Deref(d.Spec.Replicas, 1) > 0
	}) {
		err = r.noPod(ctx, c, "")
	}
	if err != nil {
		return nil, nil, err
	}
	patch := map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{AnnotationRestartedAt: now.UTC().Format(time.RFC3339)},
	}}}}
	for _, w := range workloads {
		gvk, err := apiutil.GVKForObject(w, c.Scheme())
		if err != nil {
			return lines, nil, err
		}
		name := strings.ToLower(gvk.Kind) + "/" + w.GetName()
		if err := merge(ctx, c, w, patch); err != nil {
			return lines, nil, fmt.Errorf("restarting %s: %w", name, err)
		}
		lines = append(lines, name+" restarted")
	}
	return lines, r.seen(r.generation(workloads)), nil
}

// generation returns the generation of the workload that the status covers, 0 if there is none.
func (r ComponentRef) generation(workloads []client.Object) int64 {
	if i := slices.IndexFunc(workloads, func(w client.Object) bool { return w.GetName() == r.Cloud.Name+"-"+r.Name }); i >= 0 {
		return workloads[i].GetGeneration()
	}
	return 0
}

// seen returns a function that reports whether a status is from after a generation of the workload.
func (r ComponentRef) seen(generation int64) func(Status) bool {
	return func(s Status) bool {
		return !slices.ContainsFunc(s.Components, func(c v1alpha1.ComponentStatus) bool {
			// A disabled component has no generation in the status; if it is paused, its workload still exists.
			return c.Name == r.Name && c.State != v1alpha1.Disabled && c.ObservedGeneration < generation
		})
	}
}

// optionsPatience is how long the operator may take to change the workload after a change of options. One that changes nothing for the service, such as
// setting what is the default, changes no workload.
const optionsPatience = 30 * time.Second

// ChangeOptions is ChangeServiceOptions, followed by a wait until the operator has changed the workload. seen is for WaitSeen.
func (r ComponentRef) ChangeOptions(ctx context.Context, c client.Client, want map[string]*string) (lines []string, seen func(Status) bool, err error) {
	before, err := r.Workloads(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	lines, err = ChangeServiceOptions(ctx, c, r.Cloud, r.Name, want)
	generation := r.generation(before)
	if err != nil || len(lines) == 0 {
		return lines, r.seen(generation), err
	}
	bounded, cancel := context.WithTimeout(ctx, optionsPatience)
	defer cancel()
	_ = wait.Until(bounded, "the operator", time.Second, func(ctx context.Context) (bool, string, error) { // without a change, the status decides
		now, err := r.Workloads(ctx, c)
		changed := r.generation(now) > generation
		if changed {
			generation = r.generation(now)
		}
		return changed, "it has not changed the workload yet", err
	}, func(string) {})
	return lines, r.seen(generation), nil
}

// Unpaused returns a finding if a change of the component would wait for the end of a pause.
func (r ComponentRef) Unpaused(ctx context.Context, c client.Client) error {
	return Unpaused(ctx, c, r.Cloud, append(slices.Clone(r.Block), r.Name)...)
}

// Workloads returns the Deployments, StatefulSets and DaemonSets of the component, its read-only replicas included.
func (r ComponentRef) Workloads(ctx context.Context, c client.Client) ([]client.Object, error) {
	var out []client.Object
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}} {
		if err := c.List(ctx, list, r.labelled("", render.ReplicaSuffix)...); err != nil {
			return nil, fmt.Errorf("listing the workloads of %s: %w", r.Name, err)
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // it fails only for non-lists
			if w, is := o.(client.Object); is && r.has(w) {
				out = append(out, w)
			}
			return nil
		})
	}
	if len(out) == 0 {
		return nil, finding.New("OCA-7017", fmt.Sprintf("Component %s has no workload in cloud %s", r.Name, r.Cloud),
			"it is disabled, is a CronJob, or waits for another component", "ocadm cluster status")
	}
	return out, nil
}

// Pod returns a pod of the component, on the given node if any: preferably a ready one, else one that has not ended, of these the newest. With restarted,
// one with a restarted container comes first.
func (r ComponentRef) Pod(ctx context.Context, c client.Client, node string, restarted bool) (*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := c.List(ctx, list, r.labelled("")...); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", r.Name, err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return !r.has(&p) || node != "" && p.Spec.NodeName != node || p.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return nil, r.noPod(ctx, c, node)
	}
	again := func(p corev1.Pod) bool {
		return restarted && slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.RestartCount > 0 })
	}
	best := slices.MinFunc(pods, func(a, b corev1.Pod) int { // an eviction leaves a pod that has ended, and so does a Job
		return cmp.Or(lists.TrueFirst(again(a), again(b)), lists.TrueFirst(kube.PodReady(&a), kube.PodReady(&b)),
			lists.TrueFirst(kube.PodEnded(&b), kube.PodEnded(&a)), operation.ByAge(b, a))
	})
	return &best, nil
}

// noPod returns the finding about a component without a pod, on the given node if any.
func (r ComponentRef) noPod(ctx context.Context, c client.Client, node string) error {
	what, cause, next := fmt.Sprintf("Component %s has no pod", r.Name), "it is disabled or stopped, it waits for another component, or no node has its label", "ocadm cluster status"
	if node != "" {
		what += " on node " + node
	}
	if u, err := get(ctx, c, r.Cloud); err == nil {
		if _, stopped := u.GetAnnotations()[v1alpha1.AnnotationPausedBefore]; stopped {
			cause = "the cloud is stopped"
			_, next = pauseOf(u)
		}
	}
	return finding.New("OCA-7015", what, cause, next)
}

// labelled selects objects whose label is that of the component with one of the suffixes.
func (r ComponentRef) labelled(suffixes ...string) []client.ListOption {
	values := lists.Map(suffixes, func(suffix string) string { return cmp.Or(r.Label, r.Name) + suffix })
	alike, _ := labels.NewRequirement(v1alpha1.LabelComponent, selection.In, values) // it fails only for malformed values
	return []client.ListOption{client.InNamespace(r.Cloud.Namespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*alike)}}
}

// has reports whether a workload or pod with the component's label belongs to the cloud, see component.OfCloud.
func (r ComponentRef) has(o client.Object) bool {
	name := r.Cloud.Name + "-" + r.Name
	return o.GetName() == name || strings.HasPrefix(o.GetName(), name+"-")
}

// choose makes a field the user's whose value is already that of the operator: a merge patch that changes nothing records no owner. Each field has a field
// manager of its own, because an apply gives up the fields that its manager applied before.
func choose(ctx context.Context, c client.Client, o client.Object, value any, path ...string) error {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		return err
	}
	owner := client.FieldOwner(kube.FieldManager + "." + strings.Join(path, "."))
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership)
}
