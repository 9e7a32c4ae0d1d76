// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// programs tests operations in real processes: those of pods, and commands that are killed.
type programs struct {
	*cloudTest
	jobs      *env.JobPods
	dir, key  string
	recipient string
}

func newPrograms(t *testing.T) *programs {
	t.Helper()
	p := &programs{cloudTest: newCloudTest(t, env.Options{Jobs: true}), dir: t.TempDir()}
	p.operate()
	p.Create(p.Only(env.Small...))
	p.UntilReady()
	p.Rest()
	p.jobs = p.StartOwnJobPods()
	key, id := agekey.Write(t, p.dir)
	p.key, p.recipient = key, id.Recipient().String()
	p.SQL(p.DB, "CREATE TABLE keystone.first (id INT PRIMARY KEY)", "INSERT INTO keystone.first VALUES (1), (2)",
		"CREATE TABLE keystone.held (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO keystone.held VALUES (1, 'one')")
	return p
}

// operate starts an operator that may create Jobs.
func (p *programs) operate(change ...func(*env.Launch)) {
	p.Helper()
	p.StartOperator(append(change, func(l *env.Launch) { l.Options.Image = "registry.example.org/ocadm:v0" })...)
}

// holding locks a table, so that reads and drops of it wait until release is called. It stops a process at a known point.
func (p *programs) holding(db *mariadb.Server) (release func()) {
	p.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = db.Execute(ctx, "LOCK TABLES keystone.held WRITE", "SELECT SLEEP(600)") // it is killed
	}()
	const sleeps = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP(600)%'"
	p.Eventually(func() (bool, string) { return p.SQL(db, sleeps) != "", "the table is not locked" })
	done := false
	release = func() {
		if done {
			return
		}
		done = true
		p.SQL(db, "KILL "+p.SQL(db, sleeps))
		cancel()
		<-ended
	}
	p.Cleanup(release)
	return release
}

// waits waits until a statement of a process waits for the table.
func (p *programs) waits(db *mariadb.Server) {
	p.Helper()
	p.Eventually(func() (bool, string) {
		all := p.SQL(db, "SELECT STATE, INFO FROM information_schema.PROCESSLIST")
		for line := range strings.Lines(all) {
			if strings.HasPrefix(line, "Waiting for ") && (strings.Contains(line, "held") || strings.Contains(line, "DROP DATABASE")) {
				return true, ""
			}
		}
		return false, "nothing waits for the table:\n" + all
	})
}

// process is ocadm in a separate process.
type process struct {
	*exec.Cmd
	said bytes.Buffer
}

func (p *programs) start(args ...string) *process {
	p.Helper()
	self, err := os.Executable()
	require.NoError(p, err)
	c := &process{Cmd: exec.CommandContext(context.WithoutCancel(p.Context()), self, append(args, "--kubeconfig", p.Cluster.Kubeconfig)...)}
	c.Env = append(os.Environ(), env.AsProgram+"=1")
	c.Stdout, c.Stderr = &c.said, &c.said
	require.NoError(p, c.Start())
	p.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// running returns the name of the running operation with an action.
func (p *programs) running(action string) string {
	p.Helper()
	name := ""
	p.Eventually(func() (bool, string) {
		for _, o := range p.Operations() {
			if o.Spec.Action == action && o.Status.Phase.Active() {
				name = o.Name
			}
		}
		return name != "", "no operation runs"
	})
	return name
}

// lost replaces the operator by one with a short timeout for signs of life from a program, and returns the resulting operation.
func (p *programs) lost(name string) *v1alpha1.OnecloudOperation {
	p.Helper()
	p.StopOperator()
	p.operate(func(l *env.Launch) { l.Options.Operations.Silence = time.Second })
	o := p.UntilOperation(name, env.Ended)
	p.StopOperator()
	p.operate()
	if !strings.Contains(o.Status.Message, "sent no heartbeat for 1s") {
		p.Errorf("%+v", o.Status)
	}
	return o
}

// stopped reports whether the services of the cloud are stopped.
func (p *programs) stopped() bool {
	p.Helper()
	return p.Cloud().Annotations[v1alpha1.AnnotationPaused] == "true"
}

// parts returns the files of incomplete backups.
func (p *programs) parts(dir string) []string {
	p.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(p, err)
	var out []string
	for _, f := range all {
		if strings.HasPrefix(f.Name(), ".") {
			out = append(out, f.Name())
		}
	}
	return out
}

// TestPrograms checks that a pod makes a backup requested through the API server, and that killed commands leave nothing behind and can be repeated.
func TestPrograms(t *testing.T) {
	p := newPrograms(t)
	p.asked()
	p.killedBackup()
	p.killedRestore()
}

// asked checks that a backup requested without a schedule is refused, and that with one the annotation and a new operation each start a pod that makes it.
func (p *programs) asked() {
	p.Helper()
	p.Operation("refused", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup})
	o := p.UntilOperation("refused", env.Ended)
	if len(o.Status.Findings) != 1 || o.Status.Findings[0].Code != "OCA-7423" || o.Status.Phase != v1alpha1.OperationFailed {
		p.Errorf("%+v", o.Status)
	}
	prints(p.Env, "spec.backup.disable", "cluster", "backup", "schedule", "--at", "@yearly", "--recipient", p.recipient)
	p.EditObject(&v1alpha1.OnecloudCluster{}, cloud, `{"metadata":{"annotations":{"`+v1alpha1.AnnotationOperation+`":"Backup"}}}`)
	name := ""
	p.Eventually(func() (bool, string) {
		for _, o := range p.Operations() {
			if o.Spec.Action == v1alpha1.ActionBackup && o.Name != "refused" {
				name = o.Name
			}
		}
		return name != "", "there is no operation"
	})
	o = p.UntilOperation(name, env.Ended)
	if s := o.Status; s.Phase != v1alpha1.OperationSucceeded || s.Backup == nil || s.Backup.Proven.IsZero() || s.Runner == nil || s.Start.IsZero() {
		p.Fatalf("%+v", s)
	}
	list, err := backup.List(p.Context(), backup.Dir(p.jobs.Dir))
	if err != nil || len(list) != 1 || list[0].Name != o.Status.Backup.Name || !list[0].Encrypted {
		p.Fatalf("%+v %v", list, err)
	}
	p.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionBackupProven)
	})

	release := p.holding(p.DB)
	p.Operation("killed", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup})
	p.waits(p.DB)
	p.jobs.End("killed", func(pod *env.JobPod) {
		pod.OOM = true
		_ = pod.Process.Kill()
	})
	o = p.UntilOperation("killed", env.Ended)
	if o.Status.Phase != v1alpha1.OperationFailed || o.Status.Findings[0].Code != "OCA-7624" || !strings.Contains(o.Status.Message, "OOMKilled") {
		p.Errorf("%+v", o.Status)
	}
	prints(p.Env, "OOMKilled", "cluster", "backup", "list")

	p.Operation("cancelled", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup})
	p.UntilOperation("cancelled", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Step == "dump" })
	prints(p.Env, "cancelled", "operation", "cancel", "cancelled")
	if o := p.UntilOperation("cancelled", env.Ended); o.Status.Phase != v1alpha1.OperationCancelled {
		p.Errorf("%+v", o.Status)
	}
	release()
	job := &batchv1.Job{}
	p.Get(job, "cancelled")
	if *job.Spec.BackoffLimit != 0 {
		p.Errorf("%+v", job.Spec)
	}
	if parts := p.parts(p.jobs.Dir); len(parts) != 0 { // the next one has removed that of the killed pod
		p.Errorf("%q", parts)
	}
}

// killedBackup kills (kill -9) a command that is writing a file. The partial file is never listed, and the next backup removes it.
func (p *programs) killedBackup() {
	p.Helper()
	args := []string{"cluster", "backup", "create", "--to", p.dir, "--recipient", p.recipient}
	release := p.holding(p.DB)
	c := p.start(args...)
	p.waits(p.DB)
	name := p.running(v1alpha1.ActionBackup)
	require.NoError(p, c.Process.Kill())
	release()
	if parts := p.parts(p.dir); len(parts) == 0 {
		p.Errorf("the command had not begun to write:\n%s", c.said.String())
	}
	if o := p.lost(name); o.Status.Phase != v1alpha1.OperationFailed || !strings.Contains(o.Status.Message, "incomplete files are never listed") {
		p.Errorf("%+v", o.Status)
	}
	if list, err := backup.List(p.Context(), backup.Dir(p.dir)); err != nil || len(list) != 0 {
		p.Errorf("%+v %v", list, err)
	}
	prints(p.Env, "sent no heartbeat", "cluster", "backup", "list")
	prints(p.Env, "ocadm-backup", args...)
	if parts := p.parts(p.dir); len(parts) != 0 {
		p.Errorf("%q", parts)
	}
}

// killedRestore kills (kill -9) a restore. Before it replaces databases, the operator starts the services again. After that they stay stopped, and
// the same command restores the cloud.
func (p *programs) killedRestore() {
	p.Helper()
	list, err := backup.List(p.Context(), backup.Dir(p.dir))
	if err != nil || len(list) != 1 {
		p.Fatalf("%+v %v", list, err)
	}
	args := []string{"cluster", "backup", "restore", filepath.Join(p.dir, list[0].Name), "--identity", p.key, "--yes"}
	p.SQL(p.DB, "INSERT INTO keystone.held VALUES (2, 'later')")
	release := p.holding(p.DB)
	c := p.start(args...)
	p.waits(p.DB)
	if !p.stopped() {
		p.Errorf("the services run:\n%s", c.said.String())
	}
	name := p.running(v1alpha1.ActionRestore)
	require.NoError(p, c.Process.Kill())
	release()
	if o := p.lost(name); o.Status.Phase != v1alpha1.OperationReverted || !strings.Contains(o.Status.Message, "all changes were undone") {
		p.Errorf("%+v", o.Status)
	}
	if p.stopped() || p.SQL(p.DB, "SELECT COUNT(*) FROM keystone.held") != "2" {
		p.Error("the cloud is not as it was")
	}
	p.UntilReady()

	release = p.holding(p.DB)
	c = p.start(append(args, "--no-backup")...)
	p.waits(p.DB)
	name = p.running(v1alpha1.ActionRestore)
	_, err = cluster.Control(p.Context(), p.Client, client.ObjectKey{Namespace: namespace, Name: name}, v1alpha1.OperationCancel)
	if err == nil || !strings.Contains(err.Error(), "half-replaced") {
		p.Errorf("a restore that replaces databases was cancelled: %v", err)
	}
	require.NoError(p, c.Process.Kill())
	release()
	if o := p.lost(name); o.Status.Phase != v1alpha1.OperationFailed || !strings.Contains(o.Status.Message, "run the same ocadm cluster backup restore again") {
		p.Errorf("%+v", o.Status)
	}
	if !p.stopped() {
		p.Error("the services run on databases that may be half restored")
	}
	prints(p.Env, "restored from", args...)
	p.UntilReady()
	if rows := p.SQL(p.DB, "SELECT COUNT(*) FROM keystone.held"); rows != "1" {
		p.Errorf("%s rows", rows)
	}
}
