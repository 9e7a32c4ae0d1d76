// SPDX-License-Identifier: Apache-2.0

package integration

import (
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
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// TestInstallation installs a complete cloud, whose services run as programs. The subtests only read, so each may run alone.
func TestInstallation(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Programs})
	e.install()
	for name, looks := range map[string]func(*cloudTest){
		"the spec shows the defaults":                     (*cloudTest).defaults,
		"kubectl and older tools read the status":         (*cloudTest).read,
		"the identity service knows all":                  (*cloudTest).catalogue,
		"the services have what they are to begin with":   (*cloudTest).setups,
		"region lists the control plane by its own token": (*cloudTest).masters,
		"an image lies in the claim":                      (*cloudTest).images,
	} {
		t.Run(name, func(t *testing.T) { looks(e.in(t)) })
	}
}

func (e *cloudTest) install() {
	began := time.Now()
	w := e.Count(func() {
		e.StartOperator()
		require.NoError(e, e.Client.Create(e.Context(), e.Minimal()))
		e.UntilReady()
	})
	e.Logf("every component is Available after %s: %s", time.Since(began).Round(10*time.Millisecond), w)
	if refused := w.Refused(); refused != nil {
		e.Errorf("refused by RBAC: %q", refused)
	}
	most, err := harness.IdentityBudget()
	require.NoError(e, err)
	if n := len(w.Identity()); n == 0 || n > most {
		e.Errorf("%d requests to the identity service, at most %d", n, most)
	}
	cr := e.Cloud()
	for _, c := range cr.Status.Components {
		off := c.State == v1alpha1.Disabled && slices.Contains([]string{"off by default", "not in edition ce", "spec.enableCloudNet is not set",
			"spec.enableS3Gateway is not set", "spec.minio.enable is not set", "spec.monitorStack.disable is not false", "not in release v4.0.4: last in v3.10"}, c.Message)
		if !c.State.Settled() || c.State == v1alpha1.Disabled && !off {
			e.Errorf("%s is %s: %s", c.Name, c.State, c.Message)
		}
	}
	if cr.Status.Version != "v4.0.4" || cr.Status.Phase != v1alpha1.PhaseRunning {
		e.Errorf("version %q, phase %q", cr.Status.Version, cr.Status.Phase)
	}
}

// defaults checks that "kubectl edit" shows every service filled in, and "kubectl get oc" its columns.
func (e *cloudTest) defaults() {
	cr := e.Cloud()
	const image = "registry.cn-beijing.aliyuncs.com/yunionio/keystone:v4.0.4"
	if cr.Spec.Keystone.Image != image || cr.Spec.Zone == "" || cr.Spec.Glance.Image == "" {
		e.Errorf("keystone %q, zone %q, glance %q", cr.Spec.Keystone.Image, cr.Spec.Zone, cr.Spec.Glance.Image)
	}
	if !slices.ContainsFunc(cr.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == v1alpha1.ManagerDefaults && m.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(m.FieldsV1.GetRawString(), `"f:image"`)
	}) {
		e.Error("the defaults are not owned by their own manager")
	}
	table := e.table()
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	if !slices.Equal(columns, []string{"Name", "Keystone", "Version", "Ready", "Phase", "Age"}) || len(table.Rows) != 1 || table.Rows[0].Cells[1] != image {
		e.Errorf("kubectl get oc: %v %v", columns, table.Rows)
	}
}

// table returns the table that kubectl get oc requests.
func (e *cloudTest) table() metav1.Table {
	e.Helper()
	config := e.Cluster.Config(harness.Admin)
	web, err := rest.HTTPClientFor(config)
	require.NoError(e, err)
	request, err := http.NewRequestWithContext(e.Context(), http.MethodGet,
		config.Host+"/apis/onecloud.yunion.io/v1alpha1/namespaces/onecloud/onecloudclusters", nil)
	require.NoError(e, err)
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := web.Do(request)
	require.NoError(e, err)
	defer response.Body.Close()
	var table metav1.Table
	require.NoError(e, json.NewDecoder(response.Body).Decode(&table))
	return table
}

// TestUnchangedCloudCostsNothing checks that the reconcile of a touched cloud sends no requests.
func TestUnchangedCloudCostsNothing(t *testing.T) {
	installed(t, env.Options{}, env.Small...).costsNothing()
}

func (e *cloudTest) costsNothing() {
	e.Rest()
	was := e.Cloud()
	w := e.Count(func() {
		before, _ := e.Passes()
		e.Edit(`{"metadata":{"annotations":{"test/touched":"1"}}}`)
		e.UntilQuiet(before)
	})
	// The recorder of events works asynchronously: events of the installation that it still writes do not count.
	asked := w.Asked()
	if len(asked) > 0 || len(w.Outside()) > 0 {
		e.Errorf("%s\n%v\n%v\nstatus:%s", w, asked, w.Outside(), cmp.Diff(was.Status, e.Cloud().Status))
	}
}

// TestRestartedOperatorChangesNothing checks that a new operator only reads, and writes nothing except its lease.
func TestRestartedOperatorChangesNothing(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	began := time.Now()
	w := e.Count(func() {
		e.StopOperator()
		before, _ := e.Passes()
		e.StartOperator()
		e.UntilQuiet(before)
	})
	e.Logf("restarted and quiet after %s: %s", time.Since(began).Round(10*time.Millisecond), w)
	if writes := w.Writes(); writes != nil || len(w.Outside()) > 0 {
		e.Errorf("writes %q, outside %q", writes, w.Outside())
	}
	for _, q := range w.Kubernetes {
		if q.Resource == "onecloudclusters" && q.Verb != "list" {
			e.Errorf("it %s", q)
		}
	}
}

// TestDriftIsRepairedWithOneWrite changes the image of a Deployment by hand.
func TestDriftIsRepairedWithOneWrite(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	d := &appsv1.Deployment{}
	e.Get(d, "default-glance")
	want := d.Spec.Template.Spec.Containers[0].Image
	w := e.Count(func() {
		d.Spec.Template.Spec.Containers[0].Image = "example.com/other:v1"
		passes, _ := e.Passes()
		require.NoError(e, e.Client.Update(e.Context(), d, client.FieldOwner("kubectl-edit")))
		e.Until(&appsv1.Deployment{}, "default-glance", func(o client.Object) (bool, string) {
			d, ok := o.(*appsv1.Deployment)
			return ok && d.Spec.Template.Spec.Containers[0].Image == want, "the image is not restored"
		})
		e.UntilQuiet(passes)
		e.UntilReady()
	})
	e.Log(w)
	if writes := w.Writes(); !slices.Equal(writes, []string{"patch deployments/default-glance"}) || len(w.Outside()) > 0 {
		e.Errorf("writes %q, outside %q", writes, w.Outside())
	}
}

// TestDeletedObjectsAreRecreatedWithOneWrite deletes objects of the cloud. A busy API server reports the deletion of a Service before it releases its
// port. A write in that moment is rejected and repeated.
func TestDeletedObjectsAreRecreatedWithOneWrite(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.Secret{}} {
		name := map[bool]string{true: "default-glance-config", false: "default-glance"}[e.Kind(o) == "Secret"]
		e.Get(o, name)
		old := o.GetUID()
		w := e.Count(func() {
			passes, _ := e.Passes()
			require.NoError(e, e.Client.Delete(e.Context(), o))
			fresh, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				e.Fatalf("%T is no object", o)
			}
			e.Until(fresh, name, func(o client.Object) (bool, string) { return o != nil && o.GetUID() != old, "it is not back" })
			e.UntilQuiet(passes)
			e.UntilReady()
		})
		taken := func(s string) bool { return s == "patch services/default-glance refused: 422" }
		if writes := w.Writes(); len(slices.DeleteFunc(slices.Clone(writes), taken)) != 1 || len(w.Outside()) > 0 {
			e.Errorf("%s: writes %q, outside %q", e.Kind(o), writes, w.Outside())
		}
	}
}

// TestUserOptionsAreKept edits the ConfigMap of a service by hand: a custom option, and one of the operator's.
func TestUserOptionsAreKept(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "region")
	before := e.Deployments()["region"].Spec.Template.Annotations[v1alpha1.AnnotationConfigHash]
	starts := e.Pods.Starts("default-region")
	cm := &corev1.ConfigMap{}
	e.Get(cm, "default-region")
	cm.Data["keep_deleted_snapshot_days"] = "7"
	cm.Data["request_worker_count"] = "16"
	passes, _ := e.Passes()
	require.NoError(e, e.Client.Update(e.Context(), cm, client.FieldOwner("kubectl-edit")))
	e.Until(&appsv1.Deployment{}, "default-region", func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Spec.Template.Annotations[v1alpha1.AnnotationConfigHash] != before && d.Status.ObservedGeneration == d.Generation &&
			d.Status.AvailableReplicas == 1, "the pods have not followed"
	})
	e.UntilQuiet(passes)
	e.UntilReady()
	if now := e.Pods.Starts("default-region"); now == starts {
		e.Error("no program was started")
	}
	e.Get(cm, "default-region")
	s := &corev1.Secret{}
	e.Get(s, "default-region-config")
	for _, option := range []string{"keep_deleted_snapshot_days: 7", "request_worker_count: 16"} {
		if !strings.Contains(string(s.Data["region.conf"]), option) {
			e.Errorf("the file lacks %q", option)
		}
	}
	if cm.Data["keep_deleted_snapshot_days"] != "7" || cm.Data["request_worker_count"] != "16" {
		e.Errorf("the options are %q and %q", cm.Data["keep_deleted_snapshot_days"], cm.Data["request_worker_count"])
	}
	// A service uses the stored value, whatever its file says. So the stored value must change as well.
	id, _ := e.identity()
	stored, err := id.GetServiceConfig(e.Context(), "region2")
	require.NoError(e, err)
	if got := fmt.Sprint(stored["default"]["request_worker_count"]); got != "16" {
		e.Errorf("the identity service has stored request_worker_count %s, want 16", got)
	}
}

// TestDisabledComponentKeepsItsData disables and enables glance; its database stays.
func TestDisabledComponentKeepsItsData(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	e.Edit(`{"spec":{"glance":{"disable":true}}}`)
	e.UntilGone(&appsv1.Deployment{}, "default-glance")
	e.UntilReady()
	if on := e.endpoints("glance"); len(on) != 0 {
		e.Errorf("endpoints of glance are enabled: %q", on)
	}
	if !slices.Contains(e.databases(), "glance") {
		e.Error("the database is gone")
	}
	e.Get(&corev1.PersistentVolumeClaim{}, "default-glance")

	e.Edit(`{"spec":{"glance":{"disable":false}}}`)
	e.Until(&appsv1.Deployment{}, "default-glance", func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Status.AvailableReplicas == 1, "glance is not back"
	})
	e.UntilReady()
	if on := e.endpoints("glance"); len(on) != 2 {
		e.Errorf("enabled endpoints of glance: %q", on)
	}
}

// TestCrashIsReportedAndHeals sets an option that a service rejects at its start. It becomes Degraded with the reason, and recovers without the option.
func TestCrashIsReportedAndHeals(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "region", "logger")
	cm := &corev1.ConfigMap{}
	e.Get(cm, "default-logger")
	e.EditObject(cm, cm.GetName(), `{"metadata":{"annotations":{"onecloud.yunion.io/accept-options":"no_such_option"}},"data":{"no_such_option":"1"}}`)
	e.UntilComponent("logger", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Degraded && strings.Contains(c.Message, "CrashLoopBackOff") && strings.Contains(c.Message, "exit 1")
	})
	e.EditObject(cm, cm.GetName(), `{"data":{"no_such_option":null}}`)
	e.UntilReady()
}

// TestUpgradeMovesEveryService checks that spec.version moves every service that has no version of its own.
func TestUpgradeMovesEveryService(t *testing.T) {
	e := installed(t, env.Options{})
	began := time.Now()
	w := e.Count(func() {
		e.Edit(`{"spec":{"version":"v4.0.5"}}`)
		e.UntilReady()
	})
	e.Logf("upgraded after %s: %s", time.Since(began).Round(10*time.Millisecond), w)
	own := []string{"ovn-north", "victoria-metrics"} // their releases are not the cloud's
	for name, d := range e.Deployments() {
		if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v4.0.5") && !slices.Contains(own, name) {
			e.Errorf("%s runs %s", name, image)
		}
	}
	if cr := e.Cloud(); cr.Status.Version != "v4.0.5" || !strings.HasSuffix(cr.Spec.Keystone.Image, ":v4.0.5") {
		e.Errorf("status %q, spec %q", cr.Status.Version, cr.Spec.Keystone.Image)
	}
}
