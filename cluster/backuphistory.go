// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
)

// BackupHistory is what became of the backups of the cloud in a namespace, the latest first.
func BackupHistory(ctx context.Context, c client.Reader, namespace string) (backup.History, error) {
	cm := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: backup.HistoryName}, cm)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the history of backups: %w", err)
	}
	return backup.ParseHistory(cm.Data[backup.HistoryKey])
}

// recordTimeout bounds the record of a backup, which also one that was interrupted gets.
const recordTimeout = 15 * time.Second

// record keeps what became of an attempt in the cluster, where the operator sees it.
func (b Backup) record(ctx context.Context, c client.Client, u *unstructured.Unstructured, began time.Time, info backup.Info, failed error) error {
	one := backup.Record{Name: info.Name, Time: began.UTC().Truncate(time.Second), Seconds: time.Since(began).Seconds(), Size: info.Size,
		Tables: info.Tables, Rows: info.Rows, Proven: info.Proven, Problem: info.Problem}
	if b.Store != nil {
		one.Place = b.Store.String()
	}
	if failed != nil && one.Problem == "" {
		one.Error = failed.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return addRecord(ctx, c, u, one)
}

// addRecord adds a record to the history of a cloud.
func addRecord(ctx context.Context, c client.Client, u *unstructured.Unstructured, one backup.Record) error {
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		cm := &corev1.ConfigMap{}
		err := c.Get(ctx, client.ObjectKey{Namespace: u.GetNamespace(), Name: backup.HistoryName}, cm)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		history, _ := backup.ParseHistory(cm.Data[backup.HistoryKey]) // one that is damaged begins anew
		isNew := err != nil
		cm.Namespace, cm.Name = u.GetNamespace(), backup.HistoryName
		cm.Labels = map[string]string{
			v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + u.GetName(),
		}
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}}
		cm.Data = map[string]string{backup.HistoryKey: history.With(one).String()}
		if isNew {
			return c.Create(ctx, cm, client.FieldOwner(kube.FieldManager))
		}
		return c.Update(ctx, cm, client.FieldOwner(kube.FieldManager))
	})
	if err != nil {
		return fmt.Errorf("recording the backup in ConfigMap %s/%s: %w", u.GetNamespace(), backup.HistoryName, err)
	}
	return nil
}
