// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
)

// volumesStep deletes the claims of volumes that are lost with the node, so that their pods get new, empty volumes elsewhere.
func volumesStep() Step {
	return Step{
		Name: "volumes", Short: "Delete the claims and volumes that were on the node", Timeout: 2 * time.Minute,
		Skip: workflow.SkipIf("no --delete-volumes", func(j *Job) bool { return !j.DeleteVolumes }),
		Run: func(ctx context.Context, j *Job, r workflow.Reporter) error {
			return errors.Join(lists.Map(j.Is.Volumes, func(v Volume) error { return deleteVolume(ctx, j.K, v, r) })...)
		},
	}.Todo(func(ctx context.Context, j *Job) ([]string, error) {
		now := Inventory{Node: j.Is.Node}
		err := now.volumes(ctx, j.K)
		var lines []string
		for _, v := range now.Volumes {
			line := "delete volume " + v.Name
			if v.Claim != "" {
				line += " and claim " + v.Claim
			}
			lines = append(lines, line)
		}
		return lines, err
	})
}

// deleteVolume deletes the claim, the pods that wait for it and would keep it in place, and the volume, because its provisioner cannot reach the disk.
func deleteVolume(ctx context.Context, k client.WithWatch, v Volume, r workflow.Reporter) error {
	if v.Claim != "" {
		if err := deleteClaim(ctx, k, v, r); err != nil {
			return err
		}
	}
	err := k.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting volume %s: %w", v.Name, err)
	}
	r.Changed("deleted volume %s", v.Name)
	return nil
}

func deleteClaim(ctx context.Context, k client.WithWatch, v Volume, r workflow.Reporter) error {
	namespace, name, _ := strings.Cut(v.Claim, "/")
	var claim corev1.PersistentVolumeClaim
	found, err := kube.Find(ctx, k, client.ObjectKey{Namespace: namespace, Name: name}, &claim, "claim "+v.Claim)
	if !found || claim.Spec.VolumeName != v.Name {
		return err // it is now bound to another volume
	}
	if err := k.Delete(ctx, &claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting claim %s: %w", v.Claim, err)
	}
	gone := func(o client.Object) (bool, string) {
		if o == nil || o.GetUID() != claim.UID {
			return true, ""
		}
		if err := deleteUsers(ctx, k, namespace, name); err != nil {
			return false, err.Error()
		}
		return false, "a pod uses it"
	}
	if err := kube.WaitFor(ctx, k, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, gone,
		func(why string) { r.Waiting("claim "+v.Claim, why) }); err != nil {
		return err
	}
	r.Changed("deleted claim %s", v.Claim)
	return nil
}

// deleteUsers deletes the pods that use a claim: none of them can run.
func deleteUsers(ctx context.Context, k client.Client, namespace, claim string) error {
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the pods of claim %s/%s: %w", namespace, claim, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		}) {
			continue
		}
		if err := k.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s/%s: %w", namespace, p.Name, err)
		}
	}
	return nil
}
