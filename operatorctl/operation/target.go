// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/release"
)

// A rollback chooses its release once, in its check, and records it: releases that are made later, by an edit or a certificate renewal, must change
// neither what it goes back to nor which copies of databases are dropped.

// choose returns the revision that a rollback with these parameters goes back to, before it is recorded. passed are later releases that it skips.
func choose(ctx context.Context, c client.Reader, p *v1alpha1.RollbackParameters, cloud *v1alpha1.OnecloudCluster) (revision int, passed []int, err error) {
	if p != nil && p.Revision != 0 {
		return p.Revision, nil, nil
	}
	var list corev1.SecretList
	if err := c.List(ctx, &list, client.InNamespace(cloud.Namespace), client.HasLabels{v1alpha1.LabelRelease}); err != nil {
		return 0, nil, fmt.Errorf("listing releases: %w", err)
	}
	operations, err := Of(ctx, c, client.ObjectKeyFromObject(cloud))
	if err != nil {
		return 0, nil, err
	}
	all, _ := release.Summaries(list.Items, cloud.Name) // an unreadable release is no target
	revision, passed = release.Previous(all, cloud.Status.Release.Revision, failedAt(operations))
	if revision == 0 {
		return 0, nil, finding.New("OCA-7020", "There is no release to roll back to",
			"each earlier release that is kept has the contents of the release in force, or was created by an operation that was reverted",
			"ocadm cluster history; then choose one with --to")
	}
	inForce := lists.First(all, func(s release.Summary) bool { return s.Revision == cloud.Status.Release.Revision })
	for _, o := range operations { // a command that is repeated, because its connection broke, must not return to what it left
		if o.Spec.Action == v1alpha1.ActionRollback && o.Status.Phase == v1alpha1.OperationSucceeded && o.Name == inForce.By {
			return 0, nil, finding.New("OCA-7020", "The cloud has been rolled back, and not changed since",
				fmt.Sprintf("operation %s rolled it back; without a revision, another rollback would move it to the contents of release %d", o.Name, revision),
				fmt.Sprintf("ocadm cluster status; if you want that release: ocadm cluster rollback --to %d", revision))
		}
	}
	return revision, passed, nil
}

// failedAt reports whether an operation that did not succeed moved to a release. The release that reverted the move does not count.
func failedAt(operations []*v1alpha1.OnecloudOperation) func(release.Summary) bool {
	return func(s release.Summary) bool {
		return slices.ContainsFunc(operations, func(o *v1alpha1.OnecloudOperation) bool {
			return o.Name == s.By && o.Status.Phase.Final() && o.Status.Phase != v1alpha1.OperationSucceeded && o.Status.Rollout != nil &&
				s.Revision > o.Status.Rollout.From && s.Of != o.Status.Rollout.From
		})
	}
}

// targetOf returns the revision that the check recorded, or 0. Earlier operators recorded it only with the next release; before that, they meant the
// release before the current one. It is pure.
func targetOf(o *v1alpha1.OnecloudOperation, now v1alpha1.OnecloudOperationStatus) int {
	if now.Target != nil {
		return now.Target.Revision
	}
	asked, made := 0, 0
	if o.Spec.Rollback != nil {
		asked = o.Spec.Rollback.Revision
	}
	if now.Rollout != nil {
		made = cmp.Or(now.Rollout.Of, max(0, now.Rollout.From-1))
	}
	return cmp.Or(asked, made)
}

// target returns the release that the check recorded.
func (r *Run) target(ctx context.Context, cloud *v1alpha1.OnecloudCluster) (*release.Release, error) {
	return kept(ctx, r.Client, cloud, cmp.Or(targetOf(r.Operation, r.Status()), cloud.Status.Release.Revision-1))
}

// kept returns an earlier release, or a finding if it is not kept.
func kept(ctx context.Context, c client.Reader, cloud *v1alpha1.OnecloudCluster, revision int) (*release.Release, error) {
	if revision == cloud.Status.Release.Revision {
		return nil, finding.New("OCA-7020", "The cloud cannot roll back to that release", fmt.Sprintf("release %d is in force", revision), "ocadm cluster history")
	}
	key := client.ObjectKeyFromObject(cloud)
	out, err := ReadRelease(ctx, c, key, revision)
	if err == nil {
		err = unreadable(ctx, key, revision, out.Inputs())
	}
	return out, err
}

// ReadRelease returns a release of a cloud, or a finding if it is not kept.
func ReadRelease(ctx context.Context, c client.Reader, cloud client.ObjectKey, revision int) (*release.Release, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: cloud.Namespace, Name: release.SecretName(cloud.Name, revision)}
	if found, err := kube.Find(ctx, c, key, secret, fmt.Sprintf("release %d", revision)); err != nil {
		return nil, err
	} else if !found {
		return nil, finding.New("OCA-7020", fmt.Sprintf("Cloud %s has no release %d", cloud, revision), "it never existed, or is no longer kept", "ocadm cluster history")
	}
	out, err := release.Decode(secret)
	return out, unreadable(ctx, cloud, revision, err)
}

// unreadable returns the finding for a release that is kept but damaged, nil for no error.
func unreadable(ctx context.Context, cloud client.ObjectKey, revision int, err error) error {
	return finding.Failed(ctx, err, "OCA-7020", fmt.Sprintf("Release %d of cloud %s cannot be read", revision, cloud),
		"ocadm cluster history lists the others; a later ocadm may have written this one: use that version")
}

// planOf describes what a rollback with a patch of the cloud does, one line each.
func planOf(cloud *v1alpha1.OnecloudCluster, to *release.Release, passed []int, patch map[string]any) []string {
	in := cloud.Status.Release
	plan := []string{fmt.Sprintf("release %d, version %s → the contents of release %d, version %s", in.Revision, in.Version, to.Revision, to.Version)}
	if fields := changedFields(patch); fields != "" { // a user may have set them for reasons of their own
		plan = append(plan, "sets as in that release: "+fields)
	}
	if len(passed) > 0 {
		plan = append(plan, "skipped, because they have the contents of the release in force, or their operation was reverted: "+
			strings.Trim(fmt.Sprint(passed), "[]"))
	}
	return plan
}
