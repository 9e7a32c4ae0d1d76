// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/release"
)

// update moves a cloud to another version, or to what the operator renders now, in waves.
func update(order []v1alpha1.Wave) Action {
	return Action{
		Name: v1alpha1.ActionUpdate, Timeout: moveTimeout, Clean: cleanPull,
		Steps:  append([]Step{whenCalm(checks()), pull(pullRendered, remedyUpdate), hold(order), save(), next(updatePatch)}, forward(order)...),
		Revert: reverse(order),
	}
}

// rollback moves a cloud back to an earlier release, the last wave first.
func rollback(order []v1alpha1.Wave) Action {
	slices.Reverse(order)
	return Action{
		Name: v1alpha1.ActionRollback, Timeout: moveTimeout, Clean: cleanPull,
		Steps:  append([]Step{checkRollback(), pull(pullKept, remedyRollback), hold(order), save(), next(rollbackPatch), bringForward()}, forward(order)...),
		Revert: reverse(order),
	}
}

func forward(order []v1alpha1.Wave) (out []Step) {
	for i, w := range order {
		out = append(out, wave(i+1, w.Name))
	}
	return out
}

// reverse reverts the waves, the last one first. Migrated databases are restored before that; a migration that began only while a wave moved back is found
// afterwards.
func reverse(order []v1alpha1.Wave) (out []Step) {
	out = append(out, bringBack("databases-back", "Restore the migrated databases"))
	for i, w := range slices.Backward(order) {
		out = append(out, back(i+1, w.Name))
	}
	return append(out, bringBack("databases-again", "Restore databases that were migrated meanwhile"), restore(), removeMade())
}

// updatePatch returns what an update changes in the cloud, and what undoes it.
func updatePatch(_ context.Context, r *Run, cloud *v1alpha1.OnecloudCluster) (patch, undo map[string]any, of int, err error) {
	p := cmp.Or(r.Operation.Spec.Update, &v1alpha1.UpdateParameters{})
	spec, before := map[string]any{}, map[string]any{}
	set := func(key, was, want string) {
		if want != "" {
			spec[key], before[key] = want, nil
			if was != "" {
				before[key] = was
			}
		}
	}
	set("version", cloud.Status.Release.Version, p.Version)
	set("imageRepository", cloud.Spec.ImageRepository, p.ImageRepository)
	set("profile", cloud.Spec.Profile, p.Profile)
	if p.DisableResourceManagement != nil {
		spec["disableResourceManagement"], before["disableResourceManagement"] = *p.DisableResourceManagement, cloud.Spec.DisableResourceManagement
	}
	for block, tag := range map[string]string{"autoupdate": cloud.Spec.Autoupdate.Tag, "hostagent": cloud.Spec.Hostagent.Tag} {
		if tag != "" && p.Version != "" { // tags that autoupdate left would keep the agents at an older version
			spec[block], before[block] = map[string]any{"tag": nil}, map[string]any{"tag": tag}
		}
	}
	patch, undo = map[string]any{"spec": spec}, map[string]any{"spec": before}
	if p.Edition != "" {
		patch["metadata"], undo["metadata"] = editionOf(p.Edition), editionOf(cloud.Annotations[v1alpha1.AnnotationEdition])
	}
	return patch, undo, 0, nil
}

// editionOf returns the metadata of a patch that sets the edition, or removes the annotation for "".
func editionOf(edition string) map[string]any {
	var value any
	if edition != "" {
		value = edition
	}
	return map[string]any{"annotations": map[string]any{v1alpha1.AnnotationEdition: value}}
}

// rollbackPatch restores the edition and the spec of an earlier release, except for what withoutPlace removes.
func rollbackPatch(ctx context.Context, r *Run, cloud *v1alpha1.OnecloudCluster) (patch, undo map[string]any, of int, err error) {
	to, err := r.target(ctx, cloud)
	if err == nil {
		of = to.Revision
		patch, undo, err = patchTo(cloud, to)
	}
	return patch, undo, of, err
}

func patchTo(cloud *v1alpha1.OnecloudCluster, to *release.Release) (patch, undo map[string]any, err error) {
	now, then := reconcile.Chosen(cloud), reconcile.Chosen(to.From.Cloud)
	withoutPlace(now, then)
	spec, before, err := differences(now, then)
	if err != nil {
		return nil, nil, err
	}
	patch, undo = map[string]any{"spec": spec}, map[string]any{"spec": before}
	if is, was := cloud.Annotations[v1alpha1.AnnotationEdition], to.From.Cloud.Annotations[v1alpha1.AnnotationEdition]; is != was {
		patch["metadata"], undo["metadata"] = editionOf(was), editionOf(is)
	}
	return patch, undo, nil
}

// differences returns the merge patches from one value to another, and back.
func differences(now, then map[string]any) (there, back map[string]any, err error) {
	merge := func(from, to map[string]any) (out map[string]any, err error) {
		raw, err := client.MergeFrom(&unstructured.Unstructured{Object: from}).Data(&unstructured.Unstructured{Object: to})
		if err != nil {
			return nil, err
		}
		return out, json.Unmarshal(raw, &out)
	}
	if there, err = merge(now, then); err == nil {
		back, err = merge(then, now)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("comparing the spec with that of the release: %w", err)
	}
	return there, back, nil
}

// waveNames are the waves of an update, in order.
var waveNames = []string{"identity", "region", "services", "agents"}

// waves returns the components of each wave: identity and region with their dependencies, the rest, and last what runs on compute nodes. No component is
// in an earlier wave than one that it comes after. It is pure.
func waves(components []component.Component) []v1alpha1.Wave {
	all := lists.Index(components, func(c component.Component) (string, component.Component) { return c.Name, c })
	of := map[string]int{}
	var need func(name string, wave int)
	need = func(name string, wave int) {
		if was, known := of[name]; known && was <= wave {
			return
		}
		of[name] = wave
		for _, before := range all[name].After {
			need(before, wave)
		}
	}
	need("keystone", 0)
	need("region", 1)
	var place func(name string) int
	place = func(name string) int {
		if wave, known := of[name]; known {
			return wave
		}
		wave := 2
		if all[name].Workload.Kind == component.DaemonSet {
			wave = 3
		}
		for _, before := range all[name].After {
			wave = max(wave, place(before))
		}
		of[name] = wave
		return wave
	}
	out := make([]v1alpha1.Wave, len(waveNames))
	for i, name := range waveNames {
		out[i].Name = name
	}
	for _, c := range components {
		i := place(c.Name)
		out[i].Components = append(out[i].Components, c.Name)
	}
	return out
}
