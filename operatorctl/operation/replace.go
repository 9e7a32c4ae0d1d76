// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
)

// source names the set that holds the original contents of some databases.
type source struct {
	set       string
	databases []string
}

// forwardSet returns the name of the set with what a rollback replaced.
func forwardSet(release int) string { return fmt.Sprintf("f%d", release) }

// isOf reports whether a set has a name, or is a further one of it.
func isOf(set, name string) bool { return set == name || strings.HasPrefix(set, name+"v") }

// sources returns where the original contents are when reverting: in the saved set, or, for what the operation itself has replaced since, in the set of
// what it replaced. It is pure.
func sources(s *v1alpha1.OnecloudOperationStatus) []source {
	if s.Databases == nil || s.Databases.Saved == nil || s.Rollout == nil {
		return nil
	}
	moved := databasesOf(members(s.Rollout.Waves[:min(s.Rollout.Moved, len(s.Rollout.Waves))]))
	var out []source
	var taken []string // the first set has the original contents of a database
	add := func(set string, databases []string) {
		databases = slices.DeleteFunc(slices.Clone(databases), func(d string) bool { return slices.Contains(taken, d) })
		taken = append(taken, databases...)
		if len(databases) > 0 {
			out = append(out, source{set, databases})
		}
	}
	for _, c := range s.Databases.Replaced {
		if isOf(c.Set, forwardSet(s.Rollout.From)) {
			add(c.Set, c.Databases)
		}
	}
	add(s.Databases.Saved.Set, slices.DeleteFunc(slices.Clone(s.Databases.Saved.Databases), func(d string) bool { return !slices.Contains(moved, d) }))
	return out
}

// bringBack replaces migrated databases by their copies, and lets the earlier services start.
func bringBack(name, short string) Step {
	return Step{
		Name: name, Short: short, Timeout: databasesTimeout,
		Skip: workflow.SkipIf("there is nothing to restore", func(r *Run) bool {
			s := r.Status()
			return len(sources(&s)) == 0 && (s.Rollout == nil || len(s.Rollout.Stopped) == 0)
		}),
		Run: onDatabases(func(ctx context.Context, w databaseWork, _ *v1alpha1.OnecloudCluster) error {
			if err := w.bringBackAll(ctx); err != nil {
				return err
			}
			if len(w.rollout().Stopped) == 0 {
				w.report.Info("no table of the databases was changed")
				return nil
			}
			// Everything goes back to the earlier release together: stopped components cannot wait for waves.
			if err := w.steer(ctx, func(now *v1alpha1.Rollout) { now.Reached, now.Stopped = 0, nil }); err != nil {
				return err
			}
			return w.untilBack(ctx, "", members(w.rollout().Waves))
		}),
	}
}

// bringBackAll first finishes what a killed operator began. What has changed since is saved before it is replaced.
func (w databaseWork) bringBackAll(ctx context.Context) error {
	s := w.Status()
	all := sources(&s)
	for _, from := range all {
		if err := w.goOn(ctx, from.set, from.databases); err != nil {
			return err
		}
	}
	for _, from := range all {
		if err := w.bringBackFrom(ctx, from); err != nil {
			return err
		}
	}
	return nil
}

func (w databaseWork) bringBackFrom(ctx context.Context, from source) error {
	saved, err := read(ctx, w.vault, from.set)
	if err != nil {
		return err
	}
	changed, err := w.vault.Changed(ctx, saved)
	if err != nil {
		return err
	}
	databases := slices.DeleteFunc(slices.Clone(from.databases), func(d string) bool { return !slices.Contains(changed, d) })
	if len(databases) == 0 {
		return nil
	}
	set := fmt.Sprintf("u%dv%d", w.rollout().From, len(w.Status().Databases.Replaced)+1)
	return w.replace(ctx, saved, databases, set)
}

func read(ctx context.Context, v backup.Vault, set string) (backup.Saved, error) {
	saved, there, err := v.Read(ctx, set)
	if err == nil && !there {
		err = fmt.Errorf("the database copies %s no longer exist", set)
	}
	return saved, err
}

// goOn restores only those of the databases that a killed operator had begun to restore: what they held is saved already.
func (w databaseWork) goOn(ctx context.Context, set string, databases []string) error {
	d := w.Status().Databases
	if d == nil {
		return nil
	}
	begun := slices.DeleteFunc(slices.Clone(d.Restoring), func(name string) bool { return !slices.Contains(databases, name) })
	if len(begun) == 0 {
		return nil
	}
	saved, err := read(ctx, w.vault, set)
	if err != nil {
		return err
	}
	if err := w.intact(ctx, saved, begun); err != nil {
		return err
	}
	if err := w.stopUsers(ctx, begun); err != nil {
		return err
	}
	return w.restore(ctx, saved, begun)
}

// replace replaces databases by copies, and saves what they held as another set. If the operator is killed, goOn does the rest.
func (w databaseWork) replace(ctx context.Context, saved backup.Saved, databases []string, set string) error {
	if err := w.intact(ctx, saved, databases); err != nil {
		return err
	}
	if err := w.stopUsers(ctx, databases); err != nil {
		return err
	}
	w.report.Info("saving the current contents of the databases")
	there, err := w.vault.Admin.Databases(ctx)
	if err != nil {
		return err
	}
	now, err := w.copySet(ctx, set, slices.DeleteFunc(slices.Clone(databases), func(d string) bool { return !slices.Contains(there, d) }))
	if err != nil {
		return err
	}
	for _, line := range lists.Some(saved.Differs(now), maxLines) {
		w.report.Changed("since %s: %s", saved.Time.Format(time.RFC3339), line)
	}
	w.report.Changed("current contents: %s", copied(now))
	err = w.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Databases.Restoring = databases
		if !saidReplaced(s, now.Set) {
			s.Databases.Replaced = append(s.Databases.Replaced, *copies(now))
		}
	})
	if err != nil {
		return err
	}
	return w.restore(ctx, saved, databases)
}

func (m mover) stopUsers(ctx context.Context, databases []string) error {
	cloud, err := m.Cloud(ctx)
	if err != nil {
		return err
	}
	off := func(name string) bool {
		return !slices.ContainsFunc(cloud.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == name && c.State != v1alpha1.Disabled })
	}
	if err := m.stop(ctx, slices.DeleteFunc(usersOf(databases), off)); err != nil {
		return err
	}
	m.report.Changed("stopped: %s", strings.Join(m.rollout().Stopped, ", "))
	return nil
}

func (w databaseWork) restore(ctx context.Context, saved backup.Saved, databases []string) error {
	w.report.Info("replacing the databases with their copies from %s", saved.Time.Format(time.RFC3339))
	if err := w.vault.Restore(ctx, w.report, saved, databases); err != nil {
		return err
	}
	w.report.Changed("restored as of %s: %s", saved.Time.Format(time.RFC3339), strings.Join(databases, ", "))
	other, err := w.vault.Changed(ctx, saved)
	if err != nil {
		return err
	}
	for _, d := range other {
		if slices.Contains(databases, d) { // its rows were compared; a stored program may have another definer
			w.report.Changed("restored, but its definition differs from the saved one: %s", d)
		}
	}
	return w.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Databases.Restored = append(s.Databases.Restored, databases...)
		s.Databases.Restoring = slices.DeleteFunc(s.Databases.Restoring, func(d string) bool { return slices.Contains(databases, d) })
	})
}

// maxLines limits how many differing tables a step lists.
const maxLines = 20

// stopTimeout bounds the wait for the pods of a service to end.
const stopTimeout = 10 * time.Minute

// stop stops components, and waits for their pods to end.
func (m mover) stop(ctx context.Context, components []string) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	err := m.steer(ctx, func(now *v1alpha1.Rollout) {
		now.Stopped = lists.Unique(append(now.Stopped, components...))
		slices.Sort(now.Stopped)
	})
	if err != nil {
		return err
	}
	return m.Until(ctx, m.report, "the pods to end", func(cloud *v1alpha1.OnecloudCluster) (bool, string, error) {
		left, err := stillRunning(ctx, m.Client, cloud, components)
		return len(left) == 0, strings.Join(lists.Some(left, waitsShown), ", "), err
	})
}

// stillRunning returns the workloads and pods of components, including read replicas, that have not ended.
func stillRunning(ctx context.Context, c client.Reader, cloud *v1alpha1.OnecloudCluster, components []string) (left []string, err error) {
	for _, name := range slices.Concat(components, replicasOf(components)) {
		for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &corev1.PodList{}} {
			if err := c.List(ctx, list, client.InNamespace(cloud.Namespace), client.MatchingLabels{v1alpha1.LabelComponent: name}); err != nil {
				return nil, fmt.Errorf("listing the workloads and pods of %s: %w", name, err)
			}
			_ = meta.EachListItem(list, func(o runtime.Object) error {
				if line := notEnded(cloud, o); line != "" {
					left = append(left, line)
				}
				return nil
			})
		}
	}
	return left, nil
}

// notEnded describes what of a workload or pod has not ended, or returns "" if all has or it is another cloud's.
func notEnded(cloud *v1alpha1.OnecloudCluster, o runtime.Object) string {
	key := client.ObjectKeyFromObject(cloud)
	switch o := o.(type) {
	case *appsv1.Deployment:
		if of(key, o) && (ptr.Deref(o.Spec.Replicas, 1) > 0 || o.Status.ObservedGeneration < o.Generation || o.Status.Replicas > 0) {
			return "Deployment " + o.Name + " has " + lists.Counted(o.Status.Replicas, "pod")
		}
	case *appsv1.DaemonSet:
		if of(key, o) && (o.Status.ObservedGeneration < o.Generation || o.Status.DesiredNumberScheduled > 0 || o.Status.CurrentNumberScheduled > 0) {
			return "DaemonSet " + o.Name + " has " + lists.Counted(o.Status.CurrentNumberScheduled, "pod")
		}
	case *corev1.Pod:
		if !kube.PodEnded(o) && component.OfCloud(o, cloud.Name) {
			return "Pod " + o.Name
		}
	}
	return ""
}

// replicasOf returns the labels of the read replicas that components may have.
func replicasOf(components []string) []string {
	return lists.Pick(catalog.All(), func(c component.Component) (string, bool) {
		return c.Name + render.ReplicaSuffix, c.Workload.ReadReplicas && slices.Contains(components, c.Name)
	})
}

// bringForward replaces the databases by the copies that were made when the cloud left a release, and lets all services of that release start together.
func bringForward() Step {
	return Step{
		Name: "databases", Short: "Restore the databases of that release", Timeout: databasesTimeout,
		Skip: workflow.SkipIf("the databases are kept", func(r *Run) bool {
			p := r.Operation.Spec.Rollback
			return p == nil || !p.RestoreDatabases
		}),
		Run: onDatabases(func(ctx context.Context, w databaseWork, _ *v1alpha1.OnecloudCluster) error {
			to := targetOf(w.Operation, w.Status())
			set := savedSet(to)
			saved, there, err := w.vault.Read(ctx, set)
			if err != nil {
				return err
			}
			if !there {
				return fmt.Errorf("the databases of release %d were not copied, or the copies no longer exist", to)
			}
			if err := w.goOn(ctx, set, saved.Databases()); err != nil {
				return err
			}
			databases, err := w.vault.Changed(ctx, saved)
			if err != nil {
				return err
			}
			if len(databases) > 0 {
				if err := w.replace(ctx, saved, databases, forwardSet(w.rollout().From)); err != nil {
					return err
				}
			}
			if len(w.rollout().Stopped) == 0 {
				w.report.Info("no table of the databases was changed")
				return nil
			}
			return w.steer(ctx, func(now *v1alpha1.Rollout) {
				now.Reached, now.Moved, now.Stopped = len(now.Waves), len(now.Waves), nil
			})
		}),
	}
}
