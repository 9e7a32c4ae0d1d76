// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/release"
)

// A rollback chooses its release once, in its check, and notes it: releases that are made later, by an edit or a renewal of certificates, must not change
// what it goes back to, nor which copies of databases are dropped.

// choose is the revision that a rollback goes back to, before it is noted.
func choose(o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster) int {
	if p := o.Spec.Rollback; p != nil && p.Revision != 0 {
		return p.Revision
	}
	return cloud.Status.Release.Revision - 1
}

// targetOf is the revision that the check has noted; 0 if none did. An earlier operator noted it only with the next release. It is pure.
func targetOf(o *v1alpha1.OnecloudOperation, now v1alpha1.OnecloudOperationStatus) int {
	if now.Target != nil {
		return now.Target.Revision
	}
	asked, made := 0, 0
	if o.Spec.Rollback != nil {
		asked = o.Spec.Rollback.Revision
	}
	if now.Rollout != nil {
		made = now.Rollout.Of
	}
	return cmp.Or(asked, made)
}

// target is the release that the check has noted.
func (r *Run) target(ctx context.Context, cloud *v1alpha1.OnecloudCluster) (*release.Release, error) {
	return r.kept(ctx, cloud, targetOf(r.Operation, r.Status()))
}

// kept is an earlier release. It is a finding if there is no such one.
func (r *Run) kept(ctx context.Context, cloud *v1alpha1.OnecloudCluster, revision int) (*release.Release, error) {
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: cloud.Namespace, Name: release.SecretName(cloud.Name, revision)}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading release %d: %w", revision, err)
	}
	if err != nil || revision == cloud.Status.Release.Revision {
		return nil, finding.New("OCA-7020", "The cloud cannot go back to that release", fmt.Sprintf("release %d is in force, or is not kept", revision), "ocadm cluster history")
	}
	return release.Decode(secret)
}
