// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

func resource(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(raw))
	return u
}

const head = `apiVersion: onecloud.yunion.io/v1alpha1
kind: OnecloudCluster
metadata: {name: default, namespace: onecloud, generation: 2`

func TestManifest(t *testing.T) {
	small := Manifest(Options{Name: "default", Namespace: "onecloud", Version: "v4.0.4", Database: Database{Host: "10.0.0.5"}})
	want := resource(t, "{apiVersion: onecloud.yunion.io/v1alpha1, kind: OnecloudCluster, metadata: {name: default, namespace: onecloud},"+
		" spec: {version: v4.0.4, mysql: {host: 10.0.0.5}}}")
	if d := cmp.Diff(want.Object, small.Object); d != "" {
		t.Error(d)
	}
	full := Manifest(Options{
		Name: "default", Namespace: "onecloud", Version: "v4.0.4", ImageRepository: "r/x", Edition: "ee", ProductVersion: "Edge", Region: "r1", Zone: "z1",
		LoadBalancerEndpoint: "fd00::1", DisableResourceManagement: true, UseHyperImage: true, WebHostPorts: true, PullSecret: "r",
		Database: Database{Host: "db", Port: 3307, Username: "root", Secret: "s", SecretKey: "k"},
	})
	want = resource(t, "{apiVersion: onecloud.yunion.io/v1alpha1, kind: OnecloudCluster, metadata: {name: default, namespace: onecloud,"+
		" annotations: {onecloud.yunion.io/edition: ee}}, spec: {version: v4.0.4, imageRepository: r/x, productVersion: Edge, region: r1, zone: z1,"+
		" loadBalancerEndpoint: 'fd00::1', disableResourceManagement: true, useHyperImage: true, web: {hostPorts: true},"+
		" imagePullSecrets: [{name: r}], mysql: {host: db, port: 3307, username: root, passwordSecretRef: {name: s, key: k}}}}")
	if d := cmp.Diff(want.Object, full.Object); d != "" {
		t.Error(d)
	}
}

func TestDifferences(t *testing.T) {
	live := resource(t, head+"}\nspec: {version: v1, mysql: {host: a, port: 3306, username: root}, web: {hostPorts: true, image: x}}").Object["spec"]
	want := map[string]any{
		"version": "v2", "region": "r", "mysql": map[string]any{"host": "a", "port": int64(3306)}, "web": map[string]any{"hostPorts": true},
	}
	got := differences("spec", want, live, nil)
	if !slices.Equal(got, []string{"spec.region is not set, requested r", "spec.version is v1, requested v2"}) {
		t.Errorf("%q", got)
	}
}

func TestPatch(t *testing.T) {
	yes, no := true, false
	live := resource(t, head+`, annotations: {autoupdate.onecloud.yunion.io/current-version: v1}}
spec: {version: v1, hostagent: {tag: v0.9, image: x}, autoupdate: {disable: true}, disableResourceManagement: true}`)
	for name, c := range map[string]struct {
		update Update
		want   map[string]any
		lines  int
	}{
		"nothing":  {Update{}, map[string]any{"spec": map[string]any{}}, 0}, // the API server refuses the patch null
		"the same": {Update{Version: "v1", Edition: "ce", DisableResourceManagement: &yes}, map[string]any{"spec": map[string]any{}}, 0},
		"another version": {Update{Version: "v2"}, map[string]any{
			"spec":     map[string]any{"version": "v2", "hostagent": map[string]any{"tag": nil}},
			"metadata": map[string]any{"annotations": map[string]any{autoupdateAnnotation: nil}},
		}, 2},
		// Only another version moves the agents, as in an operation: the tag may be a choice.
		"edition and limits": {Update{Edition: "ee", DisableResourceManagement: &no}, map[string]any{
			"spec":     map[string]any{"disableResourceManagement": false},
			"metadata": map[string]any{"annotations": map[string]any{"onecloud.yunion.io/edition": "ee"}},
		}, 2},
	} {
		got, lines := c.update.patch(live, false)
		if d := cmp.Diff(c.want, got); d != "" || len(lines) != c.lines {
			t.Errorf("%s: %q\n%s", name, lines, d)
		}
	}
}

// An update without a version moves the cloud to the operator's version, once.
func TestUpdateToTheOperator(t *testing.T) {
	const status = `
spec: {version: v1}
status: {release: {revision: 3}, conditions: [{type: UpdateAvailable, status: "True"}]}`
	_, lines := Update{}.patch(resource(t, head+"}"+status), false)
	if len(lines) != 1 {
		t.Errorf("%q", lines)
	}
	if _, lines := (Update{}).patch(resource(t, head+`, annotations: {onecloud.yunion.io/update-from-release: "3"}}`+status), true); len(lines) > 0 {
		t.Errorf("again: %q", lines)
	}
}

// Without the cloud to update, nothing is updated; updating the operator alone needs no cloud.
func TestUpdateWithoutACloud(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: OperatorName}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "operator", Image: "r.example/ocadm:v1"}}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	scheme := kube.Scheme()
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d).
		WithIndex(d, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	u := Update{Key: client.ObjectKey{Namespace: DefaultNamespace, Name: DefaultName}, OperatorVersion: "v2", Version: "v2", Report: func(string, string) {}}
	image := func() string {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		return d.Spec.Template.Spec.Containers[0].Image
	}
	if done, err := u.Apply(t.Context(), c); !apierrors.IsNotFound(err) || len(done.Changes) > 0 || image() != "r.example/ocadm:v1" {
		t.Errorf("%v, %v; the operator is %s", done, err, image())
	}
	u.Version = ""
	u.Bring = func(string) error { return errors.New("containerd does not answer") }
	if done, err := u.Apply(t.Context(), c); err == nil || len(done.Changes) > 0 || image() != "r.example/ocadm:v1" {
		t.Errorf("without its image: %v, %v; the operator is %s", done, err, image())
	}
	u.Bring = func(brought string) error {
		if brought != "r.example/ocadm:v2" || image() != "r.example/ocadm:v1" {
			t.Errorf("%s is brought while the operator is %s", brought, image())
		}
		return nil
	}
	if done, err := u.Apply(t.Context(), c); err != nil || len(done.Changes) != 1 || image() != "r.example/ocadm:v2" {
		t.Errorf("%v, %v; the operator is %s", done, err, image())
	}
	d.Status.UpdatedReplicas = 0 // nothing has this image
	require.NoError(t, c.Status().Update(t.Context(), d))
	u = Update{ImageRepository: "s.example", OperatorOnly: true, Report: u.Report}
	for _, back := range []string{"; to go back: ocadm cluster update --operator-only --operator-image r.example/ocadm:v2", ""} { // the second try has lost what was before
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := u.Apply(ctx, c)
		cancel()
		if l := finding.Of(err); len(l) != 1 || l[0].Remedy != "kubectl -n onecloud describe pods -l app=onecloud-operator"+back || image() != "s.example/ocadm:v2" {
			t.Errorf("%v; the operator is %s", err, image())
		}
	}
}

// A cloud that never worked completely also holds data, so an operation changes it. A cloud that has never run is changed directly, as with "at once".
func TestWhoMovesACloud(t *testing.T) {
	scheme := kube.Scheme()
	served := map[string]string{v1alpha1.EffectServed: "h"}
	for _, c := range []struct {
		name      string
		effects   map[string]string
		atOnce    bool
		operation bool
	}{
		{"it has never run", nil, false, false}, {"it was never complete", served, false, true}, {"at once", served, true, false},
	} {
		cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: DefaultName}}
		cloud.Spec.Version, cloud.Status.Effects = "v4.0.3", c.effects
		cloud.Status.Release = v1alpha1.ReleaseStatus{Revision: 1, Version: "v4.0.3"}
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cloud).Build()
		u := Update{Key: client.ObjectKeyFromObject(cloud), Version: "v4.0.5", Report: func(string, string) {}}
		if !c.atOnce {
			u.Operation = &Operation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: DefaultName, Action: v1alpha1.ActionUpdate}}
		}
		done, err := u.Apply(t.Context(), k)
		if err != nil || (done.Operation != "") != c.operation {
			t.Fatalf("%s: %+v, %v", c.name, done, err)
		}
		if err := k.Get(t.Context(), u.Key, cloud); err != nil || (cloud.Spec.Version == "v4.0.3") != c.operation || (cloud.Annotations[v1alpha1.AnnotationAtOnce] == "1") != c.atOnce {
			t.Errorf("%s: version %s, annotations %v, %v", c.name, cloud.Spec.Version, cloud.Annotations, err)
		}
		// An operation changes the spec long before it ends, and may still revert. The same command again follows it.
		cloud.Spec.Version, cloud.Status.Rollout = u.Version, &v1alpha1.RolloutStatus{Operation: "update-1"}
		require.NoError(t, k.Update(t.Context(), cloud))
		if again, err := u.Apply(t.Context(), k); err != nil || (again.Operation == "update-1") == c.atOnce || len(again.Changes) > 0 {
			t.Errorf("%s: again: %+v, %v", c.name, again, err)
		}
	}
}

func TestOperatorImage(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, c := range []struct{ image, repository, tag, want string }{
		{"r.example/a/ocadm:v1", "", "v2", "r.example/a/ocadm:v2"},
		{"r.example/a/ocadm:v1", "10.0.0.1:5000/b", "", "10.0.0.1:5000/b/ocadm:v1"},
		{"10.0.0.1:5000/ocadm", "", "v2", "10.0.0.1:5000/ocadm:v2"},
		{"r/ocadm:v1" + digest, "", "v2", "r/ocadm:v2"},
		{"r/ocadm:v1" + digest, "x/y", "", "x/y/ocadm:v1" + digest},
		{"r/ocadm:v1" + digest, "", "v1", "r/ocadm:v1" + digest},
		{"r/onecloud-operator:v1", "x", "v2", "x/onecloud-operator:v2"},
	} {
		if got := OperatorImage(c.image, c.repository, c.tag); got != c.want {
			t.Errorf("OperatorImage(%q, %q, %q) = %q, want %q", c.image, c.repository, c.tag, got, c.want)
		}
	}
}

// A blocked cloud keeps its Ready condition, and the status says that it is old.
func TestStatusOfBlockedCloud(t *testing.T) {
	const ready, blocked = "{type: Ready, status: 'True'}", "{type: Degraded, status: 'True', reason: Blocked, message: a Secret is lost}"
	s, err := statusOf(resource(t, head+"}\nspec: {}\nstatus: {observedGeneration: 2, conditions: ["+ready+", "+blocked+"]}").Object)
	if err != nil || s.Blocked != "a Secret is lost" || !s.Ready || !s.Degraded || s.Health() != "ready when the operator last worked on it" {
		t.Errorf("%+v, %q, %v", s, s.Health(), err)
	}
	if facts := s.facts(); !slices.Contains(facts, "blocked: a Secret is lost") {
		t.Errorf("%q", facts)
	}
}

// An update that has ended does not look like one that runs, and the number of components is printed once.
// In a paused cloud, everything that ran stays Available: a wait for a change would succeed although nothing has changed.
func TestPausedCloud(t *testing.T) {
	ref := ComponentRef{Name: "region", Block: []string{"regionServer"}}
	for annotations, want := range map[string]struct {
		status           string
		cloud, component bool
	}{
		"onecloud.yunion.io/paused: 'true'": {
			"the operator changes nothing; to continue: kubectl -n onecloud annotate oc default onecloud.yunion.io/paused-", true, true},
		"onecloud.yunion.io/paused: 'true', onecloud.yunion.io/paused-before: ''": {"the operator changes nothing; to continue: ocadm cluster start", true, true},
		"onecloud.yunion.io/paused: 'true', onecloud.yunion.io/paused-before: '', onecloud.yunion.io/stopped-by: restore-7xsv7": {
			"the operator changes nothing; to continue: ocadm operation show restore-7xsv7; when that has ended: ocadm cluster start", true, true},
		"onecloud.yunion.io/paused: 'glance, regionServer'": {
			"the operator does not change glance, regionServer; to continue: kubectl -n onecloud annotate oc default onecloud.yunion.io/paused-", false, true},
		"onecloud.yunion.io/paused: glance":  {"the operator does not change glance; to continue: kubectl -n onecloud annotate oc default onecloud.yunion.io/paused-", false, false},
		"onecloud.yunion.io/paused: 'false'": {"", false, false},
		"a: b":                               {"", false, false},
	} {
		cloud := resource(t, head+", annotations: {"+annotations+"}}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'True'}]}")
		c := fake.NewClientBuilder().WithObjects(cloud).Build()
		ref.Cloud = client.ObjectKeyFromObject(cloud)
		s, err := Get(t.Context(), c, ref.Cloud)
		if err != nil || !s.Ready || s.Paused != want.status {
			t.Errorf("%s: %q, %v", annotations, s.Paused, err)
		}
		cloud.SetNamespace("x")
		if what, end := pauseOf(cloud); strings.Contains(end, "ocadm") && !strings.HasSuffix(end, " --namespace x") {
			t.Errorf("%s; to continue: %s", what, end)
		}
		if err := Unpaused(t.Context(), c, ref.Cloud); (err != nil) != want.cloud {
			t.Errorf("%s: %v", annotations, err)
		}
		if err := ref.Unpaused(t.Context(), c); (err != nil) != want.component {
			t.Errorf("%s: %v", annotations, err)
		}
	}
}

func TestStatusAfterAnUpdate(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name = "onecloud", "default"
	cloud.Status.Rollout = &v1alpha1.RolloutStatus{Operation: "update-1", Reached: 4}
	cloud.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "ComponentsDegraded",
		Message: "37 of 38 components are Available; degraded: region"}}
	for phase, want := range map[v1alpha1.OperationPhase]string{
		v1alpha1.OperationRunning: "update-1, wave 4: ocadm operation show update-1", v1alpha1.OperationSucceeded: "",
	} {
		k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, oneOperation("update-1", phase)).Build()
		s, err := Get(t.Context(), k, client.ObjectKeyFromObject(cloud))
		if err != nil || s.Operation != want || s.Reason() != "degraded: region" {
			t.Errorf("%s: %q, %q, %v", phase, s.Operation, s.Reason(), err)
		}
	}
}

func TestStatus(t *testing.T) {
	const components = "components: [{name: a, state: Available}, {name: b, state: Waiting, blockedBy: [a]}, {name: c, state: Disabled},\n" +
		"  {name: d, state: Degraded, reason: X, message: no image}, {name: e, state: Idle, message: no node}]"
	for name, c := range map[string]struct {
		text    string
		ready   bool
		message string
	}{
		"new":     {"}\nspec: {}", false, "the operator has not reconciled it yet"},
		"blocked": {"}\nspec: {}\nstatus: {conditions: [{type: Degraded, status: 'True', reason: Blocked, message: x is invalid}]}", false, "the operator cannot work on it: x is invalid"},
		"ready":   {"}\nspec: {}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'True'}]}", true, ""},
		"changed": {"}\nspec: {}\nstatus: {observedGeneration: 1, conditions: [{type: Ready, status: 'True'}]}", false, "the operator has not seen the latest change yet"},
		"not ready": {
			"}\nspec: {}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'False', message: b waits}], " + components + "}", false, "b waits",
		},
		"going": {", deletionTimestamp: '2026-01-01T00:00:00Z'}\nspec: {}", false, "it is being deleted"},
	} {
		s, err := statusOf(resource(t, head+c.text).Object)
		if err != nil || s.Ready != c.ready || s.Message != c.message || s.Components == nil { // scripts would get null in place of a list
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if name != "not ready" {
			continue
		}
		if available, all := s.Counts(); available != 1 || all != 3 {
			t.Errorf("Counts: %d, %d", available, all)
		}
		if got := s.Tally(); got != "1 of 3 components are available, 1 idle" {
			t.Errorf("Tally: %q", got)
		}
		if got := s.Missing(); !slices.Equal(got, []string{"b: Waiting: waits for a", "d: Degraded: no image"}) {
			t.Errorf("Missing: %q", got)
		}
	}
}

func TestRCAdmin(t *testing.T) {
	names := []string{
		"OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_DOMAIN", "OS_PROJECT_NAME", "YUNION_INSECURE", "OS_REGION_NAME", "OS_ENDPOINT_TYPE",
	}
	for text, url := range map[string]string{
		"}\nspec: {}": "https://default-keystone.onecloud.svc:30500/v3",
		"}\nspec: {loadBalancerEndpoint: 10.0.0.1}":                                        "https://10.0.0.1:30500/v3",
		"}\nspec: {loadBalancerEndpoint: 'fd00::1'}":                                       "https://[fd00::1]:30500/v3",
		"}\nspec: {loadBalancerEndpoint: '[fd00::1]'}":                                     "https://[fd00::1]:30500/v3",
		"}\nspec: {loadBalancerEndpoint: x, keystone: {publicService: {nodePort: 31000}}}": "https://x:31000/v3",
	} {
		cr, err := typed(resource(t, head+text))
		require.NoError(t, err)
		vars := rcadmin(cr, "pw")
		if vars[0].Value != url {
			t.Errorf("%s: %s, want %s", text, vars[0].Value, url)
		}
		var got []string
		for _, v := range vars {
			got = append(got, v.Name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("%q", got)
		}
	}
}

// A real shell must read back what was written, whatever the password.
func TestExportsAreSafeForAShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	for _, pw := range []string{"plain", "", "it's", `a"b`, "$(touch x)", "`id`", "a b;c", "new\nline", "ü\\n", "'", "''"} {
		script := Exports([]Variable{{"OS_PASSWORD", pw}}) + `printf %s "$OS_PASSWORD"`
		cmd := exec.CommandContext(t.Context(), sh)
		cmd.Stdin = strings.NewReader(script)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil || out.String() != pw {
			t.Errorf("%q came back as %q, %v", pw, out.String(), err)
		}
	}
}

func TestSettingsKeepThePasswordInASecret(t *testing.T) {
	o := Options{Name: "default", Namespace: "onecloud", Database: Database{Host: "10.0.0.5", Username: "root", Secret: DatabaseSecret, SecretKey: DatabaseSecretKey}}
	for password, want := range map[string][]string{"": {"ConfigMap", "Namespace"}, "Very5ecret": {"ConfigMap", "Namespace", "Secret"}} {
		objs, err := Settings(o, password)
		require.NoError(t, err)
		kinds := map[string]bool{}
		for _, u := range objs {
			kinds[u.GetKind()] = true
			raw, _ := u.MarshalJSON()
			if strings.Contains(string(raw), "Very5ecret") {
				t.Errorf("%s holds the password as it is", u.GetKind())
			}
		}
		if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
