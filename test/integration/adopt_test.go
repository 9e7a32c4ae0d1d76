// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// adoption is a cloud of the earlier operator, and what was seen of it before.
type adoption struct {
	*rig
	ca    []byte
	saved *v1alpha1.OnecloudCluster
	// before are the objects by kind and name.
	before map[string]client.Object
	seen   work
}

// TestAdopt takes over a cloud as the earlier operator left it, made here object by object; then files saved from it are applied.
func TestAdopt(t *testing.T) {
	a := &adoption{rig: newRig(t)}
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
		{"afterwards it costs nothing", func(a *adoption) { a.resync() }},
		{"a file saved before moves every service", (*adoption).savedFile},
	} {
		outer := a.t
		ok := t.Run(part.name, func(t *testing.T) {
			a.t = t
			part.do(a)
		})
		a.t = outer
		if !ok && part.name == "it is taken over" || t.Failed() && len(a.before) == 0 {
			return
		}
	}
}

// running are the components of this cloud that are not disabled, by the key of their block.
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
	a.until(&appsv1.Deployment{}, "default-keystone", available)
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
	// Disabled, with what the earlier operator makes of a disabled component; and one that people edited.
	notify := earlierService{name: "notify", port: 30777, database: "notify", user: "notify", dbPassword: "notifyDbSecret29", account: "notify", password: "notifyAcctSecret2"}
	a.earlierConfig("notify", a.earlierFile(notify))
	a.earlierNodePorts("notify", nil, map[string]int32{"api": 30777})
	a.earlierConfig("devtool", a.earlierFile(earlierService{name: "devtool", port: 30443 + 1, account: "devtooladmin", password: "devtoolAcctSecr2"}))
	for component, change := range map[string][2]string{
		"region":  {"snapshot_expire_days: 3", "snapshot_expire_days: 9"},
		"glance":  {"request_worker_count: 8", "request_worker_count: 24"},
		"devtool": {"log_level: info", "log_level: debug"},
	} {
		cm := &corev1.ConfigMap{}
		a.get(cm, "default-"+component)
		cm.Data["config"] = strings.Replace(cm.Data["config"], change[0], change[1], 1)
		if err := a.client.Update(a.t.Context(), cm, client.FieldOwner("kubectl-edit")); err != nil {
			a.t.Fatal(err)
		}
	}
	a.before = a.objects()
	a.saved = a.rig.cloud()
}

func available(o client.Object) (bool, string) {
	d, ok := o.(*appsv1.Deployment)
	return ok && d.Status.AvailableReplicas > 0, "no pod is available"
}

// resource: a person names the database and switches things off, the earlier operator fills in the rest.
func (a *adoption) resource() {
	yes, two := true, int32(2)
	cr := a.minimal()
	cr.Labels = map[string]string{v1alpha1.LabelInstance: earlierInstance}
	cr.Spec.Logger.Replicas = &two
	for _, c := range catalog.All() {
		if b := cr.Spec.Component(c.SpecKey); b != nil && !strings.Contains(c.SpecKey, ".") && !slices.Contains(running, c.SpecKey) {
			b.Disable = &yes
		}
	}
	if err := a.client.Create(a.t.Context(), cr, client.FieldOwner("kubectl-create")); err != nil {
		a.t.Fatal(err)
	}
	fillAsEarlier(cr)
	if err := a.client.Update(a.t.Context(), cr, client.FieldOwner(earlierManager)); err != nil {
		a.t.Fatal(err)
	}
}

// fillAsEarlier writes the defaults of the earlier operator: images, one replica, limits of a third of a node, tolerations, ports.
func fillAsEarlier(cr *v1alpha1.OnecloudCluster) {
	one, no := int32(1), false
	quantity := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	cr.Spec.ImageRepository, cr.Spec.Zone, cr.Spec.ProductVersion = earlierRegistry, "zone0", "FullStack"
	cr.Spec.Keystone.BootstrapPassword = adminPassword
	cr.Spec.Etcd.Version, cr.Spec.Etcd.Size, cr.Spec.Etcd.CreatedSecrets = "3.5.12", 1, &no
	cr.Spec.Telegraf.InitContainerImage = earlierRegistry + "/telegraf-init:release-1.36-1"
	affinity, err := yaml.Marshal(earlierAffinity())
	if err == nil {
		affinity, err = yaml.YAMLToJSON(affinity)
	}
	if err != nil {
		panic(err)
	}
	for _, c := range catalog.All() {
		b := cr.Spec.Component(c.SpecKey)
		if b == nil || strings.Contains(c.SpecKey, ".") || c.SpecKey == "etcd" {
			continue
		}
		tag, name := earlierVersion, c.Name
		if c.Image.Tag != "" {
			tag = c.Image.Tag
		}
		if c.Image.Name != "" {
			name = c.Image.Name
		}
		b.Image, b.ImagePullPolicy = earlierRegistry+"/"+name+":"+tag, corev1.PullIfNotPresent
		b.Limits = &v1alpha1.ResourceList{CPU: quantity("1333m"), Memory: quantity("1024Mi")}
		b.Requests = &v1alpha1.ResourceList{CPU: quantity("10m"), Memory: quantity("10Mi")}
		b.Tolerations = earlierTolerations()
		if c.Workload.Kind == "" && c.Storage == nil {
			b.Affinity = &runtime.RawExtension{Raw: affinity}
		}
		if c.Storage != nil {
			b.Requests.Storage, b.StorageClassName = c.Storage.Size, "local-path"
		}
		if b.Replicas == nil {
			b.Replicas = &one
		}
	}
	cr.Spec.RegionServer.Service.NodePort, cr.Spec.Glance.Service.NodePort, cr.Spec.Logger.Service.NodePort = 30888, 30292, 30999
	cr.Spec.Keystone.PublicService.NodePort, cr.Spec.Keystone.AdminService.NodePort = 30500, 30357
}

// accounts of the database, as the earlier operator made them.
func (a *adoption) accounts() {
	admin, err := mysql.Open(a.t.Context(), mysql.Config{Host: a.db.Host, Port: a.db.Port, User: "root", Password: a.db.RootPassword})
	if err != nil {
		a.t.Fatal(err)
	}
	defer admin.Close()
	for _, s := range append(earlierServices(), earlierService{database: "keystone", user: "keystone", dbPassword: "keystoneDbSecret25"}) {
		if _, err := admin.EnsureDatabase(a.t.Context(), s.database); err != nil {
			a.t.Fatal(err)
		}
		if _, err := admin.EnsureAccount(a.t.Context(), mysql.Account{User: s.user, Password: s.dbPassword, Database: s.database}); err != nil {
			a.t.Fatal(err)
		}
	}
}

// admin logs in as sysadmin without looking at certificates, as everybody did.
func (a *adoption) admin() *identity.Client {
	transport := &http.Transport{DialContext: a.pods.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the earlier cloud's certificate has no name of a Service
	a.t.Cleanup(transport.CloseIdleConnections)
	c, err := identity.New(identity.Options{AuthURL: "https://default-keystone.onecloud.svc:30357/v3", Username: "sysadmin", Password: adminPassword, Transport: transport})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// identities are the accounts of the services in the identity service.
func (a *adoption) identities() {
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	c := a.admin()
	if _, err := c.EnsurePolicy(ctx, identity.Policy{Name: "sysadmin", Scope: "system", Description: "everything", Blob: map[string]any{"policy": map[string]any{"*": "allow"}}}); err != nil {
		a.t.Fatal(err)
	}
	if _, err := c.EnsureRolePolicy(ctx, "admin", "system", "sysadmin"); err != nil {
		a.t.Fatal(err)
	}
	snapshot, err := c.Snapshot(ctx)
	for ; identity.IsForbidden(err); snapshot, err = c.Snapshot(ctx) {
		time.Sleep(200 * time.Millisecond) // it reads its policies every two seconds, and nothing tells when
	}
	if err != nil {
		a.t.Fatal(err)
	}
	for user, password := range earlierAccounts() {
		if _, _, err := c.EnsureUser(ctx, snapshot, identity.Account{Name: user, Password: password, System: true}); err != nil {
			a.t.Fatal(err)
		}
		if _, err := c.EnsureUserRole(ctx, snapshot, user, "system", "admin"); err != nil {
			a.t.Fatal(err)
		}
	}
}

func earlierAccounts() map[string]string {
	all := map[string]string{"hostadmin": "hostAcctSecret2"}
	for _, s := range earlierServices() {
		all[s.account] = s.password
	}
	return all
}

// objects of the cloud by kind and name.
func (a *adoption) objects() map[string]client.Object {
	a.t.Helper()
	all := map[string]client.Object{}
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, &appsv1.DeploymentList{},
		&appsv1.DaemonSetList{}, &appsv1.StatefulSetList{}, &networkingv1.IngressList{},
	} {
		if err := a.client.List(a.t.Context(), list, client.InNamespace(namespace)); err != nil {
			a.t.Fatal(err)
		}
		kind := strings.TrimSuffix(a.kind(list), "List")
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			if c, ok := o.(client.Object); ok {
				all[kind+"/"+c.GetName()] = c
			}
			return nil
		}); err != nil {
			a.t.Fatal(err)
		}
	}
	return all
}

func (a *adoption) takeOver() {
	began := time.Now()
	a.seen = a.count(func() {
		a.startOperator()
		a.untilReady()
		passes, _ := a.passes()
		a.untilQuiet(passes - 1)
	})
	a.t.Logf("taken over after %s: %s", time.Since(began).Round(10*time.Millisecond), a.seen.summary())
	if refused := a.seen.refused(); refused != nil {
		a.t.Errorf("refused by RBAC: %q", refused)
	}
}

// identical: no workload, claim, Service or CA is another one than before; selectors, addresses and ports are the same.
func (a *adoption) identical() {
	now := a.objects()
	for key, old := range a.before {
		o := now[key]
		kind, _, _ := strings.Cut(key, "/")
		switch old := old.(type) {
		case *appsv1.Deployment, *appsv1.DaemonSet, *corev1.PersistentVolumeClaim:
			if o == nil || o.GetUID() != old.GetUID() {
				a.t.Errorf("%s is gone or another one", key)
			}
		case *corev1.Service:
			s, ok := o.(*corev1.Service)
			if !ok {
				if key != "Service/default-notify" {
					a.t.Errorf("%s is gone", key)
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
				a.t.Errorf("%s: %+v became %+v", key, old.Spec, s.Spec)
			}
		}
		before, _ := selector(old)
		if after, is := selector(o); is && !reflect.DeepEqual(before, after) {
			a.t.Errorf("%s selects %v, before %v", key, after, before)
		}
		if o != nil && kind != "Secret" && kind != "ConfigMap" && o.GetLabels()[v1alpha1.LabelInstance] != earlierInstance {
			a.t.Errorf("%s has instance %s", key, o.GetLabels()[v1alpha1.LabelInstance])
		}
	}
	certs := &corev1.Secret{}
	a.get(certs, "default-certs")
	if !bytes.Equal(certs.Data["ca.crt"], a.ca) {
		a.t.Error("the CA is another one")
	}
	if old, ok := a.before["Secret/default-certs"].(*corev1.Secret); !ok || bytes.Equal(old.Data["service.crt"], certs.Data["service.crt"]) {
		a.t.Error("the certificate of the services still lacks their names")
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

// mayChange are the fields of a pod template that are different on purpose; docs/decisions/0010-adoption.md gives the reason of each.
var mayChange = []string{
	"metadata.annotations", "spec.volumes", "spec.tolerations", "spec.securityContext", "spec.enableServiceLinks", "spec.automountServiceAccountToken",
	"spec.containers.resources", "spec.containers.readinessProbe", "spec.containers.startupProbe", "spec.containers.securityContext",
	"spec.containers.terminationMessagePolicy", "spec.initContainers.terminationMessagePolicy", "spec.initContainers.securityContext",
}

// mayChangeOf are those of one component: what the fixture left out of a big pod, and the console's second port.
var mayChangeOf = map[string][]string{"host": {"spec"}, "region-dns": {"spec"}, "web": {"spec.containers.ports"}}

func (a *adoption) templates() {
	now := a.objects()
	changed := map[string][]string{}
	for key, old := range a.before {
		before, is := template(old)
		if !is {
			continue
		}
		after, is := template(now[key])
		if !is {
			a.t.Errorf("%s is gone", key)
			continue
		}
		name := strings.TrimPrefix(key[strings.Index(key, "/")+1:], "default-")
		for _, path := range differences("", a.tree(before), a.tree(after)) {
			changed[path] = append(changed[path], name)
			allowed := append(slices.Clone(mayChange), mayChangeOf[name]...)
			if !slices.ContainsFunc(allowed, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") }) {
				a.t.Errorf("%s: %s changed", key, path)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		a.t.Logf("changed: %s (%s)", path, strings.Join(changed[path], ", "))
	}
}

func template(o client.Object) (corev1.PodTemplateSpec, bool) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return w.Spec.Template, true
	case *appsv1.DaemonSet:
		return w.Spec.Template, true
	}
	return corev1.PodTemplateSpec{}, false
}

func (a *adoption) tree(t corev1.PodTemplateSpec) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t)
	if err != nil {
		a.t.Fatal(err)
	}
	return m
}

// differences are the paths, down to three steps, where two trees differ; containers are compared by position.
func differences(at string, a, b any) []string {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	x, ok1 := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if l, ok := a.([]any); ok && strings.HasSuffix(strings.ToLower(at), "containers") {
		if m, ok := b.([]any); ok && len(l) == len(m) {
			var out []string
			for i := range l {
				out = append(out, differences(at, l[i], m[i])...)
			}
			slices.Sort(out)
			return slices.Compact(out)
		}
	}
	if !ok1 || !ok2 || strings.Count(at, ".") >= 2 {
		return []string{at}
	}
	keys := slices.Collect(maps.Keys(x))
	for k := range y {
		if _, both := x[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []string
	for _, k := range keys {
		out = append(out, differences(strings.TrimPrefix(at+"."+k, "."), x[k], y[k])...)
	}
	return out
}

// passwords: the credentials are the earlier ones, every account still has its password, and nobody was asked to change one.
func (a *adoption) passwords() {
	have := a.credentials()
	want := map[string]string{
		component.BootstrapPassword: adminPassword, component.DatabasePassword("keystone"): "keystoneDbSecret25", component.AccountPassword("host"): "hostAcctSecret2",
		component.DatabaseName("region"): "cloud_of_ours", component.DatabaseUser("region"): "cloudofours", component.AccountUser("glance"): "glance_of_ours",
		component.DatabasePassword("notify"): "notifyDbSecret29",
		component.AccountPassword("devtool"): "devtoolAcctSecr2", // only its file knows
	}
	for _, s := range earlierServices() {
		want[component.DatabasePassword(s.name)], want[component.AccountPassword(s.name)] = s.dbPassword, s.password
	}
	for k, v := range want {
		if string(have[k]) != v {
			a.t.Errorf("%s is not the earlier one", k)
		}
	}
	for k := range have {
		if component.IsName(k) && want[k] == "" {
			a.t.Errorf("%s is kept although it is the usual name", k)
		}
	}
	for _, s := range earlierServices() {
		if !a.logsIn(a.t.Context(), s.user, s.dbPassword) {
			a.t.Errorf("database account %s has another password", s.user)
		}
	}
	for user, password := range earlierAccounts() {
		if err := a.admin().CheckLogin(a.t.Context(), user, password, "system"); err != nil {
			a.t.Errorf("identity account %s: %v", user, err)
		}
	}
	for _, verb := range []string{"ALTER", "DROP", "SET"} {
		if slices.Contains(a.seen.statements, verb) {
			a.t.Errorf("%s was sent to the database: %v", verb, a.seen.statements)
		}
	}
	for _, q := range a.seen.others {
		if strings.HasPrefix(q, "PUT default-keystone/v3/users/") {
			a.t.Errorf("an account was changed: %s", q)
		}
	}
	if slices.Contains(a.databases(), "yunioncloud") {
		a.t.Error("region has a second database")
	}
}

func (a *adoption) peoples() {
	for component, want := range map[string]map[string]string{
		"region": {"snapshot_expire_days": "9"}, "glance": {"request_worker_count": "24"}, "logger": {"request_worker_count": "8"}, "devtool": {"log_level": "debug"},
	} {
		cm := &corev1.ConfigMap{}
		a.get(cm, "default-"+component)
		for k, v := range want {
			if cm.Data[k] != v {
				a.t.Errorf("%s: %s is %q, want %q", component, k, cm.Data[k], v)
			}
		}
		for _, k := range []string{"host_offline_max_seconds", "enable_rbac", "config"} {
			if _, there := cm.Data[k]; there {
				a.t.Errorf("%s: %s is in the ConfigMap: nobody chose it", component, k)
			}
		}
	}
	s := &corev1.Secret{}
	a.get(s, "default-region-config")
	for _, line := range []string{"snapshot_expire_days: 9", "admin_user: regionadmin", "/cloud_of_ours?"} {
		if !strings.Contains(string(s.Data["region.conf"]), line) {
			a.t.Errorf("region's file lacks %q", line)
		}
	}
}

// leftovers: no field is the earlier operator's any more, none of its objects remains but its record, and stale parts are gone.
func (a *adoption) leftovers() {
	for key, o := range a.objects() {
		if key == "ConfigMap/default-cluster-config" {
			continue
		}
		for _, m := range o.GetManagedFields() {
			if m.Manager == earlierManager {
				a.t.Errorf("%s has fields of the earlier operator: %s", key, m.FieldsV1.GetRawString())
			}
		}
		if _, there := o.GetAnnotations()[earlierLast]; there {
			a.t.Errorf("%s has the earlier operator's annotation", key)
		}
	}
	for _, gone := range []string{"ConfigMap/default-region-dns", "ConfigMap/default-notify", "Service/default-notify", "Secret/etcd-client"} {
		if a.objects()[gone] != nil {
			a.t.Errorf("%s is still there", gone)
		}
	}
	web := &corev1.Service{}
	a.get(web, "default-web")
	if len(web.Spec.Ports) != 2 {
		a.t.Errorf("the console's Service has %d ports", len(web.Spec.Ports))
	}
	d := &appsv1.Deployment{}
	a.get(d, "default-region")
	for _, c := range d.Spec.Template.Spec.Containers {
		if len(c.Resources.Limits) > 0 {
			a.t.Errorf("region has limits: %v", c.Resources.Limits)
		}
	}
	nginx := &corev1.ConfigMap{}
	a.get(nginx, "default-web")
	if strings.HasPrefix(nginx.Data["config"], "server { listen 443 ssl; }") {
		a.t.Error("the console's nginx is still that of the earlier operator, though nobody edited it")
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	a.gone(ctx, &corev1.Pod{}, "default-etcd-abcdefghij")
}

// secrets: no old password is in anything that people may read, but in the record, which the event tells to delete.
func (a *adoption) secrets() {
	var words []string
	for k, v := range a.credentials() {
		if !component.IsName(k) {
			words = append(words, string(v))
		}
	}
	cr := a.rig.cloud()
	texts := map[string]string{"operator's log": a.log.String(), "status": a.text(cr.Status)}
	for key, o := range a.objects() {
		if !strings.HasPrefix(key, "Secret/") && key != "ConfigMap/default-cluster-config" {
			texts[key] = a.text(o)
		}
	}
	var events eventsv1.EventList
	if err := a.client.List(a.t.Context(), &events, client.InNamespace(namespace)); err != nil {
		a.t.Fatal(err)
	}
	texts["events"] = a.text(events)
	if !strings.Contains(texts["events"], "delete ConfigMap default-cluster-config") || !strings.Contains(texts["events"], "kept as your options: snapshot_expire_days") {
		a.t.Errorf("events say nothing of the adoption:\n%s", texts["events"])
	}
	for where, text := range texts {
		for _, word := range words {
			if strings.Contains(text, word) {
				a.t.Errorf("a password is in %s", where)
			}
		}
	}
}

// spec: what the earlier operator had worked out is ours now, what it had settled and what people chose stays.
func (a *adoption) spec() {
	cr := a.rig.cloud()
	region := cr.Spec.RegionServer
	if region.Limits != nil || region.Affinity != nil || region.Requests != nil {
		a.t.Errorf("region still has limits %v, affinity %v, requests %v", region.Limits, region.Affinity != nil, region.Requests)
	}
	if len(region.Tolerations) != 3 || cr.Spec.Etcd.CreatedSecrets != nil {
		a.t.Errorf("tolerations %v, createdSecrets %v", region.Tolerations, cr.Spec.Etcd.CreatedSecrets)
	}
	if cr.Spec.ImageRepository != earlierRegistry || region.Image != earlierRegistry+"/region:"+earlierVersion || cr.Spec.Keystone.BootstrapPassword != adminPassword {
		a.t.Errorf("registry %s, image %s", cr.Spec.ImageRepository, region.Image)
	}
	if *cr.Spec.Logger.Replicas != 2 || cr.Spec.Glance.Requests == nil || cr.Spec.Glance.Requests.Storage != "100G" {
		a.t.Errorf("logger has %d replicas, glance %+v", *cr.Spec.Logger.Replicas, cr.Spec.Glance.Requests)
	}
	for _, m := range cr.ManagedFields {
		if m.Manager == earlierManager && strings.Contains(m.FieldsV1.GetRawString(), `"f:image"`) {
			a.t.Error("an image is the earlier operator's")
		}
	}
}

// savedFile: `kubectl get oc -o yaml` of before, with another version and one image of somebody's own, applied again in both ways.
func (a *adoption) savedFile() {
	const mine = "192.168.0.1:5000/mine/logger:hotfix"
	spec := savedSpec(a.t, a.saved)
	spec["version"] = "v4.0.2"
	a.serverSideApply(spec, true)
	a.untilReady()
	a.everyServiceRuns(earlierRegistry, "v4.0.2", nil)

	spec["version"] = "v4.0.3"
	if err := unstructured.SetNestedField(spec, mine, "logger", "image"); err != nil {
		a.t.Fatal(err)
	}
	a.clientSideApply(spec)
	a.untilReady()
	a.everyServiceRuns(earlierRegistry, "v4.0.3", map[string]string{"logger": mine})

	cr := a.rig.cloud()
	if *cr.Spec.Logger.Replicas != 2 || *a.deployments()["logger"].Spec.Replicas != 2 {
		a.t.Errorf("logger has %d replicas", *cr.Spec.Logger.Replicas)
	}
	if len(cr.Spec.RegionServer.Tolerations) != 3 {
		a.t.Errorf("the tolerations of the earlier operator are back: %v", cr.Spec.RegionServer.Tolerations)
	}
}
