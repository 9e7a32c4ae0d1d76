// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

const (
	// migrationTimeout bounds the migration of one component.
	migrationTimeout = time.Hour
	// atOnce is how many migrations run concurrently: they compete for one database server.
	atOnce = 4
	// cleanTimeout bounds the removal of what a rehearsal created.
	cleanTimeout = 5 * time.Minute
	// copyTries is how often copying is tried while a service changes its tables.
	copyTries = 3
)

type rehearsal struct {
	*Run
	report workflow.Reporter
	cloud  *v1alpha1.OnecloudCluster
	admin  *mysql.Admin
	// owner identifies the cloud in the markers of its databases.
	owner    string
	subjects []subject
	redact   func(string) string

	scratch *backup.Scratch
	copied  dump.Summary
	account credentials
	// identity is the address of the identity service that runs on its copy.
	identity string
	done     atomic.Int64
}

func migrateCopies(ctx context.Context, r *Run, report workflow.Reporter) error {
	cloud, view, err := preview(ctx, r)
	if err != nil {
		return err
	}
	v, there, err := r.openVault(ctx, cloud)
	if err != nil {
		return cannotRehearse(err)
	}
	if !there {
		return cannotRehearse(errors.New("the cloud has no database server"))
	}
	defer v.Admin.Close()
	names, err := rehearsable(ctx, v.Admin, cloud)
	if err != nil {
		return err
	}
	all, err := subjects(cloud.Name, view.Next, catalog.All(), names)
	if err != nil {
		return err
	}
	h := &rehearsal{
		Run: r, report: report, cloud: cloud, admin: v.Admin, owner: v.CloudID, subjects: all, redact: view.Redact,
		account: credentials{password: rand.Text() + "-x9"}, // the suffix satisfies servers that require lowercase letters, digits and signs
	}
	return h.run(ctx)
}

// cleanRehearsal removes what the rehearsal of a killed operator created.
func cleanRehearsal(ctx context.Context, r *Run) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
	defer cancel()
	cloud, err := r.Cloud(ctx)
	if err == nil {
		err = (&rehearsal{Run: r, report: workflow.Discard{}}).clean(ctx)
	}
	if err != nil {
		return err
	}
	v, there, err := r.openVault(ctx, cloud)
	if err != nil || !there {
		return err
	}
	defer v.Admin.Close()
	left, err := backup.NewScratch(ctx, v.Admin, v.CloudID, nil)
	if err != nil {
		return err
	}
	return left.Close(ctx)
}

// rehearsable returns the databases of the cloud. As with the copies of an update, none that a component uses may be left out: its migration would be
// skipped as if the component had no database, and the rehearsal would succeed.
func rehearsable(ctx context.Context, admin *mysql.Admin, cloud *v1alpha1.OnecloudCluster) ([]string, error) {
	_, err := databasesToCopy(ctx, admin, cloud)
	if l := finding.Of(err); len(l) > 0 && l[0].Code == codeLeftOut {
		return nil, err
	}
	var names []string
	if err == nil {
		names, err = backup.Databases(ctx, admin)
	}
	return names, cannotRehearse(err)
}

// run runs the rehearsal, and leaves nothing behind.
func (h *rehearsal) run(ctx context.Context) (err error) {
	if err := h.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Rehearsal = nil }); err != nil {
		return err
	}
	if err := h.clean(ctx); err != nil { // left by a killed operator
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		err = errors.Join(err, h.clean(ctx))
		if h.scratch != nil {
			err = errors.Join(err, h.scratch.Close(ctx))
		}
	}()
	if err := h.copy(ctx); err != nil {
		return cannotRehearse(err)
	}
	if err := h.migrateAll(ctx); err != nil {
		return err
	}
	return conclude(h.Status().Rehearsal)
}

// copy fills scratch databases with those of the subjects as they are at one moment, and creates an account that may only use these.
func (h *rehearsal) copy(ctx context.Context) error {
	names := slices.Concat(lists.Pick(h.subjects, func(s subject) ([]string, bool) { return s.databases, s.skip == "" })...)
	bytes, err := h.admin.CopySize(ctx, names...)
	if err == nil {
		err = h.admin.Fit(ctx, "copying the databases", bytes)
	}
	if err != nil {
		return err
	}
	h.report.Info("copying %s, %s", lists.Counted(len(names), "database"), mebibytes(bytes))
	for try := 1; ; try++ {
		if h.scratch, err = backup.NewScratch(ctx, h.admin, h.owner, names); err != nil {
			return err
		}
		h.copied, err = backup.CopyBeside(ctx, h.report, h.admin, h.scratch)
		if !errors.Is(err, dump.ErrSchemaChanged) || try == copyTries {
			break
		}
		if err := h.scratch.Close(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	h.account.user = h.scratch.User()
	return h.scratch.Grant(ctx, h.account.password)
}

// migrateAll migrates the identity service, starts it on its copy, and then migrates the others: they log in there when they start, and store their
// options there.
func (h *rehearsal) migrateAll(ctx context.Context) error {
	why := "there is no identity service"
	if i := slices.IndexFunc(h.subjects, func(s subject) bool { return s.component.Name == component.IdentityService }); i >= 0 {
		first, err := h.migrate(ctx, h.subjects[i])
		if err != nil {
			return err
		}
		why = "the migration of the identity service failed"
		if first.Result == v1alpha1.RehearsalPassed {
			if why, err = h.serve(ctx, h.subjects[i], first); err != nil {
				return err
			}
		}
	}
	others := lists.Filter(h.subjects, func(s subject) bool { return s.component.Name != component.IdentityService })
	return lists.Each(ctx, others, atOnce, func(ctx context.Context, s subject) error {
		s.skip = cmp.Or(s.skip, why)
		_, err := h.migrate(ctx, s)
		return err
	})
}

// migrate runs the migration of a component on its copy, and records the result. It fails only if the rehearsal itself cannot continue.
func (h *rehearsal) migrate(ctx context.Context, s subject) (v1alpha1.Rehearsed, error) {
	out := v1alpha1.Rehearsed{
		Component: s.component.Name, Image: s.template.Spec.Containers[0].Image, Databases: s.databases, Result: v1alpha1.RehearsalSkipped, Message: s.skip,
	}
	if s.skip != "" {
		return out, h.show(ctx, out)
	}
	scratch := lists.Map(s.databases, h.scratch.Name)
	out.Rows = rowsOf(h.copied, s.databases)
	var err error
	if out.BytesBefore, err = h.admin.Size(ctx, scratch...); err != nil {
		return out, err
	}
	secret, err := s.secret(h.Operation, h.account, h.scratch.Name)
	if err != nil {
		return out, err
	}
	if err := h.create(ctx, secret); err != nil {
		return out, err
	}
	began := time.Now()
	end, err := h.follow(ctx, s.pod(h.Operation, h.cloud, false, h.identity))
	if err != nil {
		return out, err
	}
	end.ran.Duration = cmp.Or(end.ran.Duration, time.Since(began))
	out.Duration = end.ran.Round(100 * time.Millisecond).String()
	if out.Result = v1alpha1.RehearsalPassed; !end.ok {
		out.Result, out.Message = v1alpha1.RehearsalFailed, h.hide(end.why)
	}
	if out.BytesAfter, err = h.admin.Size(ctx, scratch...); err != nil {
		return out, err
	}
	return out, h.show(ctx, out)
}

// serve starts the identity service on its copy. It returns why that failed, which is a failure of the release, too.
func (h *rehearsal) serve(ctx context.Context, s subject, first v1alpha1.Rehearsed) (why string, err error) {
	end, err := h.follow(ctx, s.pod(h.Operation, h.cloud, true, ""))
	if err != nil {
		return "", err
	}
	if end.ok {
		h.identity = end.address
		return "", nil
	}
	first.Result, first.Message = v1alpha1.RehearsalFailed, "it migrated, but does not start: "+h.hide(end.why)
	return "the identity service does not start", h.show(ctx, first)
}

func (h *rehearsal) create(ctx context.Context, o client.Object) error {
	if err := patiently(ctx, func() error { return h.Pods.Create(ctx, o, client.FieldOwner(v1alpha1.ManagerOperator)) }); err != nil {
		if apierrors.IsForbidden(err) {
			return cannotRehearse(err)
		}
		return fmt.Errorf("creating %s: %w", o.GetName(), err)
	}
	return nil
}

// follow runs a pod until it ends or serves.
func (h *rehearsal) follow(ctx context.Context, p *corev1.Pod) (outcome, error) {
	if err := h.create(ctx, p); err != nil {
		return outcome{}, err
	}
	limited, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	var end outcome
	err := kube.WaitFor(limited, h.Pods, p.DeepCopy(), func(o client.Object) (bool, string) {
		now, there := kube.As[corev1.Pod](o)
		if !there {
			end = outcome{over: true, lost: true, why: "its pod was deleted"}
			return true, end.why
		}
		end = judgePod(now)
		return end.over, end.why
	}, func(why string) { h.report.Waiting(p.Name, why) })
	if limited.Err() != nil && ctx.Err() == nil {
		end, err = outcome{over: true, lost: end.lost, why: fmt.Sprintf("it did not end within %s: %s", migrationTimeout, end.why)}, nil
	}
	if err == nil && end.lost && !end.ok {
		err = cannotRehearse(fmt.Errorf("running pod %s: %s", p.Name, end.why))
	}
	return end, err
}

// show reports a result, and adds it to the status, sorted by component.
func (h *rehearsal) show(ctx context.Context, one v1alpha1.Rehearsed) error {
	h.report.Progress(h.done.Add(1), int64(len(h.subjects)), "components")
	h.report.Info("%s", rehearsedLine(one))
	return h.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
		s.Rehearsal = slices.DeleteFunc(s.Rehearsal, func(other v1alpha1.Rehearsed) bool { return other.Component == one.Component })
		s.Rehearsal = append(s.Rehearsal, one)
		slices.SortFunc(s.Rehearsal, func(a, b v1alpha1.Rehearsed) int { return cmp.Compare(a.Component, b.Component) })
	})
}

func rehearsedLine(one v1alpha1.Rehearsed) string {
	return strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", one.Component, one.Result, one.Message), ": ")
}

// hide removes the passwords from a text.
func (h *rehearsal) hide(text string) string {
	for _, p := range []string{h.account.password, base64.StdEncoding.EncodeToString([]byte(h.account.password))} {
		text = strings.ReplaceAll(text, p, "(hidden)")
	}
	return h.redact(text)
}

// clean removes the pods and Secrets of the rehearsal, and waits until the pods are gone: they use the databases.
func (h *rehearsal) clean(ctx context.Context) error {
	ended := func(p client.Object) error {
		return kube.WaitFor(ctx, h.Pods, p, func(o client.Object) (bool, string) { return o == nil, "it is terminating" },
			func(why string) { h.report.Waiting(p.GetName(), why) })
	}
	of := client.MatchingLabels{labelRehearsal: h.Operation.Name}
	return errors.Join(h.remove(ctx, &corev1.PodList{}, ended, of), h.remove(ctx, &corev1.SecretList{}, nil, of))
}

func rowsOf(s dump.Summary, databases []string) (rows int64) {
	for _, d := range s.Databases {
		if slices.Contains(databases, d.Name) {
			_, n := dump.Summary{Databases: []dump.DatabaseSummary{d}}.Count()
			rows += n
		}
	}
	return rows
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// cannotRehearse reports that nothing is known about the update.
func cannotRehearse(err error) error {
	if err == nil {
		return nil
	}
	remedy := "correct the cause; the cloud was not changed"
	if e, ok := errors.AsType[*mysql.Error](err); ok {
		remedy = cmp.Or(e.Remedy(), remedy)
	} else if apierrors.IsForbidden(err) {
		remedy = allowPods
	}
	return finding.Errorf("OCA-7091", "The update cannot be rehearsed", remedy, "%w", err)
}
