// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

// theCloud returns a cloud with its databases on a server.
func theCloud(host string) *v1alpha1.OnecloudCluster {
	c := &v1alpha1.OnecloudCluster{}
	c.Namespace, c.Name, c.UID = DefaultNamespace, DefaultName, "u"
	c.Spec.MySQL = v1alpha1.DatabaseServer{Host: host, Password: "p"}
	return c
}

// meanwhile returns a client that cannot create operations: on an attempt, do changes the cluster instead. The program then starts without a turn.
func meanwhile(do func(client.WithWatch) error, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, is := o.(*Operation); !is {
				return c.Create(ctx, o, opts...)
			}
			return errors.Join(apierrors.NewForbidden(schema.GroupResource{Resource: "onecloudoperations"}, "", nil), do(c))
		},
	}).Build()
}

// TestBackupReadsTheCloudInItsTurn checks that a backup includes changes made while it waited.
func TestBackupReadsTheCloudInItsTurn(t *testing.T) {
	cloud := theCloud("old.invalid")
	c := meanwhile(func(c client.WithWatch) error {
		cloud.Spec.MySQL.Host = "new.invalid"
		return c.Update(t.Context(), cloud)
	}, cloud)
	b := Backup{Key: client.ObjectKeyFromObject(cloud), Place: "p", Open: func(context.Context) (backup.Store, error) { return backup.Dir(t.TempDir()), nil }}
	_, _, err := b.Make(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "new.invalid") || strings.Contains(err.Error(), "old.invalid") {
		t.Errorf("the databases of before the wait: %v", err)
	}
}

// TestNoBackupBetweenReleases checks that a backup without a turn does not start during an update.
func TestNoBackupBetweenReleases(t *testing.T) {
	for phase, refused := range map[v1alpha1.OperationPhase]bool{v1alpha1.OperationRunning: true, v1alpha1.OperationPaused: true, v1alpha1.OperationSucceeded: false} {
		o := oneOperation("update-1", phase)
		o.Namespace, o.Spec.Cloud, o.Status.Rollout = DefaultNamespace, DefaultName, &v1alpha1.Rollout{}
		c := meanwhile(func(client.WithWatch) error { return nil }, theCloud("old.invalid"), o)
		b := Backup{Key: client.ObjectKeyFromObject(theCloud("")), Place: "p", Open: func(context.Context) (backup.Store, error) { return backup.Dir(t.TempDir()), nil }}
		_, _, err := b.Make(t.Context(), c)
		l := finding.Of(err)
		if is := len(l) == 1 && l[0].Code == "OCA-7421" && strings.Contains(l[0].Cause, "update-1"); is != refused {
			t.Errorf("%s: %v", phase, err)
		}
	}
}

// TestScheduledBackupFollowsTheSchedule checks that a backup uses the place and number of backups that are set after its wait.
func TestScheduledBackupFollowsTheSchedule(t *testing.T) {
	cloud := theCloud("db.invalid")
	c := meanwhile(func(c client.WithWatch) error {
		cloud.Spec.Backup.S3 = &v1alpha1.BackupS3{Endpoint: "127.0.0.1:1", Bucket: "later", Secret: "keys"}
		return c.Update(t.Context(), cloud)
	}, cloud)
	_, _, err := ScheduledBackup(t.Context(), c, client.ObjectKeyFromObject(cloud), Mounted{Dir: t.TempDir()}, Recorded{})
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7414" { // its keys do not exist
		t.Fatalf("the place of before the wait: %v", err)
	}
	h, err := archive.History(t.Context(), c, cloud.Namespace)
	if err != nil || len(h) != 1 || !strings.Contains(h[0].Place, "later") {
		t.Errorf("%+v, %v", h, err)
	}
	m := &making{Backup: Backup{Keep: 1}}
	m.Now = func(cr *v1alpha1.OnecloudCluster, b *Backup) {
		b.asScheduled(c, cr, Mounted{Dir: "/backup", Place: "claim"})
	}
	cloud.Spec.Backup = v1alpha1.BackupSpec{Keep: new(int32(0))}
	if m.Now(cloud, &m.Backup); m.Keep != 0 || m.Place != "claim" {
		t.Errorf("%+v", m.Backup)
	}
}

// TestProofIsRecorded checks that another proof of a backup is noted beside the file, too, and keeps what is known of the snapshot of etcd.
func TestProofIsRecorded(t *testing.T) {
	cloud := theCloud("db")
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cloud.Namespace, Name: cloud.Name + "-credentials"}, Data: map[string][]byte{component.CloudID: []byte("id")}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, credentials).Build()
	info := backup.Info{Name: "a", Header: backup.Header{Cloud: backup.Cloud{ID: "id"}}, Proven: new(time.Now()), Etcd: &backup.Etcd{Name: "a.ocadm-etcd"}}
	store := backup.Dir(t.TempDir())
	require.NoError(t, archive.AddRecord(t.Context(), c, kube.FieldManager, cloud, backup.Record{Name: "a", Place: "node1:/srv"})) // by its creation
	require.NoError(t, provenNow(t.Context(), c, client.ObjectKeyFromObject(cloud), store, "node1:/srv", info))
	if kept, err := backup.ReadInfo(t.Context(), store, "a"); err != nil || kept.Proven == nil {
		t.Errorf("beside the file: %+v %v", kept, err)
	}
	history, err := archive.History(t.Context(), c, cloud.Namespace)
	if err != nil || len(history) != 1 || history[0].Etcd == nil || history[0].Etcd.Name != "a.ocadm-etcd" {
		t.Errorf("%+v %v", history, err)
	}
}
