// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/templates"
	"yunion.io/x/ocadm/test/require"
)

// one renders a single component of a case.
func one(t *testing.T, name string, options map[string]map[string]string) component.Objects {
	t.Helper()
	cluster := resolved(t, base+"/cr.yaml")
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster), Chosen: options, CertHash: "c", EtcdHash: "e"}
	o, err := render.Component(cluster.Components[name], in)
	require.NoError(t, err)
	return o
}

func TestPeoplesOptionsWin(t *testing.T) {
	theirs := map[string]map[string]string{"region": {
		"request_worker_count": "16",                // one of ours
		"default_bandwidth":    "2000",              // not ours
		"sql_connection":       "mysql://elsewhere", // a secret, which users may not set
		"config":               "an old file",       // left by the earlier operator
	}}
	plain, edited := one(t, "region", nil), one(t, "region", theirs)
	public := edited.ConfigMaps[0].(*corev1.ConfigMap).Data
	if _, ours := public["request_worker_count"]; ours {
		t.Error("a key that people took over is still applied by us")
	}
	file := string(edited.Secrets[0].(*corev1.Secret).Data["region.conf"])
	for _, want := range []string{"request_worker_count: 16\n", "default_bandwidth: 2000\n", "sql_connection: mysql+pymysql://yunioncloud:"} {
		if !strings.Contains(file, want) {
			t.Errorf("the file lacks %q:\n%s", want, file)
		}
	}
	if strings.Contains(file, "elsewhere") || strings.Contains(file, "an old file") {
		t.Errorf("the file holds what it must not:\n%s", file)
	}
	if hashOf(plain) == hashOf(edited) {
		t.Error("an edited option does not roll the pods")
	}
}

func TestBadOptionNamesItself(t *testing.T) {
	cluster := resolved(t, base+"/cr.yaml")
	in := component.Inputs{Cluster: cluster, Chosen: map[string]map[string]string{"logger": {"port": "[1"}}}
	_, err := render.Component(cluster.Components["logger"], in)
	if err == nil || !strings.Contains(err.Error(), `ConfigMap default-logger: option "port" must be a whole number`) {
		t.Errorf("got %v", err)
	}
}

// Once the identity service has adopted the administrator's password, it need not set it again, and no pod restarts for that. Another password, or an
// option set by users, rolls the pods.
func TestAdminPasswordIsSetOnce(t *testing.T) {
	cluster := resolved(t, base+"/cr.yaml")
	keystone := func(taken bool, password string, theirs map[string]string) (component.Objects, string) {
		t.Helper()
		in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster), AdminPasswordTaken: taken,
			Chosen: map[string]map[string]string{"keystone": theirs}}
		in.Credentials[component.BootstrapPassword] = password
		o, err := render.Component(cluster.Components["keystone"], in)
		require.NoError(t, err)
		return o, string(o.Secrets[0].(*corev1.Secret).Data["keystone.conf"])
	}
	fresh, file := keystone(false, "one", nil)
	if !strings.Contains(file, "reset_admin_user_password: true\n") {
		t.Errorf("a new cloud's password is not set:\n%s", file)
	}
	taken, file := keystone(true, "one", nil)
	if !strings.Contains(file, "reset_admin_user_password: false\n") {
		t.Errorf("the password is set at every start:\n%s", file)
	}
	if got := taken.ConfigMaps[0].(*corev1.ConfigMap).Data["reset_admin_user_password"]; got != "false" {
		t.Errorf("the ConfigMap says %q", got)
	}
	if hashOf(fresh) != hashOf(taken) {
		t.Error("the pods restart when the password is taken")
	}
	if other, _ := keystone(false, "two", nil); hashOf(other) == hashOf(taken) {
		t.Error("another password does not roll the pods")
	}
	if chosen, file := keystone(true, "one", map[string]string{"reset_admin_user_password": "true"}); !strings.Contains(file, "reset_admin_user_password: true\n") {
		t.Errorf("what people say does not count (%s):\n%s", hashOf(chosen), file)
	}
}

// climc has the administrator's password in its environment, which only a new pod reads again.
func TestPasswordInEnvironmentRolls(t *testing.T) {
	cluster := resolved(t, base+"/cr.yaml")
	hashes := map[string]bool{}
	for _, password := range []string{"one", "two"} {
		credentials := component.Credentials{component.BootstrapPassword: password}
		o, err := render.Component(cluster.Components["climc"], component.Inputs{Cluster: cluster, Credentials: credentials})
		require.NoError(t, err)
		hashes[hashOf(o)] = true
	}
	if len(hashes) != 2 {
		t.Errorf("another password does not roll the pods: %v", hashes)
	}
}

// host-health shares host's configuration: a change rolls both.
func TestSharedConfigurationRolls(t *testing.T) {
	edited := map[string]map[string]string{"host": {"default_qemu_version": "9.0.1"}}
	if a, b := hashOf(one(t, "host-health", nil)), hashOf(one(t, "host-health", edited)); a == b || a == "" {
		t.Errorf("hashes %q and %q", a, b)
	}
}

func TestEditedPlainFile(t *testing.T) {
	edited := one(t, "web", map[string]map[string]string{"web": {"config": "server {}"}})
	if data := edited.ConfigMaps[0].(*corev1.ConfigMap).Data; len(data) != 0 {
		t.Errorf("the edited file is applied over: %v", data)
	}
	if hashOf(edited) == hashOf(one(t, "web", nil)) {
		t.Error("an edited file does not roll the pods")
	}
}

func hashOf(o component.Objects) string {
	switch w := o.Workload.(type) {
	case *appsv1.Deployment:
		return w.Spec.Template.Annotations[v1alpha1.AnnotationConfigHash]
	case *appsv1.DaemonSet:
		return w.Spec.Template.Annotations[v1alpha1.AnnotationConfigHash]
	}
	return ""
}

// Secrets may only appear in a Secret, and not on a command line.
func TestSecretsLieInSecrets(t *testing.T) {
	cluster := resolved(t, "testdata/choices/cr.yaml")
	canary := component.Placeholders(cluster)
	for k := range canary {
		canary[k] = "CANARY" + k
	}
	for name, r := range cluster.Components {
		o, err := render.Component(r, component.Inputs{Cluster: cluster, Credentials: canary})
		require.NoError(t, err)
		o.Secrets = nil
		text, err := render.YAML(render.List(o))
		require.NoError(t, err)
		if i := strings.Index(string(text), "CANARY"); i >= 0 {
			t.Errorf("%s shows a secret: %.60s", name, text[i:])
		}
	}
}

// The operator may write every kind that is rendered, and no rule uses a wildcard.
func TestRBACCoversWhatIsRendered(t *testing.T) {
	text, err := templates.RenderDir("operator/namespace", map[string]any{"Namespace": "onecloud", "Operator": "onecloud"})
	require.NoError(t, err)
	granted := map[string][]string{}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var role rbacv1.Role
		require.NoError(t, yaml.Unmarshal([]byte(doc), &role))
		if role.Name != "onecloud-operator" || role.Kind != "Role" {
			continue
		}
		for _, rule := range role.Rules {
			for _, g := range rule.APIGroups {
				for _, r := range rule.Resources {
					if g == "*" || r == "*" || slices.Contains(rule.Verbs, "*") {
						t.Errorf("%s %s grants a star", role.Kind, role.Name)
					}
					granted[g+"/"+r] = append(granted[g+"/"+r], rule.Verbs...)
				}
			}
		}
	}
	kinds := map[string]bool{}
	for _, k := range render.Kinds() {
		kinds[resource(k)] = true
	}
	for _, c := range []string{"testdata/ce/cr.yaml", "testdata/choices/cr.yaml"} {
		cluster := resolved(t, c)
		for name, r := range cluster.Components {
			o, err := render.Component(r, component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
			require.NoError(t, err)
			for _, obj := range render.List(o) {
				if !kinds[resource(obj)] {
					t.Errorf("%s renders a %s, which render.Kinds does not list", name, resource(obj))
				}
			}
		}
	}
	for k := range kinds {
		for _, verb := range []string{"list", "watch", "create", "patch", "delete"} {
			if !slices.Contains(granted[k], verb) {
				t.Errorf("the operator may not %s %s", verb, k)
			}
		}
		delete(granted, k)
	}
	for k, verbs := range granted {
		// The earlier operator's etcd consists of bare pods, which are removed when its cloud is adopted. Old operations and the Jobs of operations on
		// machines are removed. A machine is deleted when its annotation requests it.
		removed := []string{"/pods", "batch/jobs", "onecloud.yunion.io/onecloudoperations", "onecloud.yunion.io/onecloudmachines"}
		if slices.Contains(verbs, "delete") && !slices.Contains(removed, k) {
			t.Errorf("the operator may delete %s, which it never renders", k)
		}
	}
}

func resource(o client.Object) string {
	gvk := o.GetObjectKind().GroupVersionKind()
	name := strings.ToLower(gvk.Kind) + "s"
	if strings.HasSuffix(gvk.Kind, "ss") {
		name = strings.ToLower(gvk.Kind) + "es"
	}
	return gvk.Group + "/" + name
}

// Programs that ignore --exit-after-db-init would never exit as an init container, and only those with their own database have one.
func TestInitContainers(t *testing.T) {
	for _, c := range catalog.All() {
		if c.Workload.DBInit && (c.Database == nil || c.Name == "yunionconf" || c.Name == "scheduler") {
			t.Errorf("%s must not have the init container", c.Name)
		}
	}
}

// The example of docs/contributing/adding-a-component.md: a CronJob that says hello, without a type of its own.
func TestHelloExample(t *testing.T) {
	hello := component.Component{
		Name: "hello", Summary: "says hello", Image: component.Image{Reference: "busybox"},
		Workload: component.Workload{Kind: component.CronJob, Schedule: "* * * * *", Command: []string{"echo", "hello world"}, NoCerts: true},
	}
	cr := &v1alpha1.OnecloudCluster{}
	cr.Name, cr.Spec.MySQL.Host = "default", "db"
	f := resolve.Facts{Components: []component.Component{hello}, Images: map[string]string{"busybox": "docker.io/library/busybox:1.37.0-glibc"}}
	for schedule, spec := range map[string]map[string]v1alpha1.ComponentSpec{
		"* * * * *":   nil,
		"*/5 * * * *": {"hello": {Schedule: "*/5 * * * *"}},
	} {
		cr.Spec.Components = spec
		cluster, err := resolve.Cluster(cr, f)
		require.NoError(t, err)
		o, err := render.Component(cluster.Components["hello"], component.Inputs{Cluster: cluster})
		require.NoError(t, err)
		job, ok := o.Workload.(*batchv1.CronJob)
		if !ok || len(render.List(o)) != 1 || job.Spec.Schedule != schedule || job.Name != "default-hello" {
			t.Errorf("got %d objects, %T", len(render.List(o)), o.Workload)
		}
	}
	cr.Spec.Components = map[string]v1alpha1.ComponentSpec{"hello": {Disable: new(true)}}
	cluster, err := resolve.Cluster(cr, f)
	if err != nil || cluster.Components["hello"].DisabledReason != "disabled in spec" {
		t.Errorf("%v, %q", err, cluster.Components["hello"].DisabledReason)
	}
}

// A pod whose service account does not exist is never created.
func TestServiceAccountsExist(t *testing.T) {
	text, err := templates.RenderDir("operator/namespace", map[string]any{"Namespace": "onecloud", "Operator": "onecloud"})
	require.NoError(t, err)
	for _, c := range catalog.All() {
		if a := c.Workload.ServiceAccount; a != "" && !strings.Contains(string(text), "kind: ServiceAccount\nmetadata:\n  name: "+a+"\n") {
			t.Errorf("%s runs as %s, which the operator's manifest does not make", c.Name, a)
		}
	}
}

// Copies for zones get their own zone, and are complete.
func TestZoneTwins(t *testing.T) {
	cluster := resolved(t, "testdata/choices/cr.yaml")
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	for name, zone := range map[string]string{"esxi-agent": "zone1", "baremetal-agent": "zone2"} {
		o, err := render.Component(cluster.Components[name], in)
		require.NoError(t, err)
		if len(o.Copies) != 1 || o.Copies[0].GetName() != "prod-"+name+"-"+zone {
			t.Fatalf("%s has the twins %v", name, o.Copies)
		}
		have := map[string]bool{}
		for _, obj := range slices.Concat(o.Secrets, o.PVCs) {
			have[obj.GetName()] = true
		}
		zones := map[string]bool{}
		for _, obj := range o.Secrets {
			for _, line := range strings.Split(string(obj.(*corev1.Secret).Data[name+".conf"]), "\n") {
				if z, ok := strings.CutPrefix(line, "zone: "); ok {
					zones[z] = true
				}
			}
		}
		if len(zones) != 2 || !zones[zone] {
			t.Errorf("%s gets the zones %v", name, zones)
		}
		for _, v := range o.Copies[0].(*appsv1.Deployment).Spec.Template.Spec.Volumes {
			if s := v.Secret; s != nil && !have[s.SecretName] && s.SecretName != "prod-certs" {
				t.Errorf("%s: Secret %s does not exist", name, s.SecretName)
			}
			if c := v.PersistentVolumeClaim; c != nil && !have[c.ClaimName] {
				t.Errorf("%s: claim %s does not exist", name, c.ClaimName)
			}
		}
	}
}

// The DSN parameter of services for each TLS mode of the database server. Services only know the system's CAs.
func TestDatabaseTLS(t *testing.T) {
	for _, c := range []struct{ mode, ca, dsn string }{
		{"", "", "interpolateParams=true"},
		{"disabled", "", "interpolateParams=true"},
		{"preferred", "", "&tls=preferred"},
		{"required", "", "&tls=skip-verify"},
		{"verify-ca", "PEM", "&tls=skip-verify"},
		{"verify-identity", "", "&tls=true"},
		{"verify-identity", "PEM", "&tls=skip-verify"},
	} {
		cr := cloudOf(t, "testdata/choices/cr.yaml")
		cr.Spec.MySQL.TLS = v1alpha1.DatabaseTLS{Mode: c.mode, CA: c.ca}
		cluster := described(t, cr)
		if dsn := (component.Inputs{Cluster: cluster}).DSN("keystone"); !strings.HasSuffix(dsn, c.dsn) {
			t.Errorf("%+v: %s", c, dsn)
		}
	}
}
