// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"filippo.io/age"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Restore restores a cloud from a backup: into the cloud it was made of, or as a new one.
type Restore struct {
	// Namespace of the cloud; if empty, the one in the backup.
	Namespace string
	Store     backup.Store
	Name      string
	IDs       []age.Identity
	// MySQL is the database server of a new cloud, with its password; if its host is empty, the one in the backup.
	MySQL v1alpha1.DatabaseServer
	// Address of a new cloud, as in spec.loadBalancerEndpoint; if empty, the one in the backup.
	Address string
	// Spec holds other fields of a new cloud that depend on where it runs, as in archive.Place.
	Spec map[string]any
	// Before backs up the current content of an existing cloud; nil skips that.
	Before func(ctx context.Context, key client.ObjectKey, report workflow.Reporter) (backup.Info, error)
	// Confirm is called before the first change.
	Confirm func(question string) error
	// Patience bounds the wait for an unreachable database server of a new cloud; Waiting receives the reason meanwhile. Zero means a single attempt.
	Patience time.Duration
	Waiting  func(what, why string)
	// Watch receives the progress of reading the file.
	Watch backup.Watcher
	Recorded

	info     backup.Info
	contents *backup.Contents
}

// Read reads and checks the whole backup. A later Apply reuses the result.
func (r *Restore) Read(ctx context.Context) (backup.Contents, error) {
	var err error
	if r.info, err = backup.ReadInfo(ctx, r.Store, r.Name); err != nil {
		return backup.Contents{}, backupFinding(err)
	}
	r.Watch.Info("reading and checking %s", r.Name)
	contents, err := backup.Verify(ctx, r.Watch, r.Store, r.info, r.IDs...)
	if err != nil {
		return contents, backupFinding(err)
	}
	if v := contents.Header.Version; version.UnknownRelease(v) {
		return contents, operation.UnknownRelease("ocadm", "ocadm", v)
	}
	r.contents = &contents
	return contents, nil
}

// Key names the cloud that the backup is restored to. Call Read first.
func (r *Restore) Key() client.ObjectKey {
	saved := r.contents.Header.Cloud
	return client.ObjectKey{Namespace: cmp.Or(r.Namespace, saved.Namespace), Name: saved.Name}
}

func (r *Restore) place(namespace string) archive.Place {
	return archive.Place{Namespace: namespace, MySQL: r.MySQL, Address: r.Address, Spec: r.Spec}
}

// Cloud returns the resource that restoring the backup as a new cloud creates. Call Read first.
func (r *Restore) Cloud() (*unstructured.Unstructured, error) {
	objects, err := r.place(r.Key().Namespace).Objects(*r.contents)
	if err != nil {
		return nil, err
	}
	return objects[len(objects)-1], nil
}

// Exists reports whether the cloud of the backup exists. A restore creates it last. Call Read first.
func (r *Restore) Exists(ctx context.Context, c client.Client) (bool, error) {
	live, err := get(ctx, c, r.Key())
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := leaving(live); err != nil {
		return true, err
	}
	return true, r.same(ctx, c)
}

// same returns a finding if the existing cloud is not the one in the backup.
func (r *Restore) same(ctx context.Context, c client.Client) error {
	id, err := archive.CredentialsID(ctx, c, r.Key())
	if err == nil && id != "" && id != r.contents.Header.Cloud.ID {
		return finding.New("OCA-7407", fmt.Sprintf("Cloud %s is not the one in the backup", r.Key()), "the backup is of a cloud with another ID",
			"restore it into another namespace with --namespace, or delete this cloud first: ocadm cluster delete")
	}
	return err
}

// Restored is the result of a restore.
type Restored struct {
	Cloud   string   `json:"cloud"`
	Backup  string   `json:"backup"`
	Changes []string `json:"changes"`
	Tables  int      `json:"tables"`
	Rows    int64    `json:"rows"`
	// Before names the backup of the previous content.
	Before string `json:"before,omitempty"`
	// Emptied lists the databases of the cloud that are not in the backup.
	Emptied []string `json:"emptied,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Apply restores the backup. If interrupted, it can be run again.
func (r Restore) Apply(ctx context.Context, c client.WithWatch) (Restored, error) {
	began := time.Now()
	if r.contents == nil {
		if _, err := r.Read(ctx); err != nil {
			return Restored{}, err
		}
	}
	contents, key := *r.contents, r.Key()
	out := Restored{Cloud: key.String(), Backup: r.Name}
	out.Tables, out.Rows = contents.Manifest.Data.Count()
	live, err := get(ctx, c, key)
	switch {
	case err == nil:
		if err = leaving(live); err == nil {
			err = r.inPlace(ctx, c, live, &out)
		}
	case apierrors.IsNotFound(err):
		err = r.recreate(ctx, c, key, contents, &out)
	}
	out.Seconds = time.Since(began).Seconds()
	return out, backupFinding(err)
}

// inPlace restores into the backup's own cloud.
func (r Restore) inPlace(ctx context.Context, c client.WithWatch, live *unstructured.Unstructured, out *Restored) error {
	if err := r.same(ctx, c); err != nil {
		return err
	}
	key := r.Key()
	if r.MySQL.Host != "" || r.Address != "" {
		return finding.New("OCA-7408", fmt.Sprintf("Cloud %s exists: it is restored in place", key), "another address or database server is only possible for a new cloud",
			"leave out --database-host and --load-balancer-endpoint; to move the databases: ocadm cluster move-database")
	}
	cr, err := typed(live)
	if err != nil {
		return err
	}
	x := &restoring{Restore: r, halting: halting{client: c, key: key, from: cr.Spec.MySQL}, cloud: live, out: out}
	defer x.close()
	if err := x.open(ctx, cr); err != nil {
		return err
	}
	if err := r.Confirm(x.question()); err != nil {
		return err
	}
	runner := r.runner(c, key, r.spec())
	x.operation = runner.Operation
	return operation.Perform(ctx, runner, operation.Work[*restoring]{Steps: inPlaceSteps(), Final: stepDatabases, Revert: undoStop}, x, nil)
}

func (r Restore) spec() v1alpha1.OnecloudOperationSpec {
	return v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionRestore, Restore: &v1alpha1.RestoreParameters{File: r.Name, Place: r.Store.String()}}
}

// recreate creates the cloud: databases first, then passwords and certificates, and last the resource, from which the operator builds the rest.
func (r Restore) recreate(ctx context.Context, c client.WithWatch, key client.ObjectKey, contents backup.Contents, out *Restored) error {
	id := contents.Header.Cloud.ID
	if have, err := archive.CredentialsID(ctx, c, key); err != nil {
		return err
	} else if have != "" && have != id {
		return finding.New("OCA-7407", fmt.Sprintf("Namespace %s holds the passwords of another cloud of this name", key.Namespace),
			"a cloud was deleted there, and its passwords were kept", "restore it into another namespace with --namespace")
	}
	server := r.MySQL
	if server.Host == "" {
		var err error
		if server, err = archive.Server(contents); err != nil {
			return err
		}
	}
	if err := alone(ctx, c, Options{Name: key.Name, Namespace: key.Namespace}); err != nil {
		return err
	}
	if err := r.accepted(ctx, c); err != nil {
		return err
	}
	if server.Password != "" {
		server.PasswordSecretRef = nil
	}
	x := &restoring{Restore: r, halting: halting{client: c, key: key}, out: out}
	defer x.close()
	var err error
	owner := backup.Cloud{ID: id, Namespace: key.Namespace, Name: key.Name}
	if x.admin, err = reach(ctx, r.Patience, r.Waiting, func() (*mysql.Admin, error) {
		return archive.Connect(ctx, c, key.Namespace, server, owner, dial(c, key.Namespace))
	}); err != nil {
		return databaseFinding(err)
	}
	if err := twin(ctx, c, key, x.admin, server); err != nil {
		return err
	}
	if err := r.overwrites(ctx, x.admin, contents, server.Host); err != nil {
		return err
	}
	runner := r.runner(c, key, r.spec())
	runner.Later = true
	return operation.Perform(ctx, runner, operation.Work[*restoring]{Steps: recreateSteps(), Final: stepDatabases, Unlocked: true}, x, nil)
}

// accepted fails if the API server would refuse the cloud, or drop fields of it, which a newer ocadm has. The cloud is created last, when its databases
// have been replaced. Its namespace may not exist yet.
func (r *Restore) accepted(ctx context.Context, c client.Client) error {
	cloud, err := r.Cloud()
	if err != nil {
		return err
	}
	for _, namespace := range []string{cloud.GetNamespace(), metav1.NamespaceDefault} {
		cloud.SetNamespace(namespace)
		err = c.Create(ctx, cloud.DeepCopy(), client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict), client.FieldOwner(kube.FieldManager))
		if !apierrors.IsNotFound(err) {
			break
		}
	}
	switch {
	case apierrors.IsAlreadyExists(err): // another cloud, in namespace default
		return nil
	case meta.IsNoMatchError(err):
		return notInstalled(err)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err):
		return finding.New("OCA-7440", fmt.Sprintf("Cloud %s cannot be created from the backup", r.Key()), err.Error(),
			"if the backup was made by a newer ocadm, update ocadm and the operator first; it was made by "+r.contents.Header.Ocadm)
	}
	return err
}

// overwrites asks for confirmation if databases of the cloud exist on the server.
func (r Restore) overwrites(ctx context.Context, a *mysql.Admin, contents backup.Contents, host string) error {
	have, err := backup.Databases(ctx, a)
	if err != nil || len(have) == 0 {
		return err
	}
	present, err := dump.Examine(ctx, a, have)
	if err != nil {
		return err
	}
	if backup.Agrees(contents.Manifest.Data, present) {
		return nil // an earlier run has restored them
	}
	return r.Confirm(fmt.Sprintf("This replaces %s of the cloud on %s with the backup from %s", lists.Counted(len(have), "database"), host, contents.Header.Time.Format(time.RFC3339)))
}

// twin refuses a second cloud on the databases of a running one, whatever the address of their server. A server that does not answer may be the same one,
// unless nothing of the cloud is on this one.
func twin(ctx context.Context, c client.Client, key client.ObjectKey, a *mysql.Admin, server v1alpha1.DatabaseServer) error {
	all, err := All(ctx, c)
	if err != nil {
		return err
	}
	for _, cr := range all {
		other := client.ObjectKeyFromObject(&cr)
		have, err := archive.CredentialsID(ctx, c, other)
		if err != nil {
			return err
		}
		if other == key || have != a.Owner().ID {
			continue
		}
		its, err := openDatabases(ctx, c, &cr, cr.Spec.MySQL, have)
		if err == nil {
			err = a.Apart(ctx, its)
			its.Close()
		}
		remedy := "restore into it with --namespace " + other.Namespace + ", or name another database server: --database-host, with ocadm init --mysql-host"
		switch same := address(cr.Spec.MySQL) == address(server) || mysql.ClassOf(err) == mysql.Refused; {
		case same:
			return finding.New("OCA-7409", fmt.Sprintf("Cloud %s exists, and uses these databases", other), "it is the cloud of the backup", remedy)
		case err != nil:
			owned, _, ownedErr := a.Owned(ctx)
			if ownedErr != nil {
				return databaseFinding(ownedErr)
			}
			if len(owned) == 0 {
				continue
			}
			remedy += "; if its database server is lost: ocadm cluster delete --namespace " + other.Namespace + " --name " + other.Name
			return finding.Errorf("OCA-7409", fmt.Sprintf("Cloud %s exists, and may use these databases", other), remedy, "%w", err)
		}
	}
	return nil
}

func port(s v1alpha1.DatabaseServer) int32 { return cmp.Or(s.Port, 3306) }
