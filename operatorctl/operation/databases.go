// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Databases follow the services: docs/decisions/0037. They are copied on their server before anything moves. When the cloud goes back, those whose table
// definitions have changed are replaced by their copies, while nothing that uses them runs.

// databasesTimeout bounds a step that reads or writes all databases.
const databasesTimeout = 4 * time.Hour

// openVault opens the databases of the cloud. The caller closes its Admin. there is false for a cloud without a server.
func (r *Run) openVault(ctx context.Context, cloud *v1alpha1.OnecloudCluster) (v backup.Vault, there bool, err error) {
	if cloud.Spec.MySQL.Host == "" {
		return v, false, nil
	}
	err = patiently(ctx, func() (err error) {
		v.CloudID, err = archive.CredentialsID(ctx, r.Direct, client.ObjectKeyFromObject(cloud))
		return err
	})
	if err != nil {
		return v, false, err
	}
	v.CloudID = cmp.Or(v.CloudID, string(cloud.UID))
	owner := backup.Cloud{ID: v.CloudID, Namespace: cloud.Namespace, Name: cloud.Name}
	err = r.reach(ctx, func() (err error) {
		v.Admin, err = archive.Connect(ctx, r.Direct, cloud.Namespace, cloud.Spec.MySQL, owner, r.Connections.Dial)
		return err
	})
	return v, err == nil, err
}

// databaseWork is the work of a step on the cloud's databases.
type databaseWork struct {
	mover
	vault backup.Vault
}

// onDatabases returns the Run of a step that works on the cloud's databases. It does nothing for a cloud without a server.
func onDatabases(work func(context.Context, databaseWork, *v1alpha1.OnecloudCluster) error) func(context.Context, *Run, workflow.Reporter) error {
	return moving(func(ctx context.Context, m mover) error {
		cloud, err := m.Cloud(ctx)
		if err != nil {
			return err
		}
		v, there, err := m.openVault(ctx, cloud)
		if err != nil || !there {
			return err
		}
		defer v.Admin.Close()
		return work(ctx, databaseWork{m, v}, cloud)
	})
}

// maker identifies the operation that makes the copies.
func (w databaseWork) maker() string { return w.Operation.Name + "/" + string(w.Operation.UID) }

// savedSet returns the name of the set of copies made when a cloud left a release.
func savedSet(release int) string { return fmt.Sprintf("b%d", release) }

// save copies the databases before anything moves.
func save() Step {
	return Step{
		Name: "save", Short: "Copy the databases", Timeout: databasesTimeout,
		Skip: workflow.SkipIf("an update without copies was requested", func(r *Run) bool {
			p := r.Operation.Spec.Update
			return p != nil && p.NoBackup
		}),
		Run: onDatabases(func(ctx context.Context, w databaseWork, cloud *v1alpha1.OnecloudCluster) error {
			names, err := databasesToCopy(ctx, w.vault.Admin, cloud)
			if err != nil || len(names) == 0 {
				return err
			}
			size, err := w.vault.Admin.Size(ctx, names...)
			if err != nil {
				return err
			}
			w.report.Info("copying %s, %s, on their server", lists.Counted(len(names), "database"), mebibytes(size))
			saved, err := w.copySet(ctx, savedSet(w.rollout().From), names)
			if err != nil {
				return err
			}
			keep := []string{saved.Set}
			if w.Operation.Spec.Rollback != nil {
				to := targetOf(w.Operation, w.Status())
				if to == 0 {
					return errors.New("the release to roll back to is not recorded: its copies would be removed")
				}
				keep = append(keep, savedSet(to))
			}
			if err := w.vault.Keep(ctx, keep...); err != nil {
				return err
			}
			w.report.Changed("%s", copied(saved))
			return w.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
				s.Databases = &v1alpha1.OperationDatabases{Saved: copies(saved)}
			})
		}),
	}
}

// copySet copies databases into a set. A set that a killed operator made is kept if it holds all of them. An incomplete one is made again, unless
// databases were replaced since: then the copies go into another set.
func (w databaseWork) copySet(ctx context.Context, set string, databases []string) (backup.Saved, error) {
	for name, n := set, 2; ; name, n = fmt.Sprintf("%sv%d", set, n), n+1 { // f3v2 follows f3
		was, there, err := w.vault.Read(ctx, name)
		if err != nil {
			return was, err
		}
		lacks := there && was.By == w.maker() && slices.ContainsFunc(databases, func(d string) bool { return !slices.Contains(was.Databases(), d) })
		s := w.Status()
		if lacks && saidReplaced(&s, name) {
			continue
		}
		if lacks {
			if err := w.vault.Drop(ctx, name); err != nil {
				return was, err
			}
		}
		return w.vault.Save(ctx, name, w.maker(), databases, w.report)
	}
}

// saidReplaced reports whether the status says that a set holds replaced contents.
func saidReplaced(s *v1alpha1.OnecloudOperationStatus, set string) bool {
	return s.Databases != nil && slices.ContainsFunc(s.Databases.Replaced, func(c v1alpha1.DatabaseCopies) bool { return c.Set == set })
}

// Recorded returns the existing databases that belong to a cloud. It returns a finding if one that a component uses is not recorded as the cloud's: copies
// and backups would lack it.
func Recorded(ctx context.Context, admin *mysql.Admin, cloud *v1alpha1.OnecloudCluster) ([]string, error) {
	have, err := backup.Databases(ctx, admin)
	if err != nil {
		return nil, err
	}
	there, err := admin.Databases(ctx)
	if err != nil {
		return nil, err
	}
	if left := leftOut(cloud.Status.Components, there, have); len(left) > 0 {
		return nil, finding.New(codeLeftOut, "Databases of the cloud are not recorded as its own", strings.Join(left, ", ")+
			": the server does not record that they belong to the cloud, so they would not be copied",
			"the operator records them again within 15 minutes; then try again, or see ocadm explain "+codeLeftOut)
	}
	return have, nil
}

// databasesToCopy returns the existing databases of the cloud's components. It fails if one that a component uses would be left out.
func databasesToCopy(ctx context.Context, admin *mysql.Admin, cloud *v1alpha1.OnecloudCluster) ([]string, error) {
	have, err := Recorded(ctx, admin, cloud)
	if err != nil {
		return nil, err
	}
	enabled := lists.Pick(cloud.Status.Components, func(c v1alpha1.ComponentStatus) (string, bool) { return c.Name, c.State != v1alpha1.Disabled })
	want := databasesOf(enabled)
	return slices.DeleteFunc(have, func(name string) bool { return !slices.Contains(want, name) }), nil
}

const codeLeftOut = "OCA-7075"

// leftOut returns the databases that components use and the cloud does not own: those that exist, or, if it owns none of them, all that should exist. It
// is pure.
func leftOut(components []v1alpha1.ComponentStatus, there, owned []string) []string {
	var serve, run []string
	for _, c := range components {
		switch c.State {
		case v1alpha1.Available, v1alpha1.Progressing:
			serve, run = append(serve, c.Name), append(run, c.Name)
		case v1alpha1.Degraded: // its database may belong to another cloud
			run = append(run, c.Name)
		}
	}
	all := databasesOf(run)
	if !slices.ContainsFunc(all, func(d string) bool { return slices.Contains(owned, d) }) {
		return all
	}
	return slices.DeleteFunc(databasesOf(serve), func(d string) bool { return slices.Contains(owned, d) || !slices.Contains(there, d) })
}

// databasesOf returns the databases of components that run something.
func databasesOf(components []string) []string {
	var out []string
	for _, c := range catalog.All() {
		if c.Database != nil && c.Workload.Kind != component.NoWorkload && slices.Contains(components, c.Name) {
			out = append(append(out, c.Database.Name), c.Database.More...)
		}
	}
	return out
}

// usersOf returns the components that write to databases: their owners, and the services that use the account of an owner. Node agents that use one only
// read.
func usersOf(databases []string) []string {
	owns := func(c component.Component) bool {
		return c.Database != nil && slices.ContainsFunc(databasesOf([]string{c.Name}), func(d string) bool { return slices.Contains(databases, d) })
	}
	all := catalog.All()
	return catalog.Names(func(c component.Component) bool {
		shares := c.Config != nil && c.Config.AccountOf != "" && slices.ContainsFunc(all, func(o component.Component) bool { return o.Name == c.Config.AccountOf && owns(o) })
		return owns(c) || shares && c.WorkloadKind() == component.Deployment
	})
}

func copies(s backup.Saved) *v1alpha1.DatabaseCopies {
	return &v1alpha1.DatabaseCopies{Set: s.Set, Prefix: s.Prefix(), Time: metav1.NewTime(s.Time), Databases: s.Databases()}
}

func copied(s backup.Saved) string {
	return fmt.Sprintf("copied %s to %s…", s.Data, s.Prefix())
}

// intact returns an error if copies do not hold what was saved. They are databases on a server that others can write to, too.
func (w databaseWork) intact(ctx context.Context, saved backup.Saved, databases []string) error {
	names, original := make([]string, len(databases)), map[string]string{}
	for i, d := range databases {
		names[i] = saved.Copy(d)
		original[names[i]] = d
	}
	there, err := w.vault.Admin.Databases(ctx)
	if err != nil {
		return err
	}
	have, err := dump.Examine(ctx, w.vault.Admin, slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(there, name) }))
	if err != nil {
		return err
	}
	lines := altered(saved.Data, have, databases, original)
	if len(lines) == 0 {
		return nil
	}
	return finding.New("OCA-7076", "The copies of the databases were changed", strings.Join(lists.Some(lines, maxLines), "; "),
		"undo the change in databases "+saved.Prefix()+"…, then: ocadm operation resume "+w.Operation.Name+"; or restore a backup: ocadm cluster backup list")
}

// altered returns how copies differ from what was saved, one line per table. It is pure.
func altered(saved, have dump.Summary, databases []string, original map[string]string) []string {
	for i, d := range have.Databases {
		have.Databases[i].Name = original[d.Name]
	}
	saved.Databases = slices.DeleteFunc(slices.Clone(saved.Databases), func(d dump.DatabaseSummary) bool { return !slices.Contains(databases, d.Name) })
	same := func(d string) string { return d }
	lines := backup.Same(saved, have, same)
	for _, line := range backup.Same(have, saved, same) {
		if table, is := strings.CutSuffix(line, " is missing"); is {
			lines = append(lines, table+" was not saved")
		}
	}
	for _, d := range databases {
		if !slices.ContainsFunc(have.Databases, func(h dump.DatabaseSummary) bool { return h.Name == d }) {
			lines = append(lines, "the copy of "+d+" is missing")
		}
	}
	return lines
}
