// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/integration/harness"
)

// TestOperator is the life of one cloud, from its creation to its end; each part begins where the one before ended.
func TestOperator(t *testing.T) {
	r := newRig(t)
	r.run([]part{
		{"install", (*rig).install},
		{"the spec shows the defaults", (*rig).defaults},
		{"kubectl and older tools read the status", (*rig).read},
		{"the identity service knows all", (*rig).catalogue},
		{"the services have what they are to begin with", (*rig).setups},
		{"region lists the control plane with its own token", (*rig).masters},
		{"an image lies in the claim", (*rig).images},
		{"kubeserver is asked for what the spec wants of it", (*rig).asked},
		{"an unchanged cloud costs nothing", (*rig).resync},
		{"a restarted operator changes nothing", (*rig).restart},
		{"drift is healed with one write", (*rig).drift},
		{"what was deleted comes back with one write", (*rig).deleted},
		{"people's options are kept", (*rig).options},
		{"the administrator's password stays what people made of it", (*rig).password},
		{"an invalid option is told and changes nothing", (*rig).invalidOption},
		{"a component is switched off and on", (*rig).disable},
		{"a component that is off by default comes and goes", (*rig).optional},
		{"a crash is told", (*rig).crash},
		{"a crash loop is one transition", (*rig).loop},
		{"fields without effect are told", (*rig).ignored},
		{"a paused component is left alone", (*rig).pause},
		{"a fix gets through a failed rollout", (*rig).fix},
		{"a new version moves every service", (*rig).upgrade},
		{"a CA is exchanged in steps", (*rig).exchange},
		{"no secret leaks", (*rig).canary},
		{"deletion keeps the data", (*rig).remove},
		{"stopped on the way, it goes on with the data there is", (*rig).interrupted},
		{"deletion removes the data when asked to", (*rig).purge},
		{"stopped on the way of a first installation, it goes on", (*rig).first},
		{"its rights are what it used", (*rig).rights},
	})
}

func (r *rig) install() {
	began := time.Now()
	w := r.count(func() {
		r.startOperator()
		if err := r.client.Create(r.t.Context(), r.minimal()); err != nil {
			r.t.Fatal(err)
		}
		r.untilReady()
	})
	r.t.Logf("every component is Available after %s: %s", time.Since(began).Round(10*time.Millisecond), w.summary())
	if refused := w.refused(); refused != nil {
		r.t.Errorf("refused by RBAC: %q", refused)
	}
	most, err := harness.IdentityBudget()
	if err != nil {
		r.t.Fatal(err)
	}
	if n := w.identity(); n == 0 || n > most {
		r.t.Errorf("%d requests to the identity service, at most %d", n, most)
	}
	cr := r.cloud()
	for _, c := range cr.Status.Components {
		off := c.State == v1alpha1.Disabled && slices.Contains([]string{"off by default", "not in edition ce", "spec.enableCloudNet is not set",
			"spec.enableS3Gateway is not set", "spec.minio.enable is not set", "spec.monitorStack.disable is not false", "not in release v4.0.4: last in v3.10"}, c.Message)
		if !c.State.Settled() || c.State == v1alpha1.Disabled && !off {
			r.t.Errorf("%s is %s: %s", c.Name, c.State, c.Message)
		}
	}
	if cr.Status.Version != "v4.0.4" || cr.Status.Phase != v1alpha1.PhaseRunning {
		r.t.Errorf("version %q, phase %q", cr.Status.Version, cr.Status.Phase)
	}
}

// defaults: "kubectl edit" shows every service filled in, and "kubectl get oc" its columns.
func (r *rig) defaults() {
	cr := r.cloud()
	const image = "registry.cn-beijing.aliyuncs.com/yunionio/keystone:v4.0.4"
	if cr.Spec.Keystone.Image != image || cr.Spec.Zone == "" || cr.Spec.Glance.Image == "" {
		r.t.Errorf("keystone %q, zone %q, glance %q", cr.Spec.Keystone.Image, cr.Spec.Zone, cr.Spec.Glance.Image)
	}
	if !slices.ContainsFunc(cr.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == v1alpha1.ManagerDefaults && m.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(m.FieldsV1.GetRawString(), `"f:image"`)
	}) {
		r.t.Error("the defaults are not owned by their own manager")
	}
	table := r.table()
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if !slices.Equal(columns, []string{"Name", "Keystone", "Version", "Ready", "Phase", "Age"}) || len(table.Rows) != 1 || table.Rows[0].Cells[1] != image {
		r.t.Errorf("kubectl get oc: %v %v", columns, table.Rows)
	}
}

// table is what kubectl get oc asks for.
func (r *rig) table() metav1.Table {
	r.t.Helper()
	config := r.cluster.Config(harness.Admin)
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		r.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet,
		config.Host+"/apis/onecloud.yunion.io/v1alpha1/namespaces/onecloud/onecloudclusters", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := web.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(response.Body).Decode(&table); err != nil {
		r.t.Fatal(err)
	}
	return table
}

// resync: a touched cloud is looked at, and nobody is asked anything.
func (r *rig) resync() {
	before, _ := r.passes()
	r.untilQuiet(before - 1)
	was := r.cloud()
	w := r.count(func() {
		before, _ := r.passes()
		r.edit(r.minimal(), `{"metadata":{"annotations":{"test/touched":"1"}}}`)
		r.untilQuiet(before)
	})
	// The recorder of events works in its own time: what it still tells of the installation does not belong to this pass.
	asked := slices.DeleteFunc(slices.Clone(w.kubernetes), func(q harness.Request) bool { return q.Resource == "events" })
	if len(asked) > 0 || len(w.outside()) > 0 {
		r.t.Errorf("%s\n%v\n%v\nstatus:%s", w.summary(), asked, w.outside(), cmp.Diff(was.Status, r.cloud().Status))
	}
}

// restart: a new operator reads, and writes nothing but its lease.
func (r *rig) restart() {
	began := time.Now()
	w := r.count(func() {
		r.stopOperator()
		before, _ := r.passes()
		r.startOperator()
		r.untilQuiet(before)
	})
	r.t.Logf("restarted and quiet after %s: %s", time.Since(began).Round(10*time.Millisecond), w.summary())
	if writes := w.writes(); writes != nil || len(w.outside()) > 0 {
		r.t.Errorf("writes %q, outside %q", writes, w.outside())
	}
	for _, q := range w.kubernetes {
		if q.Resource == "onecloudclusters" && q.Verb != "list" {
			r.t.Errorf("it %s", q)
		}
	}
}

// drift: somebody sets an image by hand on a Deployment.
func (r *rig) drift() {
	d := &appsv1.Deployment{}
	r.get(d, "default-logger")
	want := d.Spec.Template.Spec.Containers[0].Image
	w := r.count(func() {
		d.Spec.Template.Spec.Containers[0].Image = "example.com/other:v1"
		passes, _ := r.passes()
		if err := r.client.Update(r.t.Context(), d, client.FieldOwner("kubectl-edit")); err != nil {
			r.t.Fatal(err)
		}
		r.until(&appsv1.Deployment{}, "default-logger", func(o client.Object) (bool, string) {
			d, ok := o.(*appsv1.Deployment)
			return ok && d.Spec.Template.Spec.Containers[0].Image == want, "the image is not restored"
		})
		r.untilQuiet(passes)
		r.untilReady()
	})
	r.t.Log(w.summary())
	if writes := w.writes(); !slices.Equal(writes, []string{"patch deployments/default-logger"}) || len(w.outside()) > 0 {
		r.t.Errorf("writes %q, outside %q", writes, w.outside())
	}
}

// deleted: somebody deletes objects of the cloud.
func (r *rig) deleted() {
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.Secret{}} {
		name := map[bool]string{true: "default-logger-config", false: "default-logger"}[r.kind(o) == "Secret"]
		r.get(o, name)
		old := o.GetUID()
		w := r.count(func() {
			passes, _ := r.passes()
			if err := r.client.Delete(r.t.Context(), o); err != nil {
				r.t.Fatal(err)
			}
			fresh, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				r.t.Fatalf("%T is no object", o)
			}
			r.until(fresh, name, func(o client.Object) (bool, string) { return o != nil && o.GetUID() != old, "it is not back" })
			r.untilQuiet(passes)
			r.untilReady()
		})
		if writes := w.writes(); len(writes) != 1 || len(w.outside()) > 0 {
			r.t.Errorf("%s: writes %q, outside %q", r.kind(o), writes, w.outside())
		}
	}
}

// options: a person edits the ConfigMap of a service: one option of his own, and one of ours.
func (r *rig) options() {
	before := r.deployments()["region"].Spec.Template.Annotations[v1alpha1.AnnotationConfigHash]
	starts := r.pods.Starts("default-region")
	cm := &corev1.ConfigMap{}
	r.get(cm, "default-region")
	cm.Data["keep_deleted_snapshot_days"] = "7"
	cm.Data["request_worker_count"] = "16"
	passes, _ := r.passes()
	if err := r.client.Update(r.t.Context(), cm, client.FieldOwner("kubectl-edit")); err != nil {
		r.t.Fatal(err)
	}
	r.until(&appsv1.Deployment{}, "default-region", func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Spec.Template.Annotations[v1alpha1.AnnotationConfigHash] != before && d.Status.ObservedGeneration == d.Generation &&
			d.Status.AvailableReplicas == 1, "the pods have not followed"
	})
	r.untilQuiet(passes)
	r.untilReady()
	if now := r.pods.Starts("default-region"); now == starts {
		r.t.Error("no process was started")
	}
	r.get(cm, "default-region")
	s := &corev1.Secret{}
	r.get(s, "default-region-config")
	for _, option := range []string{"keep_deleted_snapshot_days: 7", "request_worker_count: 16"} {
		if !strings.Contains(string(s.Data["region.conf"]), option) {
			r.t.Errorf("the file lacks %q", option)
		}
	}
	if cm.Data["keep_deleted_snapshot_days"] != "7" || cm.Data["request_worker_count"] != "16" {
		r.t.Errorf("the options are %q and %q", cm.Data["keep_deleted_snapshot_days"], cm.Data["request_worker_count"])
	}
	// A service takes the stored value, whatever its file says: the change must be there, too.
	id, _ := r.identity()
	stored, err := id.GetServiceConfig(r.t.Context(), "region2")
	if err != nil {
		r.t.Fatal(err)
	}
	if got := fmt.Sprint(stored["default"]["request_worker_count"]); got != "16" {
		r.t.Errorf("the identity service has stored request_worker_count %s, want 16", got)
	}
}

// disable: glance goes and comes back; its database stays.
func (r *rig) disable() {
	r.edit(r.minimal(), `{"spec":{"glance":{"disable":true}}}`)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	r.gone(ctx, &appsv1.Deployment{}, "default-glance")
	r.untilReady()
	if on := r.endpoints("glance"); len(on) != 0 {
		r.t.Errorf("endpoints of glance are enabled: %q", on)
	}
	if !slices.Contains(r.databases(), "glance") {
		r.t.Error("the database is gone")
	}
	r.get(&corev1.PersistentVolumeClaim{}, "default-glance")

	r.edit(r.minimal(), `{"spec":{"glance":{"disable":false}}}`)
	r.until(&appsv1.Deployment{}, "default-glance", func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Status.AvailableReplicas == 1, "glance is not back"
	})
	r.untilReady()
	if on := r.endpoints("glance"); len(on) != 2 {
		r.t.Errorf("enabled endpoints of glance: %q", on)
	}
}

// crash: an option that a person vouches for and the service refuses makes it Degraded with the reason; taking it back heals it.
func (r *rig) crash() {
	cm := &corev1.ConfigMap{}
	r.get(cm, "default-logger")
	r.edit(cm, `{"metadata":{"annotations":{"onecloud.yunion.io/accept-options":"no_such_option"}},"data":{"no_such_option":"1"}}`)
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "gone"
		}
		i := slices.IndexFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == "logger" })
		c := cr.Status.Components[i]
		return c.State == v1alpha1.Degraded && strings.Contains(c.Message, "CrashLoopBackOff") && strings.Contains(c.Message, "exit 1"), states(cr)
	})
	r.edit(cm, `{"data":{"no_such_option":null}}`)
	r.untilReady()
}

// upgrade: spec.version moves every service that has no version of its own.
func (r *rig) upgrade() {
	began := time.Now()
	w := r.count(func() {
		r.edit(r.minimal(), `{"spec":{"version":"v4.0.5"}}`)
		r.untilReady()
	})
	r.t.Logf("upgraded after %s: %s", time.Since(began).Round(10*time.Millisecond), w.summary())
	own := []string{"ovn-north", "victoria-metrics"} // their releases are not the cloud's
	for name, d := range r.deployments() {
		if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v4.0.5") && !slices.Contains(own, name) {
			r.t.Errorf("%s runs %s", name, image)
		}
	}
	if cr := r.cloud(); cr.Status.Version != "v4.0.5" || !strings.HasSuffix(cr.Spec.Keystone.Image, ":v4.0.5") {
		r.t.Errorf("status %q, spec %q", cr.Status.Version, cr.Spec.Keystone.Image)
	}
}
