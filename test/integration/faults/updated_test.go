// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
	"yunion.io/x/ocadm/test/require"
)

const (
	oldVersion = "v4.0.3"
	newVersion = "v4.0.4" // with new columns and a migration of data
)

// updated is a cloud that is updated to a release that may be broken.
type updated struct {
	*env.Env
	old snapshot
}

// snapshot is the state that an update changes: the images of each Deployment, the definition of each database, and the rows of each table.
type snapshot struct {
	images, definitions map[string]string
	tables              map[string]dump.TableSummary
}

// newUpdated installs a cloud of the old version.
func newUpdated(t *testing.T, components []string, changes ...func(*env.Launch)) *updated {
	t.Helper()
	if was := env.Patience; os.Getenv("OCADM_SWEEP") != "" { // a complete cloud takes minutes on a busy machine
		env.Patience = 4 * was
		t.Cleanup(func() { env.Patience = was })
	}
	e := env.New(t, env.Options{Workloads: env.Programs, Collect: true, Agents: true})
	cr := e.Only(components...)
	cr.Spec.Version, cr.Spec.EnableCloudNet, cr.Spec.EnableS3Gateway = oldVersion, true, true
	e.Install(cr, changes...)
	e.Rest()
	u := &updated{Env: e}
	u.again()
	e.SQL(e.DB, "CREATE TABLE keystone.kept (id INT PRIMARY KEY)", "INSERT INTO keystone.kept VALUES (1)")
	u.old = u.look()
	return u
}

// again restarts every program: at its first start, the identity service is not registered yet and stores no options of its own. Each service stores
// its options when it starts, and adds missing ones to the common ones, so the order is that of a starting cloud. The scheduler shares its record
// with region. The last one wins, which is the scheduler, because it starts after region.
func (u *updated) again() {
	u.Helper()
	there := u.Deployments()
	after := map[string][]string{}
	for _, c := range catalog.All() {
		after[c.Name] = c.After
	}
	order, err := engine.Order(slices.Sorted(maps.Keys(after)), func(name string) []string { return after[name] })
	require.NoError(u, err)
	order = append(slices.DeleteFunc(order, func(c string) bool { return c == "scheduler" }), "scheduler")
	for _, c := range order {
		name := env.Name + "-" + c
		before := u.Pods.Starts(name)
		if there[c] == nil || before == 0 { // it is disabled, or none of its programs is played
			continue
		}
		u.Pods.Kill(name)
		u.Eventually(func() (bool, string) {
			d := u.Deployments()[c]
			return u.Pods.Starts(name) > before && d.Status.AvailableReplicas == 1, name + " does not start again"
		})
	}
	u.UntilReady()
	u.Rest()
}

// in returns the cloud for a part of a test.
func (u *updated) in(t *testing.T) *updated { return &updated{u.In(t), u.old} }

// patient makes a wave last long enough for a release that fails when ready to fail.
func patient(l *env.Launch) { l.Options.Operations.Settle = 5 * time.Second }

// look returns the current state, without the records of starts and issued tokens.
func (u *updated) look() snapshot {
	u.Helper()
	s := snapshot{images: map[string]string{}}
	for _, o := range u.Objects(&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}) {
		text, count := corev1.PodSpec{}, int32(1)
		switch w := o.(type) {
		case *appsv1.Deployment:
			text, count = w.Spec.Template.Spec, *w.Spec.Replicas
		case *appsv1.StatefulSet:
			text, count = w.Spec.Template.Spec, *w.Spec.Replicas
		case *appsv1.DaemonSet:
			text = w.Spec.Template.Spec
		}
		var images []string
		for _, c := range slices.Concat(text.InitContainers, text.Containers) {
			images = append(images, c.Image)
		}
		s.images[o.GetName()] = fmt.Sprint(images, count)
	}
	var rows dump.Summary
	s.definitions, rows = u.Databases(u.DB)
	s.tables = rows.Tables()
	maps.DeleteFunc(s.tables, func(name string, _ dump.TableSummary) bool {
		return strings.HasSuffix(name, ".tokens") || strings.HasSuffix(name, ".fakecloud_starts")
	})
	return s
}

// same returns the differences between two snapshots.
func (s snapshot) same(other snapshot) (differs []string) {
	differs = append(differs, differences(s.images, other.images)...)
	for _, name := range slices.Sorted(maps.Keys(s.definitions)) {
		if s.definitions[name] != other.definitions[name] {
			differs = append(differs, "the definitions of "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		if s.tables[name] != other.tables[name] {
			differs = append(differs, fmt.Sprintf("the rows of %s: %+v, was %+v", name, other.tables[name], s.tables[name]))
		}
	}
	return differs
}

// publish breaks the program of a component in the new release, or repairs it.
func (u *updated) publish(component string, how program.Failure) {
	version := ""
	if how != "" {
		version = newVersion + string(how)
	}
	u.Pods.Publish("registry.cn-beijing.aliyuncs.com/yunionio/"+component+":"+newVersion, version)
}

// update requests the new version.
func (u *updated) update(name string) {
	u.Helper()
	u.Operation(name, v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Timeout: env.Patience.String(), Update: &v1alpha1.UpdateParameters{Version: newVersion}})
}

// load sends requests to a service until the test ends, as clients do.
func (u *updated) load(t *testing.T, component string) {
	address := map[string]string{"keystone": "default-keystone:30500", "region": "default-region:30888", "glance": "default-glance:30292"}[component]
	transport := &http.Transport{DialContext: u.Pods.Dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // load
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/", nil); err == nil {
				if answer, err := transport.RoundTrip(request); err == nil {
					_ = answer.Body.Close()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
}

// isOld checks that the cloud is as it was before.
func (u *updated) isOld(t *testing.T, what string) {
	t.Helper()
	cr := u.Cloud()
	if differs := u.old.same(u.look()); len(differs) > 0 || cr.Spec.Version != oldVersion || cr.Status.Release.Version != oldVersion {
		t.Errorf("%s: it is not entirely old: %s, release %s: %q", what, cr.Spec.Version, cr.Status.Release.Version, differs)
	}
}

// rollback rolls back a successful update, including the databases.
func (u *updated) rollback(t *testing.T, o *v1alpha1.OnecloudOperation) {
	t.Helper()
	back := u.Operation(o.Name+"-back", v1alpha1.OnecloudOperationSpec{
		Action: v1alpha1.ActionRollback, Rollback: &v1alpha1.RollbackParameters{Revision: o.Status.Rollout.From, RestoreDatabases: true},
	})
	if last := u.UntilOperation(back.Name, env.Ended); last.Status.Phase != v1alpha1.OperationSucceeded {
		t.Fatalf("%s: %s: %s: %+v", back.Name, last.Status.Phase, last.Status.Message, last.Status.Steps)
	}
	u.UntilReady()
	u.isOld(t, back.Name)
}

// times returns the durations of an operation's steps.
func times(o *v1alpha1.OnecloudOperation) string {
	var out []string
	for _, s := range o.Status.Steps {
		if took := s.End.Sub(s.Start.Time); !s.Start.IsZero() && took >= time.Second {
			out = append(out, fmt.Sprintf("%s %.0f", s.Name, took.Seconds()))
		}
	}
	return strings.Join(out, ", ")
}

// entirely checks that the cloud is entirely old, or entirely new.
func (u *updated) entirely(t *testing.T, what string, o *v1alpha1.OnecloudOperation) {
	t.Helper()
	u.UntilReady()
	switch o.Status.Phase {
	case v1alpha1.OperationReverted:
		u.isOld(t, what)
	case v1alpha1.OperationSucceeded:
		cr := u.Cloud()
		for name, images := range u.look().images {
			if strings.Contains(images, ":"+oldVersion) || cr.Status.Release.Version != newVersion {
				t.Errorf("%s: it is not entirely new: %s runs %s, release %s", what, name, images, cr.Status.Release.Version)
			}
		}
	default:
		t.Fatalf("%s: %s: %s: %+v", what, o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
}
