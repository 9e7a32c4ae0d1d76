// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// adoption is a cloud of the earlier operator, and its state before the adoption.
type adoption struct {
	*cloudTest
	ca    []byte
	saved *v1alpha1.OnecloudCluster
	// before holds the objects by kind and name.
	before map[string]client.Object
	seen   env.Work
}

// TestAdopt adopts a cloud of the earlier operator, created here object by object. Then it applies files saved from that cloud.
func TestAdopt(t *testing.T) {
	a := &adoption{cloudTest: newCloudTest(t, env.Options{Workloads: env.Programs})}
	for _, part := range []struct {
		name string
		do   func(*adoption)
	}{
		{"the earlier operator's cloud runs", (*adoption).build},
		{"it is taken over", (*adoption).takeOver},
		{"what must stay has stayed", (*adoption).identical},
		{"pod templates change only where they must", (*adoption).templates},
		{"no account has another password", (*adoption).passwords},
		{"people's options survive", (*adoption).peoples},
		{"nothing is left of the earlier operator", (*adoption).leftovers},
		{"no password lies in the open", (*adoption).secrets},
		{"the spec shows our defaults and their choices", (*adoption).spec},
		{"afterwards it costs nothing", func(a *adoption) { a.costsNothing() }},
		{"a file saved before moves every service", (*adoption).savedFile},
	} {
		outer := a.Env
		ok := t.Run(part.name, func(t *testing.T) {
			a.Env = outer.In(t)
			part.do(a)
		})
		a.Env = outer
		if !ok && part.name == "it is taken over" || t.Failed() && len(a.before) == 0 {
			return
		}
	}
}

// running lists the keys of the components of this cloud that are not disabled.
var running = []string{"etcd", "keystone", "regionServer", "regionDNS", "glance", "logger", "web", "hostagent"}

func (a *adoption) build() {
	a.resource()
	a.accounts()
	a.ca = a.earlierCerts()
	a.earlierRecord()
	keystone := earlierService{name: "keystone", port: 30500, database: "keystone", user: "keystone", dbPassword: "keystoneDbSecret25",
		options: "admin_port: 30357\nbootstrap_admin_user_password: " + adminPassword + "\nreset_admin_user_password: true\nauto_sync_table: false\n"}
	a.earlierConfig("keystone", a.earlierFile(keystone))
	a.earlierNodePorts("keystone", nil, map[string]int32{"public": 30500, "admin": 30357})
	a.earlierDeployment(keystone)
	a.Until(&appsv1.Deployment{}, "default-keystone", available)
	a.identities()
	for _, s := range earlierServices() {
		a.earlierConfig(s.name, a.earlierFile(s))
		a.earlierNodePorts(s.name, s.labels, map[string]int32{"api": s.port})
		if s.name == "glance" {
			a.earlierClaim("default-glance", "glance", "100G", "/opt/cloud/workspace/data/glance")
		}
		a.earlierDeployment(s)
	}
	a.earlierWeb()
	a.earlierNodes()
	// Disabled, with the objects that the earlier operator creates for a disabled component; and one that a user edited.
	notify := earlierService{name: "notify", port: 30777, database: "notify", user: "notify", dbPassword: "notifyDbSecret29", account: "notify", password: "notifyAcctSecret2"}
	a.earlierConfig("notify", a.earlierFile(notify))
	a.earlierNodePorts("notify", nil, map[string]int32{"api": 30777})
	a.earlierConfig("devtool", a.earlierFile(earlierService{name: "devtool", port: 30443 + 1, account: "devtooladmin", password: "devtoolAcctSecr2"}))
	for component, change := range map[string][2]string{
		"region":  {"keep_deleted_snapshot_days: 3", "keep_deleted_snapshot_days: 9"},
		"glance":  {"request_worker_count: 8", "request_worker_count: 24"},
		"devtool": {"log_level: info", "log_level: debug"},
	} {
		cm := &corev1.ConfigMap{}
		a.Get(cm, "default-"+component)
		cm.Data["config"] = strings.Replace(cm.Data["config"], change[0], change[1], 1)
		require.NoError(a, a.Client.Update(a.Context(), cm, client.FieldOwner("kubectl-edit")))
	}
	// From before owners were tracked.
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Service{}} {
		a.Get(o, "default-logger")
		a.EditObject(o, o.GetName(), `{"metadata":{"managedFields":[{}]}}`)
		if n := len(o.GetManagedFields()); n > 0 {
			a.Fatalf("%d owners are left", n)
		}
	}
	a.before = a.objects()
	a.saved = a.Cloud()
}

func available(o client.Object) (bool, string) {
	d, ok := o.(*appsv1.Deployment)
	return ok && d.Status.AvailableReplicas > 0, "no pod is available"
}

func (a *adoption) takeOver() {
	began := time.Now()
	a.seen = a.Count(func() {
		a.StartOperator()
		// An operator that is stopped halfway is succeeded by another one.
		a.Until(&appsv1.Deployment{}, "default-keystone", func(o client.Object) (bool, string) {
			return o != nil && o.GetAnnotations()[engine.HashAnnotation] != "", "keystone is not taken over"
		})
		a.StopOperator()
		a.StartOperator()
		a.UntilReady()
		a.Rest()
	})
	a.Logf("taken over after %s: %s", time.Since(began).Round(10*time.Millisecond), a.seen)
	if refused := a.seen.Refused(); refused != nil {
		a.Errorf("refused by RBAC: %q", refused)
	}
}

// identical checks that no workload, claim, Service or CA was replaced, and that selectors, addresses and ports are unchanged.
func (a *adoption) identical() {
	now := a.objects()
	for key, old := range a.before {
		o := now[key]
		kind, _, _ := strings.Cut(key, "/")
		switch old := old.(type) {
		case *appsv1.Deployment, *appsv1.DaemonSet, *corev1.PersistentVolumeClaim:
			if o == nil || o.GetUID() != old.GetUID() {
				a.Errorf("%s is gone or another one", key)
			}
		case *corev1.Service:
			s, ok := o.(*corev1.Service)
			if !ok {
				if key != "Service/default-notify" {
					a.Errorf("%s is gone", key)
				}
				continue
			}
			ports := func(s *corev1.Service) map[string]int32 {
				out := map[string]int32{}
				for _, p := range s.Spec.Ports {
					if p.NodePort > 0 || p.Port < 8000 {
						out[p.Name] = max(p.NodePort, p.Port)
					}
				}
				return out
			}
			if s.UID != old.UID || s.Spec.ClusterIP != old.Spec.ClusterIP || !reflect.DeepEqual(s.Spec.Selector, old.Spec.Selector) || !maps.Equal(ports(s), ports(old)) {
				a.Errorf("%s: %+v became %+v", key, old.Spec, s.Spec)
			}
		}
		before, _ := selector(old)
		if after, is := selector(o); is && !reflect.DeepEqual(before, after) {
			a.Errorf("%s selects %v, before %v", key, after, before)
		}
		if o != nil && kind != "Secret" && kind != "ConfigMap" && o.GetLabels()[v1alpha1.LabelInstance] != earlierInstance {
			a.Errorf("%s has instance %s", key, o.GetLabels()[v1alpha1.LabelInstance])
		}
	}
	certs := &corev1.Secret{}
	a.Get(certs, "default-certs")
	if !bytes.Equal(certs.Data["ca.crt"], a.ca) {
		a.Error("the CA is another one")
	}
	if old, ok := a.before["Secret/default-certs"].(*corev1.Secret); !ok || bytes.Equal(old.Data["service.crt"], certs.Data["service.crt"]) {
		a.Error("the certificate of the services still lacks their names")
	}
}

func selector(o client.Object) (*metav1.LabelSelector, bool) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return w.Spec.Selector, true
	case *appsv1.DaemonSet:
		return w.Spec.Selector, true
	}
	return nil, false
}

// passwords checks that the credentials are the earlier ones and every account still has its password, and that no request changed one.
func (a *adoption) passwords() {
	have := a.Credentials()
	want := map[string]string{
		component.BootstrapPassword: adminPassword, component.DatabasePassword("keystone"): "keystoneDbSecret25", component.AccountPassword("host"): "hostAcctSecret2",
		component.DatabaseName("region"): "cloud_of_ours", component.DatabaseUser("region"): "cloudofours", component.AccountUser("glance"): "glance_of_ours",
		component.DatabasePassword("notify"): "notifyDbSecret29",
		component.AccountPassword("devtool"): "devtoolAcctSecr2", // only its file has it
	}
	for _, s := range earlierServices() {
		want[component.DatabasePassword(s.name)], want[component.AccountPassword(s.name)] = s.dbPassword, s.password
	}
	for k, v := range want {
		if string(have[k]) != v {
			a.Errorf("%s is not the earlier one", k)
		}
	}
	for k := range have {
		if component.IsName(k) && want[k] == "" {
			a.Errorf("%s is kept although it is the usual name", k)
		}
	}
	for _, s := range earlierServices() {
		if !a.logsIn(a.Context(), s.user, s.dbPassword) {
			a.Errorf("database account %s has another password", s.user)
		}
	}
	for user, password := range earlierAccounts() {
		if err := a.admin().CheckLogin(a.Context(), user, password, "system"); err != nil {
			a.Errorf("identity account %s: %v", user, err)
		}
	}
	for _, verb := range []string{"ALTER", "DROP"} {
		if slices.Contains(a.seen.Statements, verb) {
			a.Errorf("%s was sent to the database: %v", verb, a.seen.Statements)
		}
	}
	for _, q := range a.seen.Others {
		if strings.HasPrefix(q, "PUT default-keystone/v3/users/") {
			a.Errorf("an account was changed: %s", q)
		}
	}
	if slices.Contains(a.databases(), "yunioncloud") {
		a.Error("region has a second database")
	}
}

func (a *adoption) peoples() {
	for component, want := range map[string]map[string]string{
		"region": {"keep_deleted_snapshot_days": "9"}, "glance": {"request_worker_count": "24"}, "logger": {"request_worker_count": "8"}, "devtool": {"log_level": "debug"},
	} {
		cm := &corev1.ConfigMap{}
		a.Get(cm, "default-"+component)
		for k, v := range want {
			if cm.Data[k] != v {
				a.Errorf("%s: %s is %q, want %q", component, k, cm.Data[k], v)
			}
		}
		for _, k := range []string{"host_offline_max_seconds", "enable_rbac", "config"} {
			if _, there := cm.Data[k]; there {
				a.Errorf("%s: %s is in the ConfigMap: nobody chose it", component, k)
			}
		}
	}
	s := &corev1.Secret{}
	a.Get(s, "default-region-config")
	for _, line := range []string{"keep_deleted_snapshot_days: 9", "admin_user: regionadmin", "/cloud_of_ours?"} {
		if !strings.Contains(string(s.Data["region.conf"]), line) {
			a.Errorf("region's file lacks %q", line)
		}
	}
}

// leftovers checks that the earlier operator owns no field, that none of its objects remains except its record, and that stale parts are gone.
func (a *adoption) leftovers() {
	for key, o := range a.objects() {
		if key == "ConfigMap/default-cluster-config" {
			continue
		}
		for _, m := range o.GetManagedFields() {
			if m.Manager == earlierManager || m.Manager == "before-first-apply" {
				a.Errorf("%s has fields of the earlier operator: %s", key, m.FieldsV1.GetRawString())
			}
		}
		if _, there := o.GetAnnotations()[earlierLast]; there {
			a.Errorf("%s has the earlier operator's annotation", key)
		}
	}
	for _, gone := range []string{"ConfigMap/default-region-dns", "ConfigMap/default-notify", "Service/default-notify", "Secret/etcd-client"} {
		if a.objects()[gone] != nil {
			a.Errorf("%s is still there", gone)
		}
	}
	web := &corev1.Service{}
	a.Get(web, "default-web")
	if len(web.Spec.Ports) != 2 {
		a.Errorf("the console's Service has %d ports", len(web.Spec.Ports))
	}
	d := &appsv1.Deployment{}
	a.Get(d, "default-region")
	for _, c := range d.Spec.Template.Spec.Containers {
		if len(c.Resources.Limits) > 0 {
			a.Errorf("region has limits: %v", c.Resources.Limits)
		}
	}
	nginx := &corev1.ConfigMap{}
	a.Get(nginx, "default-web")
	if strings.HasPrefix(nginx.Data["config"], "server { listen 443 ssl; }") {
		a.Error("the console's nginx is still that of the earlier operator, though nobody edited it")
	}
	a.UntilGone(&corev1.Pod{}, "default-etcd-abcdefghij")
}

// secrets checks that no old password is in anything that users may read, except in the record, which the event advises to delete.
func (a *adoption) secrets() {
	var words []string
	for k, v := range a.Credentials() {
		if !component.IsName(k) && k != component.CloudID {
			words = append(words, string(v))
		}
	}
	cr := a.Cloud()
	texts := map[string]string{"operator's log": a.Said(), "status": a.text(cr.Status)}
	for key, o := range a.objects() {
		if !strings.HasPrefix(key, "Secret/") && key != "ConfigMap/default-cluster-config" {
			texts[key] = a.text(o)
		}
	}
	var events eventsv1.EventList
	require.NoError(a, a.Client.List(a.Context(), &events, client.InNamespace(namespace)))
	texts["events"] = a.text(events)
	if !strings.Contains(texts["events"], "delete ConfigMap default-cluster-config") || !strings.Contains(texts["events"], "kept as your options: keep_deleted_snapshot_days") {
		a.Errorf("events say nothing of the adoption:\n%s", texts["events"])
	}
	for where, text := range texts {
		for _, word := range words {
			if strings.Contains(text, word) {
				a.Errorf("a password is in %s", where)
			}
		}
	}
}

// spec checks that this operator now owns what the earlier one had computed, and that what it had fixed and what users chose stays.
func (a *adoption) spec() {
	cr := a.Cloud()
	region := cr.Spec.RegionServer
	if region.Limits != nil || region.Affinity != nil || region.Requests != nil {
		a.Errorf("region still has limits %v, affinity %v, requests %v", region.Limits, region.Affinity != nil, region.Requests)
	}
	if len(region.Tolerations) != 3 || cr.Spec.Etcd.CreatedSecrets != nil {
		a.Errorf("tolerations %v, createdSecrets %v", region.Tolerations, cr.Spec.Etcd.CreatedSecrets)
	}
	if cr.Spec.ImageRepository != earlierRegistry || region.Image != earlierRegistry+"/region:"+earlierVersion || cr.Spec.Keystone.BootstrapPassword != adminPassword {
		a.Errorf("registry %s, image %s", cr.Spec.ImageRepository, region.Image)
	}
	if *cr.Spec.Logger.Replicas != 2 || cr.Spec.Glance.Requests == nil || cr.Spec.Glance.Requests.Storage != "100G" {
		a.Errorf("logger has %d replicas, glance %+v", *cr.Spec.Logger.Replicas, cr.Spec.Glance.Requests)
	}
	for _, m := range cr.ManagedFields {
		if m.Manager == earlierManager && strings.Contains(m.FieldsV1.GetRawString(), `"f:image"`) {
			a.Error("an image is the earlier operator's")
		}
	}
}

// savedFile applies the earlier `kubectl get oc -o yaml` again, with another version and one custom image, with both kinds of apply.
func (a *adoption) savedFile() {
	const mine = "192.168.0.1:5000/mine/logger:hotfix"
	spec := savedSpec(a.T, a.saved)
	spec["version"] = "v4.0.5"
	a.serverSideApply(spec, true)
	a.UntilReady()
	a.everyServiceRuns(earlierRegistry, "v4.0.5", nil)

	spec["version"] = "v4.0.6"
	require.NoError(a, unstructured.SetNestedField(spec, mine, "logger", "image"))
	a.clientSideApply(spec)
	a.UntilReady()
	a.everyServiceRuns(earlierRegistry, "v4.0.6", map[string]string{"logger": mine})

	cr := a.Cloud()
	if *cr.Spec.Logger.Replicas != 2 || *a.Deployments()["logger"].Spec.Replicas != 2 {
		a.Errorf("logger has %d replicas", *cr.Spec.Logger.Replicas)
	}
	if len(cr.Spec.RegionServer.Tolerations) != 3 {
		a.Errorf("the tolerations of the earlier operator are back: %v", cr.Spec.RegionServer.Tolerations)
	}
}
