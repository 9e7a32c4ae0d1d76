// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/release"
)

// A component that is new in a release gets a database and an account. Reverting the update removes both: docs/decisions/0050. What existed before the
// operation is never touched, no matter who created it.

// madeSet returns the name of the set with what databases held that an operation made and removed.
func madeSet(release int) string { return fmt.Sprintf("n%d", release) }

// absent returns the components that have no database and no account on the cloud's server.
func (m mover) absent(ctx context.Context, cloud *v1alpha1.OnecloudCluster) ([]string, error) {
	v, there, err := m.openVault(ctx, cloud)
	if err != nil || !there {
		return nil, err
	}
	defer v.Admin.Close()
	databases, err := v.Admin.Databases(ctx)
	if err != nil {
		return nil, err
	}
	accounts, err := v.Admin.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	return withoutDatabase(catalog.All(), databases, accounts), nil
}

// withoutDatabase returns the components that have nothing on a database server. It is pure.
func withoutDatabase(all []component.Component, databases []string, accounts []mysql.UserHost) (out []string) {
	for _, c := range all {
		if c.Database == nil {
			continue
		}
		there := slices.ContainsFunc(append([]string{c.Database.Name}, c.Database.More...), func(d string) bool {
			return slices.ContainsFunc(databases, func(have string) bool { return strings.EqualFold(have, d) })
		}) || slices.ContainsFunc(accounts, func(a mysql.UserHost) bool { return strings.EqualFold(a.User, c.Database.Account()) })
		if !there {
			out = append(out, c.Name)
		}
	}
	return out
}

// made returns the components that the operation's release added, that had nothing on the server before, and that are disabled again. It is pure.
func made(absent []string, before, added *release.Release, now []v1alpha1.ComponentStatus) []string {
	has := func(r *release.Release, name string) bool {
		return slices.ContainsFunc(r.Objects, func(o release.Object) bool { return o.Component == name })
	}
	return slices.DeleteFunc(slices.Clone(absent), func(name string) bool {
		runs := slices.ContainsFunc(now, func(c v1alpha1.ComponentStatus) bool { return c.Name == name && c.State != v1alpha1.Disabled })
		return runs || has(before, name) || !has(added, name)
	})
}

// releases returns the release that the operation started from, and the first one that it made, nil if it made none.
func (w databaseWork) releases(ctx context.Context, cloud *v1alpha1.OnecloudCluster) (from, first *release.Release, err error) {
	var list corev1.SecretList
	if err := w.Client.List(ctx, &list, client.InNamespace(cloud.Namespace), client.HasLabels{v1alpha1.LabelRelease}); err != nil {
		return nil, nil, fmt.Errorf("listing releases: %w", err)
	}
	return madeReleases(list.Items, cloud.Name, w.rollout().From, w.Operation.Name)
}

// madeReleases returns these releases from the Secrets of a cloud. An unreadable one is an error only if it may be needed. It is pure.
func madeReleases(secrets []corev1.Secret, cloud string, before int, operation string) (from, first *release.Release, err error) {
	mine := slices.DeleteFunc(slices.Clone(secrets), func(s corev1.Secret) bool { return s.Name != release.SecretName(cloud, release.Revision(&s)) })
	slices.SortFunc(mine, func(a, b corev1.Secret) int { return release.Revision(&a) - release.Revision(&b) })
	for i := range mine {
		revision := release.Revision(&mine[i])
		if revision < before || revision > before && first != nil {
			continue
		}
		if revision > before {
			summary, err := release.DecodeSummary(&mine[i])
			if err != nil {
				return nil, nil, err
			}
			if summary.By != operation {
				continue
			}
		}
		one, err := release.Decode(&mine[i])
		switch {
		case err != nil:
			return nil, nil, err
		case revision == before:
			from = one
		default:
			first = one
		}
	}
	return from, first, nil
}

// removeMade removes the databases and accounts that the operation made, once the release that needs them is no longer in force.
func removeMade() Step {
	return Step{
		Name: "databases-made", Short: "Remove the databases created for new components", Timeout: databasesTimeout,
		Skip: workflow.SkipIf("none was created", func(r *Run) bool {
			s := r.Status()
			return s.Rollout == nil || s.Databases == nil || len(s.Databases.Absent) == 0
		}),
		Run: onDatabases(func(ctx context.Context, w databaseWork, cloud *v1alpha1.OnecloudCluster) error {
			from, first, err := w.releases(ctx, cloud)
			if err != nil {
				return err
			}
			if from == nil || first == nil {
				w.report.Info("no release was created")
				return nil
			}
			components := made(w.Status().Databases.Absent, from, first, cloud.Status.Components)
			if len(components) == 0 {
				w.report.Info("none was created")
				return nil
			}
			if err := w.removeFrom(ctx, components); err != nil {
				return err
			}
			err = w.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Databases.Removed = components })
			if err != nil {
				return err
			}
			return w.Until(ctx, w.report, "the operator", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
				noted := slices.ContainsFunc(components, func(name string) bool { return cloud.Status.Effects[effects.DatabaseKey(name)] != "" })
				return !noted, "the status of the cloud still has the databases of " + strings.Join(components, ", "), nil
			})
		}),
	}
}

// removeFrom removes what components have on the server, after copying the contents of their databases.
func (w databaseWork) removeFrom(ctx context.Context, components []string) error {
	admin, release, err := backup.Replacing(ctx, w.report, w.vault.Admin)
	if err != nil {
		return err
	}
	defer release()
	databases, accounts, err := w.vault.Admin.Owned(ctx)
	if err != nil {
		return err
	}
	have, err := w.vault.Admin.Databases(ctx)
	if err != nil {
		return err
	}
	var drop, full []string
	for _, d := range databasesOf(components) {
		if !slices.Contains(databases, d) {
			continue
		}
		drop = append(drop, d)
		if !slices.Contains(have, d) { // only its marker is left
			continue
		}
		tables, err := w.vault.Admin.Tables(ctx, d)
		if err != nil {
			return err
		}
		if len(tables) > 0 {
			full = append(full, d)
		}
	}
	if err := w.keepMade(ctx, full); err != nil {
		return err
	}
	for _, d := range drop {
		if err := admin.DropDatabase(ctx, d); err != nil {
			return err
		}
		w.report.Changed("removed database %s, which this operation created", d)
	}
	for _, c := range catalog.All() {
		if c.Database == nil || !slices.Contains(components, c.Name) || !slices.Contains(accounts, c.Database.Account()) {
			continue
		}
		if err := admin.DropAccount(ctx, c.Database.Account()); err != nil {
			return err
		}
		w.report.Changed("removed account %s of the database server, which this operation created", c.Database.Account())
	}
	return nil
}

// keepMade copies databases before they are removed. If an operator is killed while removing them, the next one finds complete copies.
func (w databaseWork) keepMade(ctx context.Context, databases []string) error {
	if len(databases) == 0 {
		return nil
	}
	kept, err := w.copySet(ctx, madeSet(w.rollout().From), databases)
	if err != nil {
		return err
	}
	w.report.Changed("their contents: %s", copied(kept))
	return w.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		if !saidReplaced(s, kept.Set) {
			s.Databases.Replaced = append(s.Databases.Replaced, *copies(kept))
		}
	})
}
