// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
)

type restoring struct {
	Restore
	halting
	admin *mysql.Admin
	out   *Restored

	// cloud is the existing cloud, nil for a new one.
	cloud *unstructured.Unstructured
	// others lists its databases that are not in the backup, of components added later.
	others []string
	// release releases the lock for replacing databases, which admin holds.
	release func()
}

func (x *restoring) close() {
	if x.release != nil {
		x.release()
		x.release = nil
	}
	if x.admin != nil {
		x.admin.Close()
		x.admin = nil
	}
}

// stepDatabases is the step after which a restore cannot be undone.
const stepDatabases = "databases"

// checkFile reads the backup again, because it may have changed while the restore waited for its turn. That takes long for a large file, so it comes
// before the step that cannot be undone.
var checkFile = workflow.Phase[*restoring]{
	Name: "check", Short: "Check the backup, and whether the database server accepts it", Timeout: longStep, ReadOnly: true, Run: step((*restoring).check),
}

// inPlaceSteps returns the steps to restore into the backup's own cloud.
func inPlaceSteps() []workflow.Phase[*restoring] {
	return []workflow.Phase[*restoring]{
		{Name: "look", Short: "Check that the cloud has not changed since you confirmed", ReadOnly: true, Run: step((*restoring).look)},
		{Name: "stop", Short: "Stop the services", Timeout: longStep, Run: locked((*restoring).stop)},
		{
			Name: "save", Short: "Save the present data", Timeout: longStep, Run: locked((*restoring).save),
			Skip: workflow.SkipIf("--no-backup was given", func(x *restoring) bool { return x.Before == nil }),
		},
		checkFile,
		{Name: stepDatabases, Short: "Replace the databases, and compare every row", Timeout: longStep, Run: step((*restoring).databases)},
		{Name: "cloud", Short: "Restore the passwords and the version", Run: step((*restoring).bring)},
		{Name: "start", Short: "Start the services", Run: step((*restoring).start)},
	}
}

// undoStop undoes what was done before the databases were touched.
var undoStop = []workflow.Phase[*restoring]{{
	Name: "start-again", Short: "Start the services again", Run: step((*restoring).startAgain),
}}

// recreateSteps returns the steps that create the cloud: databases first, then passwords and certificates, and last the resource, from which the operator builds the rest.
func recreateSteps() []workflow.Phase[*restoring] {
	return []workflow.Phase[*restoring]{
		checkFile,
		{Name: stepDatabases, Short: "Restore the databases, and compare every row", Timeout: longStep, Run: step((*restoring).databases)},
		{Name: "cloud", Short: "Create the cloud", Run: step((*restoring).create)},
	}
}

// open opens the databases of the cloud, and lists those that are not in the backup.
func (x *restoring) open(ctx context.Context, cr *v1alpha1.OnecloudCluster) (err error) {
	x.close()
	if x.admin, err = openDatabases(ctx, x.client, cr, cr.Spec.MySQL, x.contents.Header.Cloud.ID); err == nil {
		x.others, err = backup.Others(ctx, x.admin, x.contents.Header.Databases)
	}
	return databaseFinding(err)
}

// question describes what a restore does to the cloud.
func (x *restoring) question() string {
	q := fmt.Sprintf("This stops cloud %s and replaces its databases with those from %s", x.key, x.contents.Header.Time.Format(time.RFC3339))
	if len(x.others) > 0 {
		q += "; it empties those that are not in the backup: " + strings.Join(x.others, ", ")
	}
	return q
}

// look reads the cloud and opens its databases again. The user has confirmed each database that will be emptied. From here to the end, a lock keeps
// other programs from replacing the databases, such as an abandoned one that still runs and would start the services when done.
func (x *restoring) look(ctx context.Context, r workflow.Reporter) error {
	cloud, cr, err := unmoved(ctx, x.client, x.key, x.from)
	if err != nil {
		return err
	}
	named := x.others
	if err := x.open(ctx, cr); err != nil {
		return err
	}
	if err := x.hold(ctx, r); err != nil {
		return err
	}
	for _, d := range x.others {
		if !slices.Contains(named, d) {
			return changedMeanwhile(x.key, fmt.Sprintf("database %s contains tables now, but is not in the backup", d))
		}
	}
	x.cloud = cloud
	return nil
}

func (x *restoring) hold(ctx context.Context, r workflow.Reporter) error {
	held, release, err := backup.Replacing(ctx, r, x.admin)
	if err != nil {
		return databaseFinding(err)
	}
	x.admin, x.release = held, release
	return nil
}

// holds fails if the lock is lost: another restore may have begun.
func (x *restoring) holds(ctx context.Context) error {
	if err := x.admin.StillHolds(ctx); err != nil {
		return x.halfway(databaseFinding(err))
	}
	return nil
}

// locked wraps a step that may outlast the connection that holds the lock. Nothing has been replaced yet, so a restore without the lock ends there.
func locked(run func(*restoring, context.Context, workflow.Reporter) error) func(context.Context, *restoring, workflow.Reporter) error {
	return step(func(x *restoring, ctx context.Context, r workflow.Reporter) error {
		if err := run(x, ctx, r); err != nil {
			return err
		}
		return databaseFinding(x.admin.StillHolds(ctx))
	})
}

// check reads and checks the backup, and whether the server accepts it. If the cloud has been started, by a user or because the operator has given this
// restore up, its databases have new rows, and are not replaced.
func (x *restoring) check(ctx context.Context, r workflow.Reporter) error {
	contents, err := backup.Try(ctx, r, x.Store, x.info, *x.contents, x.admin, x.IDs...)
	if err != nil {
		return backupFinding(err)
	}
	x.contents = &contents
	if !x.admin.Holds() { // the cloud does not exist yet
		return nil
	}
	if err := x.admin.StillHolds(ctx); err != nil {
		return databaseFinding(err)
	}
	return x.stillStopped(ctx)
}

// save continues only when a file is stored, or the server is a new one without databases. A missing note beside the file does not matter.
func (x *restoring) save(ctx context.Context, r workflow.Reporter) error {
	before, err := x.Before(ctx, x.key, r)
	if errors.Is(err, backup.ErrNothing) {
		r.Info("%v", err)
		return nil
	}
	if err != nil && before.Name == "" {
		return fmt.Errorf("saving the present data: %w", err)
	}
	if err != nil {
		r.Info("%s is stored: %v", before.Name, err)
	}
	x.out.Before = before.Name
	return nil
}

func (x *restoring) databases(ctx context.Context, r workflow.Reporter) error {
	if _, err := backup.RestoreDatabases(ctx, r, x.Store, x.info, *x.contents, x.admin, x.IDs...); err != nil {
		return x.halfway(backupFinding(err))
	}
	lines := []string{fmt.Sprintf("%s restored", x.contents.Manifest.Data)}
	if len(x.others) > 0 {
		if err := backup.Empty(ctx, r, x.admin, x.others); err != nil {
			return x.halfway(backupFinding(err))
		}
		x.out.Emptied = x.others
		lines = append(lines, "emptied, because they are not in the backup: "+strings.Join(x.others, ", "))
	}
	for _, line := range lines {
		r.Changed("%s", line)
	}
	x.out.Changes = append(x.out.Changes, lines...)
	return nil
}

// halfway returns the finding for a restore that failed while replacing databases.
func (x *restoring) halfway(err error) error {
	remedy := "run the same command again"
	if errors.Is(err, backup.ErrDamaged) || errors.Is(err, backup.ErrEncrypted) {
		remedy = "restore another backup: ocadm cluster backup list"
	} else if of := finding.Of(err); len(of) > 0 && of[0].Remedy != "" {
		remedy = of[0].Remedy + "; then run the same command again"
	}
	state := "its services are stopped"
	if x.cloud == nil {
		state = "it was not created"
	}
	return finding.Errorf("OCA-7410", fmt.Sprintf("Cloud %s was not restored; %s", x.key, state), remedy, "%w", err)
}

// bring sets the passwords and version of a cloud to those of the backup.
func (x *restoring) bring(ctx context.Context, r workflow.Reporter) error {
	if err := x.holds(ctx); err != nil {
		return err
	}
	changed := func(format string, args ...any) {
		r.Changed(format, args...)
		x.out.Changes = append(x.out.Changes, fmt.Sprintf(format, args...))
	}
	objects, err := archive.Place{Namespace: x.key.Namespace}.Objects(*x.contents)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if is, err := archive.Passwords(ctx, x.client, kube.FieldManager, u); err != nil {
			return err
		} else if is {
			changed("passwords: restored from the backup")
		}
	}
	live, now, err := load(ctx, x.client, x.key) // releases may have been created until the services stopped
	if err != nil {
		return err
	}
	if n, err := x.remember(ctx, now, live); err != nil {
		return err
	} else if n > 0 {
		changed("%d records of the state of databases: restored from the backup", n)
	}
	if v := x.contents.Header.Version; v != "" && v != now.Spec.Version {
		patch := annotation(v1alpha1.AnnotationAtOnce, strconv.Itoa(now.Status.Release.Revision)) // the databases have that version already
		patch["spec"] = map[string]any{"version": v}
		if err := merge(ctx, x.client, x.cloud, patch); err != nil {
			return fmt.Errorf("setting the version of the backup: %w", err)
		}
		changed("spec.version: %s → %s", orNone(now.Spec.Version), v)
	}
	return endPause(ctx, x.client, x.key, changed)
}

// start starts the services, even if the cloud was stopped before.
func (x *restoring) start(ctx context.Context, _ workflow.Reporter) error {
	if err := x.holds(ctx); err != nil {
		return err
	}
	return Start(ctx, x.client, x.key)
}

func (x *restoring) create(ctx context.Context, r workflow.Reporter) error {
	objects, err := x.place(x.key.Namespace).Objects(*x.contents)
	if err != nil {
		return err
	}
	namespace := object("Namespace", "", x.key.Namespace, nil)
	if err := x.client.Create(ctx, namespace, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %s: %w", x.key.Namespace, err)
	}
	lines, err := archive.Put(ctx, x.client, kube.FieldManager, objects)
	for _, line := range lines {
		r.Changed("%s", line)
	}
	x.out.Changes = append(x.out.Changes, lines...)
	return err
}
