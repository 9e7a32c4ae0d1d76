// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// settle makes the cloud run: all effects are done, and all workloads serve.
func (b *bench) settle() {
	b.t.Helper()
	if !b.settleAll() {
		for _, c := range b.cloud().Status.Components {
			if !c.State.Settled() {
				b.t.Errorf("%s is %s: %s", c.Name, c.State, c.Message)
			}
		}
		b.t.FailNow()
	}
}

// settleAll is settle for a cloud whose components may be Degraded, and reports whether it is Ready.
func (b *bench) settleAll() bool {
	b.t.Helper()
	rest := ""
	for range 12 {
		b.reconcile()
		cr := b.cloud()
		m := b.r.reads.clouds.of[cloudKey]
		d := m.memos.desired.value
		if d == nil { // a new release: it is resolved again
			continue
		}
		m.effects = effects.NewMemory() // nothing is reachable: all attempts have failed
		if cr.Status.Effects == nil {
			cr.Status.Effects = map[string]string{}
		}
		for _, e := range d.Effects {
			cr.Status.Effects[e.Key] = e.Hash
		}
		require.NoError(b.t, b.api.Status().Update(b.t.Context(), cr))
		b.serve()
		now := fmt.Sprint(b.cloud().Status)
		if now == rest {
			break
		}
		rest = now
	}
	return meta.IsStatusConditionTrue(b.cloud().Status.Conditions, v1alpha1.ConditionReady)
}

// serve makes every workload serve its current version.
func (b *bench) serve() {
	b.t.Helper()
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&deployments, &sets} {
		require.NoError(b.t, b.api.List(b.t.Context(), list))
	}
	update := func(o client.Object) {
		require.NoError(b.t, b.api.Status().Update(b.t.Context(), o))
	}
	for i := range deployments.Items {
		o := &deployments.Items[i]
		n := *o.Spec.Replicas
		if o.Status.AvailableReplicas != n {
			o.Status = appsv1.DeploymentStatus{ObservedGeneration: o.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			update(o)
		}
	}
	for i := range sets.Items {
		o := &sets.Items[i]
		n := *o.Spec.Replicas
		if o.Status.AvailableReplicas != n {
			o.Status = appsv1.StatefulSetStatus{ObservedGeneration: o.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
			update(o)
		}
	}
}

// build replaces the operator by one with another catalogue. wrote receives its writes.
func (b *bench) build(wrote *[]string, change func(*catalogue)) {
	b.t.Helper()
	r, err := New(interceptor.NewClient(b.api, writes(wrote)), b.api, events.NewFakeRecorder(1000), Options{
		Log: slog.New(slog.DiscardHandler), Connections: b.r.options.Connections,
	})
	require.NoError(b.t, err)
	table := b.r.reads.catalog
	table.components, table.names, table.order = slices.Clone(table.components), slices.Clone(table.names), slices.Clone(table.order)
	change(&table)
	r.reads.catalog, r.acts.catalog = table, table
	r.setClock(b.r.reads.now)
	b.r = r
}

func (c *catalogue) edit(name string, change func(*component.Component)) {
	change(&c.components[slices.IndexFunc(c.components, func(c component.Component) bool { return c.Name == name })])
}

func (c *catalogue) add(one component.Component) {
	c.components, c.names, c.order = append(c.components, one), append(c.names, one.Name), append(c.order, one.Name)
}

// newer changes the catalogue to that of another build: another pod template, option and port, an additional database, one component more and one
// less.
func newer(c *catalogue) {
	c.edit("glance", func(c *component.Component) {
		c.Workload.Command = append(slices.Clone(c.Workload.Command), "--newer")
	})
	c.edit("logger", func(c *component.Component) {
		c.Config = new(*c.Config)
		was := c.Config.Options
		c.Config.Options = func(in component.Inputs) map[string]any {
			out := map[string]any{}
			if was != nil {
				out = was(in)
			}
			out["newer_option"] = 1
			return out
		}
	})
	c.edit("webconsole", func(c *component.Component) {
		c.Service = new(*c.Service)
		c.Service.Ports = append(slices.Clone(c.Service.Ports), component.Port{Name: "newer", Port: 30777})
	})
	c.edit("ansibleserver", func(c *component.Component) {
		c.Credentials = append(slices.Clone(c.Credentials), "ansibleserver.newer")
	})
	c.edit("etcd", func(c *component.Component) { c.Image.Name = "newer-etcd" })
	c.images = maps.Clone(c.images)
	c.images[component.OwnImage] = "registry.example.com/y/ocadm:newer"
	c.add(component.Component{Name: "newcomer", Image: component.Image{Name: "newcomer"}, Workload: component.Workload{Command: []string{"/newcomer"}},
		Service: &component.Service{Ports: []component.Port{{Name: "api", Port: 30778}}}, Database: &component.Database{Name: "newcomer"}, After: []string{"keystone"}})
	gone := func(name string) bool { return name == "devtool" }
	c.components = slices.DeleteFunc(c.components, func(c component.Component) bool { return gone(c.Name) })
	c.names, c.order = slices.DeleteFunc(c.names, gone), slices.DeleteFunc(c.order, gone)
}

func (b *bench) pending() string {
	b.t.Helper()
	c := meta.FindStatusCondition(b.cloud().Status.Conditions, v1alpha1.ConditionUpdateAvailable)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return c.Message
}

func (b *bench) release() *release.Release {
	b.t.Helper()
	s := &corev1.Secret{}
	b.get(s, release.SecretName("default", b.cloud().Status.Release.Revision))
	r, err := release.Decode(s)
	require.NoError(b.t, err)
	return r
}

// Another build of the operator writes nothing to a running cloud, whatever it renders, and shows what an update would change.
func TestAnotherBuildWritesNothing(t *testing.T) {
	cr := newCloud()
	cr.Spec.Backup.Disable = new(false)
	b := newBench(t, interceptor.Funcs{}, cr)
	b.settle()
	before := b.cloud()
	var wrote []string
	b.build(&wrote, newer)
	for range 3 {
		b.reconcile()
	}
	if len(wrote) > 0 {
		t.Errorf("wrote %q", wrote)
	}
	after := b.cloud()
	for _, name := range []string{"glance", "logger", "webconsole", "newcomer", "devtool", "etcd"} {
		if !strings.Contains(b.pending(), name) {
			t.Errorf("%s is not named: %s", name, b.pending())
		}
	}
	if strings.Contains(b.pending(), "keystone") {
		t.Errorf("keystone is named: %s", b.pending())
	}
	if !meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("%+v", after.Status.Conditions)
	}
	for _, name := range []string{"etcd", "backup"} {
		if was, is := previous(before.Status, name).Image, previous(after.Status, name).Image; was != is || was == "" {
			t.Errorf("%s is said to run %q, it runs %q", name, is, was)
		}
	}
	if len(after.Status.Effects) != len(before.Status.Effects) {
		t.Errorf("%d effects, before %d", len(after.Status.Effects), len(before.Status.Effects))
	}
}

// Damaged or lost objects are restored to the release, not to what another build renders.
func TestRepairIsToTheRelease(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.settle()
	file, was := b.config("logger"), &appsv1.Deployment{}
	b.get(was, "default-glance")
	b.build(&[]string{}, newer)
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "default-logger-config"}}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "default-glance"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "default-devtool"}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "default-webconsole"}},
	} {
		o.SetNamespace(cloudKey.Namespace)
		require.NoError(t, b.api.Delete(t.Context(), o))
	}
	for range 3 {
		b.reconcile()
	}
	if now := b.config("logger"); now != file {
		t.Errorf("the file is %s", now)
	}
	is, service := &appsv1.Deployment{}, &corev1.Service{}
	b.get(is, "default-glance")
	if hash := is.Annotations[engine.HashAnnotation]; hash != was.Annotations[engine.HashAnnotation] || slices.Contains(is.Spec.Template.Spec.Containers[0].Command, "--newer") {
		t.Errorf("hash %s", hash)
	}
	b.get(service, "default-devtool")
	b.get(service, "default-webconsole")
	if slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "newer" }) {
		t.Error("the Service has the port of the other build")
	}
}

// A change under another build is applied alone, without the differences of that build.
func TestChangeWithAnotherBuild(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.settle()
	b.build(&[]string{}, newer)
	b.reconcile()
	b.edit(`{"metadata":{"generation":7},"spec":{"glance":{"replicas":3}}}`)
	b.editConfig("logger", `{"data":{"action_log_exceed_count":"10"}}`)
	for range 3 {
		b.reconcile()
	}
	d := &appsv1.Deployment{}
	b.get(d, "default-glance")
	if c := d.Spec.Template.Spec.Containers[0].Command; *d.Spec.Replicas != 3 || slices.Contains(c, "--newer") {
		t.Errorf("%d replicas, %q", *d.Spec.Replicas, c)
	}
	if file := b.config("logger"); !strings.Contains(file, "action_log_exceed_count: 10\n") || strings.Contains(file, "newer_option") {
		t.Error(file)
	}
	if why := strings.Join(b.release().Why, "; "); !strings.Contains(why, "ConfigMap default-logger.action_log_exceed_count: (none) → 10") {
		t.Error(why)
	}
	if !strings.Contains(b.pending(), "glance") {
		t.Error(b.pending())
	}
}

// An update moves the cloud to the build; so does another version of the cloud.
func TestUpdateToAnotherBuild(t *testing.T) {
	for what, patch := range map[string]func(*v1alpha1.OnecloudCluster) string{
		"annotation": func(c *v1alpha1.OnecloudCluster) string {
			return `{"metadata":{"annotations":{"` + v1alpha1.AnnotationUpdateFrom + `":"` + strconv.Itoa(c.Status.Release.Revision) + `"}}}`
		},
		"version": func(*v1alpha1.OnecloudCluster) string {
			return `{"metadata":{"generation":7},"spec":{"version":"v4.0.5"}}`
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, interceptor.Funcs{}, newCloud())
			b.settle()
			b.build(&[]string{}, newer)
			b.r.reads.atOnce = true
			b.reconcile()
			b.edit(patch(b.cloud()))
			b.settle()
			d, s := &appsv1.Deployment{}, &corev1.Service{}
			b.get(d, "default-newcomer")
			b.get(d, "default-glance")
			b.get(s, "default-webconsole")
			if !slices.Contains(d.Spec.Template.Spec.Containers[0].Command, "--newer") || !strings.Contains(b.config("logger"), "newer_option") {
				t.Error("glance or logger was not updated")
			}
			if err := b.api.Get(t.Context(), client.ObjectKey{Namespace: cloudKey.Namespace, Name: "default-devtool"}, s); err == nil {
				t.Error("devtool is still there")
			}
			if p := b.pending(); p != "" {
				t.Error(p)
			}
			if wrote := b.coldAs(newer); len(wrote) > 0 || b.pending() != "" {
				t.Errorf("an operator that remembers nothing wrote %q; %s", wrote, b.pending())
			}
		})
	}
}

// coldAs is cold with another build.
func (b *bench) coldAs(change func(*catalogue)) []string {
	b.t.Helper()
	var wrote []string
	table, err := newCatalogue("", nil)
	require.NoError(b.t, err)
	b.r.reads.catalog = table
	b.build(&wrote, change)
	for range 2 {
		b.reconcile()
	}
	return wrote
}

// However many options are changed after an update, the release before it stays: the copies of the databases are for it.
func TestReleaseBeforeTheUpdateIsKept(t *testing.T) {
	s := State{Cloud: newCloud()}
	s.Releases.kept = map[int]*corev1.Secret{}
	var revisions []int
	for i, version := range []string{"v4.0.2", "v4.0.2", "v4.0.3", "v4.0.3", "v4.0.3"} {
		r := release.Release{Summary: release.Summary{Revision: i + 1, Version: version}}
		secret, err := r.Secret(metav1.ObjectMeta{Name: "default", Labels: map[string]string{}})
		require.NoError(t, err)
		s.Releases.kept[i+1], s.Releases.current = secret, r.Index()
		revisions = append(revisions, i+1)
	}
	if got := wayBack(s, revisions); got != 2 {
		t.Errorf("release %d", got)
	}
	if got := wayBack(s, revisions[2:]); got != 0 {
		t.Errorf("release %d of the same version", got)
	}
}

// The last ten releases are kept, and the last one that served in full.
func TestReleasesAreKept(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.settle()
	good := b.cloud().Status.Release.Good
	if good == 0 || good != b.cloud().Status.Release.Revision {
		t.Fatalf("%+v", b.cloud().Status.Release)
	}
	for i := range 14 {
		b.editConfig("logger", `{"data":{"action_log_exceed_count":"`+strconv.Itoa(i+1)+`"}}`)
		b.reconcile()
	}
	var list corev1.SecretList
	require.NoError(t, b.api.List(t.Context(), &list, client.HasLabels{v1alpha1.LabelRelease}))
	if len(list.Items) != release.Keep+1 {
		t.Errorf("%d are kept", len(list.Items))
	}
	b.get(&corev1.Secret{}, release.SecretName("default", good))
	for _, s := range list.Items {
		if size := len(s.Data["contents"]); size > 128<<10 {
			t.Errorf("%s has %d bytes", s.Name, size)
		} else {
			t.Logf("%s has %d bytes", s.Name, size)
		}
	}
	if r := b.cloud().Status.Release; r.Good != good || r.Revision != good+14 {
		t.Errorf("%+v", r)
	}
}
