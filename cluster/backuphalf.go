// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// unfinishedRestore names the last restore that replaced databases of a cloud, if it failed. A restore that was undone before that does not count. It
// returns "" for an account that may not list operations.
func unfinishedRestore(ctx context.Context, c client.Client, cr *v1alpha1.OnecloudCluster) (string, error) {
	list, err := Operations(ctx, c, cr.Namespace, cr.Name) // latest first
	if cannotList(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(list, func(o Operation) bool {
		final := o.Status.Runner != nil && o.Status.Runner.Final
		return o.Spec.Action == v1alpha1.ActionRestore && (final || o.Status.Phase == v1alpha1.OperationSucceeded)
	})
	if i < 0 || list[i].Status.Phase == v1alpha1.OperationSucceeded {
		return "", nil
	}
	return list[i].Name, nil
}

// whole refuses to back up databases that a restore left half replaced: a proven backup would count as good and push out older ones. If a user
// started such a cloud anyway, whole allows the backup, but older ones are kept.
func (m *making) whole(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	if m.part {
		return nil // the next restore saves it
	}
	var err error
	if m.half, err = unfinishedRestore(ctx, m.client, cr); err != nil || m.half == "" || cr.Annotations[v1alpha1.AnnotationPaused] != "true" {
		return err
	}
	return finding.New("OCA-7426", "The last restore of the cloud was not completed",
		fmt.Sprintf("operation %s has replaced databases, but did not succeed: they may be a mixture of the earlier and the restored data", m.half),
		"run the same restore again; or start the cloud as it is: ocadm cluster start")
}

// complete refuses a backup that would lack a database in use by a component.
func (m *making) complete(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	if m.part {
		return nil // a restore saves what exists
	}
	_, err := operation.Recorded(ctx, m.plan.Admin, cr)
	return err
}

// keepsOlder returns the warning that a backup removes no older ones.
func (m *making) keepsOlder() finding.Finding {
	return finding.Warn("OCA-7426", "Older backups are kept: the last restore of the cloud was not completed",
		fmt.Sprintf("operation %s has replaced databases, but did not succeed; the cloud was started anyway", m.half),
		"restore a good backup; or, if the cloud is in order, kubectl -n "+m.Key.Namespace+" delete oco "+m.half)
}
