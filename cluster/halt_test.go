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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// stoppedCloud returns a cloud that an operation has stopped, and that operation.
func stoppedCloud(host, action string, phase v1alpha1.OperationPhase) (*v1alpha1.OnecloudCluster, *Operation) {
	cloud := theCloud(host)
	cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "", v1alpha1.AnnotationStoppedBy: "it"}
	o := oneOperation("it", phase)
	o.Namespace, o.Spec.Cloud, o.Spec.Action = cloud.Namespace, cloud.Name, action
	return cloud, o
}

func isCode(err error, code string) bool {
	list := finding.Of(err)
	return len(list) == 1 && list[0].Code == code
}

func started(t *testing.T, c client.Client, cloud *v1alpha1.OnecloudCluster) {
	t.Helper()
	now := &v1alpha1.OnecloudCluster{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cloud), now))
	now.Annotations = nil
	require.NoError(t, c.Update(t.Context(), now))
}

// A restore reads the backup for hours. If the operator gives it up meanwhile, and a user starts the cloud, the databases stay.
func TestStartedWhileTheBackupIsRead(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	cloud, o := stoppedCloud(server.Host, v1alpha1.ActionRestore, v1alpha1.OperationFailed)
	cloud.Spec.MySQL.Port, cloud.Spec.MySQL.Password = int32(server.Port), server.RootPassword //nolint:gosec // a port
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, o).Build()
	a, err := mysql.Open(t.Context(), mysql.Config{
		Host: server.Host, Port: server.Port, User: "root", Password: server.RootPassword, Patience: time.Minute, Owner: mysql.Owner{ID: "u"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	if _, err := a.EnsureDatabase(t.Context(), nil, "keystone"); err != nil {
		t.Fatal(err)
	}
	dir := backup.Dir(t.TempDir())
	p := &backup.Plan{Source: backup.Source{Header: backup.Header{
		Cloud: backup.Cloud{ID: "u", Namespace: cloud.Namespace, Name: cloud.Name}, Time: time.Now(), Version: "v9.9.9",
	}, Admin: a}, Store: dir, SkipProof: true}
	require.NoError(t, p.Prepare(t.Context(), workflow.Discard{}))
	info, err := p.Write(t.Context(), workflow.Discard{})
	require.NoError(t, err)
	x := &restoring{halting: halting{client: c, key: client.ObjectKeyFromObject(cloud), from: cloud.Spec.MySQL, operation: o, halt: haltOf(cloud)}, out: &Restored{}}
	x.Store, x.Name, x.info, x.contents = dir, info.Name, info, &backup.Contents{Header: info.Header}
	t.Cleanup(x.close)
	require.NoError(t, x.look(t.Context(), workflow.Discard{}))
	if err := x.check(t.Context(), workflow.Discard{}); err != nil {
		t.Errorf("the cloud is stopped, and the restore ends: %v", err)
	}
	started(t, c, cloud)
	if err := x.check(t.Context(), workflow.Discard{}); !isCode(err, codeStopped) {
		t.Errorf("%v", err)
	}
	if _, err := (&Restore{Store: dir, Name: info.Name, Watch: workflow.Discard{}}).Read(t.Context()); !isCode(err, "OCA-7059") {
		t.Errorf("a release that this ocadm does not know: %v", err)
	}
	x.info.Name = "gone.ocadm-backup"
	if err := x.check(t.Context(), workflow.Discard{}); err == nil || isCode(err, "OCA-7410") || strings.Contains(err.Error(), "object store") {
		t.Errorf("a file that is gone: %v", err)
	}
}

// What can fail for long comes before the step that cannot be undone, and is not reported as a half-replaced database.
func TestBackupIsReadBeforeTheDatabasesAreReplaced(t *testing.T) {
	for _, steps := range [][]workflow.Phase[*restoring]{inPlaceSteps(), recreateSteps()} {
		for i, s := range steps {
			if s.Name == stepDatabases && (i == 0 || steps[i-1].Name != checkFile.Name) {
				t.Errorf("before %s: %+v", s.Name, steps[:i])
			}
		}
	}
}

// The services wrote to the old server since the copy.
func TestStartedDuringAMove(t *testing.T) {
	cloud, o := stoppedCloud("old.invalid", v1alpha1.ActionMoveDatabase, v1alpha1.OperationRunning)
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	x := &moving{halting: halting{client: c, key: client.ObjectKeyFromObject(cloud), from: cloud.Spec.MySQL, operation: o, halt: haltOf(cloud)}, out: Moved{From: "old.invalid:3306", To: "new.invalid:3306"}}
	x.Key, x.To = x.key, v1alpha1.DatabaseServer{Host: "new.invalid", Password: "p"}
	require.NoError(t, x.look(t.Context(), workflow.Discard{}))
	started(t, c, cloud)
	if err := x.change(t.Context(), workflow.Discard{}); !isCode(err, codeStopped) {
		t.Errorf("%v", err)
	}
	if _, now, err := load(t.Context(), c, x.Key); err != nil || now.Spec.MySQL.Host != "old.invalid" {
		t.Errorf("%v, %v", now.Spec.MySQL, err)
	}
}

func TestStartAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		action  string
		phase   v1alpha1.OperationPhase
		control string
		refused bool
	}{
		"a restore":                           {v1alpha1.ActionRestore, v1alpha1.OperationRunning, "", true},
		"a move":                              {v1alpha1.ActionMoveDatabase, v1alpha1.OperationRunning, "", true},
		"a backup":                            {v1alpha1.ActionBackup, v1alpha1.OperationRunning, "", false},
		"a restore that failed":               {v1alpha1.ActionRestore, v1alpha1.OperationFailed, "", false},
		"one that a restore of etcd paused":   {v1alpha1.ActionRestore, v1alpha1.OperationRunning, v1alpha1.OperationPause, false},
		"a restore that waits for its turn":   {v1alpha1.ActionRestore, v1alpha1.OperationPending, "", false},
		"a move whose program is cancelled":   {v1alpha1.ActionMoveDatabase, v1alpha1.OperationReverting, v1alpha1.OperationCancel, true},
		"a restore that has been given up on": {v1alpha1.ActionRestore, v1alpha1.OperationReverted, "", false},
	} {
		cloud, o := stoppedCloud("db.invalid", tt.action, tt.phase)
		o.Annotations = map[string]string{v1alpha1.AnnotationControl: tt.control}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, o).Build()
		err := StartAsked(t.Context(), c, client.ObjectKeyFromObject(cloud))
		now := &v1alpha1.OnecloudCluster{}
		if get := c.Get(t.Context(), client.ObjectKeyFromObject(cloud), now); get != nil {
			t.Fatal(get)
		}
		if isCode(err, codeStopped) != tt.refused || !tt.refused && err != nil || (now.Annotations[v1alpha1.AnnotationPaused] == "true") != tt.refused {
			t.Errorf("%s: %v; %v", name, err, now.Annotations)
		}
	}
}

// If the operations cannot be read, it is unknown whether the databases are a mixture: they are not backed up.
func TestNoBackupWhileOperationsCannotBeRead(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.Group, Resource: "onecloudoperations"}
	for _, tt := range []struct {
		fails   error
		refused bool
	}{{apierrors.NewServerTimeout(resource, "list", 1), true}, {apierrors.NewForbidden(resource, "", nil), false}} {
		cloud, o := stoppedCloud("db.invalid", v1alpha1.ActionRestore, v1alpha1.OperationFailed)
		o.Status.Runner = &v1alpha1.OperationRunner{Final: true}
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, o).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if _, is := l.(*v1alpha1.OnecloudOperationList); is {
					return tt.fails
				}
				return c.List(ctx, l, opts...)
			},
		}).Build()
		m := &making{Backup: Backup{Key: client.ObjectKeyFromObject(cloud)}}
		m.client = c
		if err := m.whole(t.Context(), cloud); (err != nil) != tt.refused {
			t.Errorf("%v: %v", tt.fails, err)
		}
	}
}

// The step fails after the passwords were restored. The next run changes no passwords, and yet every component must get them.
func TestRestoreEndsThePauseWhenRepeated(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	cloud := theCloud(server.Host)
	cloud.Spec.MySQL.Port, cloud.Spec.MySQL.Password = int32(server.Port), server.RootPassword //nolint:gosec // a port
	cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationPausedBefore: "glance", v1alpha1.AnnotationStoppedBy: "restore-1"}
	s := &corev1.Secret{Data: map[string][]byte{"cloud-id": []byte("u"), "p": []byte("new")}}
	s.Namespace, s.Name = cloud.Namespace, secrets.CredentialsSecret(cloud.Name)
	fails := true
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, s).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, is := o.(*corev1.Secret); !is && fails {
				return errors.New("the API server is being replaced")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	once := func() error {
		x := &restoring{halting: halting{client: c, key: client.ObjectKeyFromObject(cloud), from: cloud.Spec.MySQL}, out: &Restored{}}
		x.contents = &backup.Contents{Objects: []backup.Object{
			{Kind: "Secret", Name: s.Name, JSON: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + s.Name + `"},"data":{"cloud-id":"dQ==","p":"b2xk"}}`)},
			{Kind: v1alpha1.Kind, Name: cloud.Name, JSON: []byte(`{"apiVersion":"onecloud.yunion.io/v1alpha1","kind":"OnecloudCluster","metadata":{"name":"` + cloud.Name + `"},"spec":{}}`)},
		}}
		x.contents.Header.Cloud.ID = "u"
		defer x.close()
		require.NoError(t, x.look(t.Context(), workflow.Discard{}))
		return x.bring(t.Context(), workflow.Discard{})
	}
	if err := once(); err == nil {
		t.Fatal("it did not fail")
	}
	fails = false
	require.NoError(t, once())
	now, err := get(t.Context(), c, client.ObjectKeyFromObject(cloud))
	require.NoError(t, err)
	if p := now.GetAnnotations()[v1alpha1.AnnotationPausedBefore]; p != "" {
		t.Errorf("%s stays paused, with the passwords from before the restore", p)
	}
}
