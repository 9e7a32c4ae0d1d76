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

// unfinishedRestore names the last restore of a cloud that replaced databases, if it did not succeed. One that was taken back before counts as none. An account that
// may not list operations learns of none.
func unfinishedRestore(ctx context.Context, c client.Client, cr *v1alpha1.OnecloudCluster) string {
	list, err := Operations(ctx, c, cr.Namespace, cr.Name) // the last one first
	if err != nil {
		return ""
	}
	i := slices.IndexFunc(list, func(o Operation) bool {
		final := o.Status.Runner != nil && o.Status.Runner.Final
		return o.Spec.Action == v1alpha1.ActionRestore && (final || o.Status.Phase == v1alpha1.OperationSucceeded)
	})
	if i < 0 || list[i].Status.Phase == v1alpha1.OperationSucceeded {
		return ""
	}
	return list[i].Name
}

// whole refuses a backup of databases that a restore has left half replaced: proven, it would count as a good one, and older ones would go. A person who has
// started such a cloud all the same wants it backed up; older files stay then.
func (m *making) whole(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	if m.part {
		return nil // it is what the next restore saves
	}
	if m.half = unfinishedRestore(ctx, m.client, cr); m.half == "" || cr.Annotations[v1alpha1.AnnotationPaused] != "true" {
		return nil
	}
	return finding.New("OCA-7426", "The last restore of the cloud was not completed",
		fmt.Sprintf("operation %s has replaced databases, and did not succeed: they may be of both", m.half),
		"run the same restore again; or start the cloud as it is: ocadm cluster start")
}

// complete refuses a backup that would lack a database which a component uses.
func (m *making) complete(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	if m.part {
		return nil // what a restore saves is what there is
	}
	_, err := operation.Recorded(ctx, m.plan.Admin, cr)
	return err
}

// keepsOlder is the warning of a backup that removes no older ones.
func (m *making) keepsOlder() finding.Finding {
	return finding.Warn("OCA-7426", "Older backups stay: the last restore of the cloud was not completed",
		fmt.Sprintf("operation %s has replaced databases, and did not succeed; the cloud was started all the same", m.half),
		"restore a good backup; or, if the cloud is as it should be, kubectl -n "+m.Key.Namespace+" delete oco "+m.half)
}
