// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
)

// History returns the records of the backups of the cloud in a namespace, the latest first.
func History(ctx context.Context, c client.Reader, namespace string) (backup.History, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: backup.HistoryName}, cm)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the history of backups: %w", err)
	}
	return backup.ParseHistory(cm.Data[backup.HistoryKey])
}

// AddRecord adds a record to the history of a cloud: docs/decisions/0052.
func AddRecord(ctx context.Context, c client.Client, by client.FieldOwner, cloud client.Object, one backup.Record) error {
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		cm := &corev1.ConfigMap{}
		err := c.Get(ctx, client.ObjectKey{Namespace: cloud.GetNamespace(), Name: backup.HistoryName}, cm)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		before := cm.DeepCopy()
		history, _ := backup.ParseHistory(cm.Data[backup.HistoryKey]) // a damaged history starts again
		cm.Namespace, cm.Name = cloud.GetNamespace(), backup.HistoryName
		cm.Labels = map[string]string{
			v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud.GetName(),
		}
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cloud.GetName(), UID: cloud.GetUID()}}
		cm.Data = map[string]string{backup.HistoryKey: history.With(one, time.Now()).String()}
		if err != nil {
			return c.Create(ctx, cm, by)
		}
		err = c.Patch(ctx, cm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), by)
		if apierrors.IsForbidden(err) { // the pods of component backup have the permissions of an earlier release
			err = c.Update(ctx, cm, by)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the backup in ConfigMap %s/%s: %w", cloud.GetNamespace(), backup.HistoryName, err)
	}
	return nil
}
