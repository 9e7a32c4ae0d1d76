// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/snapshotfile"
)

// backups tests the operations that run outside the operator, all with one cloud.
type backups struct {
	*cloudTest
	key    client.ObjectKey
	dir    string
	latest string          // the last result of last
	seen   map[string]bool // the operations that known has returned
	// snapshots is a directory with an etcd snapshot.
	snapshots string
}

// TestBackupOperations checks that backups and restores are operations in the real API server: recorded, one at a time, cancelled, rolled back.
func TestBackupOperations(t *testing.T) {
	b := &backups{cloudTest: installed(t, env.Options{}, env.Small...), key: client.ObjectKey{Namespace: namespace, Name: cloud}, dir: t.TempDir(),
		snapshots: filepath.Dir(snapshotfile.Write(t, t.TempDir(), time.Now(), 7)), seen: map[string]bool{}}
	b.pod()
	b.busy()
	b.cancelled()
	b.restored()
	b.alone()
}

func (b *backups) backup(open func(context.Context) (backup.Store, error)) cluster.Backup {
	if open == nil {
		open = func(context.Context) (backup.Store, error) { return backup.Dir(b.dir), nil }
	}
	return cluster.Backup{Key: b.key, Place: b.dir, Open: open, Recorded: cluster.Recorded{By: "the test"}}
}

// code fails unless an error is the given finding.
func (b *backups) code(err error, want string) finding.Finding {
	b.Helper()
	l := finding.Of(err)
	if len(l) == 0 || l[0].Code != want || l[0].Remedy == "" {
		b.Fatalf("%v (%+v), want %s", err, l, want)
	}
	return l[0]
}

// last returns the most recently created operation: the one that did not exist before. Creation times have whole seconds, and an idle machine runs
// two operations within one.
func (b *backups) last() *cluster.Operation {
	b.Helper()
	if fresh := b.known(); len(fresh) > 1 {
		b.Fatalf("several operations are new: %v", fresh)
	} else if len(fresh) == 1 {
		b.latest = fresh[0]
	}
	o, err := cluster.OperationOf(b.Context(), b.Client, client.ObjectKey{Namespace: namespace, Name: b.latest})
	require.NoError(b, err)
	return o
}

// known returns the operations that did not exist at its previous call.
func (b *backups) known() (fresh []string) {
	b.Helper()
	list, err := cluster.Operations(b.Context(), b.Client, namespace, cloud)
	require.NoError(b, err)
	for _, o := range list {
		if !b.seen[o.Name] {
			fresh = append(fresh, o.Name)
		}
		b.seen[o.Name] = true
	}
	return fresh
}

// pod runs, in their account, what the pods of component backup run. It compares the permissions used with those granted, both ways.
func (b *backups) pod() {
	b.Helper()
	const account = "onecloud-backup"
	c, err := kube.New(b.Cluster.ServiceAccount(namespace, account))
	require.NoError(b, err)
	from := b.Mark()
	var shown []string
	by := cluster.Recorded{By: "pod", Show: func(o *cluster.Operation) { shown = append(shown, string(o.Status.Phase)+" "+o.Status.Message) }}
	id, err := age.GenerateX25519Identity()
	require.NoError(b, err)
	b.Edit(`{"spec":{"backup":{"recipients":["` + id.Recipient().String() + `"]}}}`)
	at := cluster.Mounted{Dir: b.dir, Place: "node7:/srv/backups", Snapshots: cluster.Snapshots{Dir: b.snapshots, Node: "node7"}}
	for range 2 { // the first record is created, the second changes it
		info, warning, err := cluster.ScheduledBackup(b.Context(), c, b.key, at, by)
		if err != nil || warning != nil || info.Proven == nil || info.Etcd == nil || info.Etcd.Revision != 7 {
			b.Fatalf("%+v, %v, %v", info, warning, err)
		}
		if _, err := os.Stat(b.dir + "/" + info.Etcd.Name); err != nil {
			b.Error(err)
		}
		o := b.UntilOperation(b.last().Name, func(o *v1alpha1.OnecloudOperation) bool { return env.Ended(o) && len(o.Finalizers) == 0 })
		if s := o.Status; s.Phase != v1alpha1.OperationSucceeded || s.Backup == nil || s.Backup.Name != info.Name || s.Backup.Place != "node7:/srv/backups" || s.Backup.Proven.IsZero() || s.Start.IsZero() || s.Steps[1].Total == 0 ||
			s.Steps[1].Done != s.Steps[1].Total || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionSucceeded) {
			b.Errorf("%+v", o.Status)
		}
		if text, err := cluster.LogOf(b.Context(), b.Client, o); err != nil || !strings.Contains(text, "every table matches") {
			b.Errorf("%s %v", text, err)
		}
		if err := os.Remove(b.dir + "/" + info.Name); err != nil { // the next one may have the same second in its name
			b.Fatal(err)
		}
	}
	if !slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(s, "database keystone, ") }) {
		b.Errorf("no progress was shown: %q", shown)
	}
	b.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionBackupProven)
	})
	b.Edit(`{"spec":{"backup":{"s3":{"endpoint":"127.0.0.1:1","bucket":"none","secret":"keys"}}}}`)
	b.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keys"}, Data: map[string][]byte{v1alpha1.BackupSecretKey: []byte("Not-To-Be-Seen")}})
	_, _, err = cluster.ScheduledBackup(b.Context(), c, b.key, cluster.Mounted{Dir: b.dir, Place: "node7:/srv/backups"}, by)
	b.code(err, "OCA-7413")
	o := b.UntilOperation(b.last().Name, env.Ended)
	if s := o.Status; s.Phase != v1alpha1.OperationFailed || len(s.Findings) != 1 || s.Findings[0].Code != "OCA-7413" || o.Spec.Backup.Place != "s3://none at 127.0.0.1:1" {
		b.Errorf("%+v", o)
	}
	b.Edit(`{"spec":{"backup":{"s3":null}}}`)

	used := b.Used(b.Requests(from, harness.Filter{User: "system:serviceaccount:" + namespace + ":" + account, Watches: true}))
	role := &rbacv1.Role{}
	b.Get(role, account)
	granted := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				granted[env.Right(verb, rule.APIGroups[0], resource)] = true
			}
		}
	}
	for _, u := range slices.Sorted(maps.Keys(used)) {
		if !granted[u] {
			b.Errorf("used and not granted: %s (%s)", u, used[u])
		}
	}
	for _, g := range slices.Sorted(maps.Keys(granted)) {
		if used[g] == "" && g != "list onecloud.yunion.io/onecloudoperations" { // this API server streams the list
			b.Errorf("granted and never used: %s", g)
		}
	}
}

// busy checks that, while an operation runs elsewhere, a scheduled backup gives up and names it, and an update waits.
func (b *backups) busy() {
	b.Helper()
	b.Operation("held", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup, Backup: &v1alpha1.BackupParameters{Place: "elsewhere"}})
	o := b.UntilOperation("held", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationPending })
	if o.Status.Message != "waiting for the program that runs it" {
		b.Errorf("%+v", o.Status)
	}
	b.status("held", func(s *v1alpha1.OnecloudOperationStatus) {
		s.Runner = &v1alpha1.OperationRunner{Name: "another machine", Renewed: metav1.NowMicro()}
	})
	b.UntilOperation("held", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationRunning })
	_, _, err := cluster.ScheduledBackup(b.Context(), b.Client, b.key, cluster.Mounted{Dir: b.dir, Place: "node7:/srv/backups"}, cluster.Recorded{By: "pod", Wait: time.Second})
	if f := b.code(err, "OCA-7421"); !strings.Contains(f.Cause, "waiting for operation held") {
		b.Errorf("%+v", f)
	}
	h, err := archive.History(b.Context(), b.Client, namespace)
	if err != nil || !strings.Contains(h[0].Error, "waiting for operation held") {
		b.Errorf("the skipped night: %+v %v", h[0], err)
	}
	b.Operation("later", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Update: &v1alpha1.UpdateParameters{Version: "v4.0.5"}})
	o = b.UntilOperation("later", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationPending })
	if o.Status.Message != "waiting for operation held" {
		b.Errorf("%+v", o.Status)
	}
	prints(b.Env, "cancelled", "operation", "cancel", "later")
	b.UntilOperation("later", env.Ended)
	if _, err := ocadm(b.Env, "operation", "pause", "held"); err == nil || !strings.Contains(err.Error(), "cannot be paused") {
		b.Errorf("paused: %v", err)
	}
	b.status("held", func(s *v1alpha1.OnecloudOperationStatus) { s.Phase = v1alpha1.OperationSucceeded })
}

// stuck is a directory in which writing a file blocks until its context ends.
type stuck struct {
	backup.Dir
	begun func()
}

func (s stuck) Create(ctx context.Context, name string) (backup.File, error) {
	f, err := s.Dir.Create(ctx, name)
	return stuckFile{f, ctx, s.begun}, err
}

type stuckFile struct {
	backup.File
	ctx   context.Context
	begun func()
}

func (f stuckFile) Write([]byte) (int, error) {
	f.begun()
	<-f.ctx.Done()
	return 0, context.Cause(f.ctx)
}

// cancelled checks that a user can cancel a backup and that no file is left.
func (b *backups) cancelled() {
	b.Helper()
	b.known()
	one := b.backup(func(context.Context) (backup.Store, error) {
		return stuck{backup.Dir(b.dir), func() {
			name := b.last().Name
			if _, err := cluster.Control(b.Context(), b.Client, client.ObjectKey{Namespace: namespace, Name: name}, v1alpha1.OperationCancel); err != nil {
				b.Error(err)
			}
		}}, nil
	})
	_, _, err := one.Make(b.Context(), b.Client)
	b.code(err, "OCA-7422")
	o := b.UntilOperation(b.last().Name, env.Ended)
	if o.Status.Phase != v1alpha1.OperationCancelled {
		b.Errorf("%+v", o.Status)
	}
	if list, err := backup.List(b.Context(), backup.Dir(b.dir)); err != nil || len(list) > 0 {
		b.Errorf("%+v %v", list, err)
	}
}

// cut is a directory whose backups can be read completely a number of times; later reads fail.
type cut struct {
	backup.Dir
	whole *int
}

func (c cut) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	f, err := c.Dir.Open(ctx, name)
	if err != nil || !strings.HasSuffix(name, backup.Suffix) {
		return f, err
	}
	if *c.whole--; *c.whole >= 0 {
		return f, nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(f, 20<<10), failing{}), f}, nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the cable was pulled") }

// restored checks that a restore that fails before it touches the databases is rolled back. One that fails halfway leaves the services stopped and is repeated.
func (b *backups) restored() {
	b.Helper()
	info, _, err := b.backup(nil).Make(b.Context(), b.Client)
	require.NoError(b, err)
	b.known()
	r := cluster.Restore{Store: backup.Dir(b.dir), Name: info.Name, Watch: workflow.Discard{}, Confirm: func(string) error { return nil }, Recorded: cluster.Recorded{By: "the test"},
		Before: func(context.Context, client.ObjectKey, workflow.Reporter) (backup.Info, error) {
			return backup.Info{}, finding.New("OCA-7402", "There is not enough space for the backup", "the test", "make room")
		}}
	_, err = r.Apply(b.Context(), b.Client)
	b.code(err, "OCA-7402")
	o := b.UntilOperation(b.last().Name, env.Ended)
	if o.Status.Phase != v1alpha1.OperationReverted || !o.Status.Steps[len(o.Status.Steps)-1].Revert || o.Spec.Restore.File != info.Name {
		b.Errorf("%+v", o.Status)
	}
	b.UntilReady()

	r.Before = nil
	r.Store = cut{backup.Dir(b.dir), new(2)} // read before, and again before the first database is dropped
	_, err = r.Apply(b.Context(), b.Client)
	if f := b.code(err, "OCA-7410"); !strings.Contains(f.Cause, "cable") || !strings.Contains(f.What, "stopped") {
		b.Errorf("%+v", f)
	}
	o = b.UntilOperation(b.last().Name, env.Ended)
	if o.Status.Phase != v1alpha1.OperationFailed || !o.Status.Runner.Final || b.Cloud().Annotations[v1alpha1.AnnotationPaused] != "true" {
		b.Errorf("%+v", o.Status)
	}
	r.Store = backup.Dir(b.dir)
	b.makeDatabase(b.DB, "late")
	asked := ""
	r.Confirm = func(question string) error {
		asked = question
		return nil
	}
	if done, err := r.Apply(b.Context(), b.Client); err != nil || !strings.HasSuffix(asked, "not in the backup: late") || !slices.Equal(done.Emptied, []string{"late"}) {
		b.Fatalf("%q, %+v, %v", asked, done, err)
	}
	if out, err := b.DB.Execute(b.Context(), "SHOW TABLES IN late"); err != nil || out != "" {
		b.Errorf("a database that is not in the backup holds %q (%v)", out, err)
	}
	if o := b.UntilOperation(b.last().Name, env.Ended); o.Status.Phase != v1alpha1.OperationSucceeded || o.Spec.Action != v1alpha1.ActionRestore {
		b.Errorf("%+v", o.Status)
	}
	b.UntilReady()
	prints(b.Env, "Restore", "operation", "list")
}

// alone checks that without an operator a backup succeeds, and a restore is refused before it stops anything.
func (b *backups) alone() {
	b.Helper()
	b.StopOperator()
	one := b.backup(nil)
	one.Answer, one.SkipProof = time.Second, true
	info, _, err := one.Make(b.Context(), b.Client)
	require.NoError(b, err)
	o := b.last()
	if o.Status.Phase != v1alpha1.OperationSucceeded || len(o.Status.Plan) != 1 || !strings.Contains(o.Status.Plan[0], "without its turn") {
		b.Errorf("%+v", o.Status)
	}
	r := cluster.Restore{Store: backup.Dir(b.dir), Name: info.Name, Watch: workflow.Discard{}, Confirm: func(string) error { return nil },
		Recorded: cluster.Recorded{By: "the test", Answer: time.Second}}
	_, err = r.Apply(b.Context(), b.Client)
	b.code(err, "OCA-7420")
	if a := b.Cloud().Annotations[v1alpha1.AnnotationPaused]; a != "" {
		b.Errorf("the cloud is paused: %q", a)
	}
	b.StartOperator()
	b.UntilOperation(o.Name, func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationSucceeded })
}
