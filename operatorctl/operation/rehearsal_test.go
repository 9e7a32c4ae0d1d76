// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

func TestDiverted(t *testing.T) {
	into := func(name string) string { return "copy_" + name }
	const file = "admin_user: glance\nclickhouse: tcp://ch\nlockman_method: etcd\nops_log_with_clickhouse: true\n" +
		"sql_connection: mysql+pymysql://glance:secret@db.example.com:3306/glance?charset=utf8&tls=true\n"
	got, err := diverted([]byte(file), credentials{"scratch", "other"}, into)
	want := "admin_user: glance\nlockman_method: inmemory\nsql_connection: mysql+pymysql://scratch:other@db.example.com:3306/copy_glance?charset=utf8&tls=true\n"
	if err != nil || string(got) != want {
		t.Errorf("%s%v\nwant %s", got, err, want)
	}
	for _, bad := range []string{"", "a: b\n", "sql_connection: glance\n", "sql_connection: mysql://glance@db\n", "- a\n"} {
		if out, err := diverted([]byte(bad), credentials{}, into); err == nil {
			t.Errorf("%q becomes %q", bad, out)
		}
	}
}

// nextRelease has keystone, a glance with a claim and a priority, and a program that cannot only migrate.
func nextRelease() *release.Release {
	deployment := func(name string, command ...any) release.Object {
		return release.Object{Kind: "Deployment", Name: "default-" + name, Content: map[string]any{"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": name}},
			"spec": map[string]any{
				"priorityClassName": "system-cluster-critical", "serviceAccountName": "some",
				"initContainers": []any{map[string]any{"name": "init", "image": "r/" + name + ":v2"}},
				"containers": []any{map[string]any{"name": name, "image": "r/" + name + ":v2", "command": command,
					"volumeMounts": []any{map[string]any{"name": "config", "mountPath": "/etc/yunion"}, map[string]any{"name": "data", "mountPath": "/opt"}}}},
				"volumes": []any{map[string]any{"name": "config", "secret": map[string]any{"secretName": "default-" + name + "-config"}},
					map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "default-" + name}}, map[string]any{"name": "unused"}},
			},
		}}}}
	}
	secret := func(name string) release.Object {
		file := "sql_connection: mysql+pymysql://" + name + ":pw@db:3306/" + name + "\n"
		return release.Object{Kind: "Secret", Name: "default-" + name + "-config", Content: map[string]any{
			"data": map[string]any{name + ".conf": base64.StdEncoding.EncodeToString([]byte(file))}}}
	}
	bin := func(name string) []any {
		return []any{"/opt/yunion/bin/" + name, "--config", "/etc/yunion/" + name + ".conf"}
	}
	return &release.Release{Contents: release.Contents{Objects: []release.Object{
		deployment("keystone", bin("keystone")...), secret("keystone"), deployment("glance", bin("glance")...), secret("glance"),
		deployment("itsm", "java"), deployment("new", bin("new")...), secret("new"),
	}}}
}

func subjectsOfNext(t *testing.T) []subject {
	t.Helper()
	var all []component.Component
	for _, name := range []string{"keystone", "glance", "itsm", "new", "off"} {
		all = append(all, component.Component{Name: name, Config: &component.Config{}, Database: &component.Database{Name: name}})
	}
	all = append(all, component.Component{Name: "apigateway", Config: &component.Config{}})
	out, err := subjects("default", nextRelease(), all, []string{"keystone", "glance", "itsm", "off"})
	require.NoError(t, err)
	return out
}

func TestSubjects(t *testing.T) {
	got := map[string]string{}
	for _, s := range subjectsOfNext(t) {
		got[s.component.Name] = s.skip
	}
	want := map[string]string{
		"keystone": "", "glance": "", "itsm": "its program cannot run its migration alone", "new": "it has no database yet",
	}
	for name, skip := range want {
		if why, there := got[name]; !there || why != skip {
			t.Errorf("%s: %q (%t), want %q", name, why, there, skip)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}

func TestRehearsedLine(t *testing.T) {
	for want, one := range map[string]v1alpha1.Rehearsed{
		"aiproxy: Skipped: it has no database yet": {Component: "aiproxy", Result: v1alpha1.RehearsalSkipped, Message: "it has no database yet"},
		"glance: Passed": {Component: "glance", Result: v1alpha1.RehearsalPassed},
	} {
		if got := rehearsedLine(one); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPodOfRehearsal: nothing in the cloud reaches it, and it reaches nothing in the cloud.
func TestPodOfRehearsal(t *testing.T) {
	s := subjectsOfNext(t)[1]
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default"}}
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "rehearse-1", UID: "u"}}
	p := s.pod(o, cloud, false, "10.0.0.9")
	spec := p.Spec
	if p.Name != "rehearse-1-glance" || p.Labels["app"] != "" || p.Labels[labelRehearsal] != "rehearse-1" || len(p.OwnerReferences) != 1 {
		t.Errorf("%+v", p.ObjectMeta)
	}
	if spec.PriorityClassName != "" || spec.ServiceAccountName != "" || len(spec.InitContainers) != 0 || spec.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("%+v", spec)
	}
	if len(spec.Volumes) != 2 || spec.Volumes[0].Secret.SecretName != "rehearse-1-glance" || spec.Volumes[1].EmptyDir == nil {
		t.Errorf("%+v", spec.Volumes)
	}
	if command := spec.Containers[0].Command; !slices.Equal(command[3:], []string{"--auto-sync-table", "--exit-after-db-init"}) {
		t.Errorf("%q", command)
	}
	if a := spec.HostAliases; len(a) != 1 || a[0].IP != "10.0.0.9" || !slices.Contains(a[0].Hostnames, "default-keystone.onecloud.svc") {
		t.Errorf("%+v", a)
	}
	if p := s.pod(o, cloud, true, ""); p.Name != "rehearse-1-glance-serves" || len(p.Spec.Containers[0].Command) != 3 || p.Spec.HostAliases != nil {
		t.Errorf("%+v", p)
	}
	secret, err := s.secret(o, credentials{"scratch", "pw2"}, func(n string) string { return "copy_" + n })
	if err != nil || !strings.Contains(string(secret.Data["glance.conf"]), "scratch:pw2@db:3306/copy_glance") || secret.Name != "rehearse-1-glance" {
		t.Errorf("%v %q", err, secret.Data)
	}
}

func TestJudgePod(t *testing.T) {
	with := func(c corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{ReadinessProbe: &corev1.Probe{}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{c}}}
	}
	ended := func(code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "no such column\n"}}}
	}
	waits := func(reason string) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}}}
	}
	evicted, killed, full := with(corev1.ContainerStatus{}), with(ended(137)), with(corev1.ContainerStatus{})
	evicted.Status.Phase, evicted.Status.Reason, evicted.Status.ContainerStatuses = corev1.PodFailed, "Evicted", nil
	killed.Status.Phase, killed.Status.Reason = corev1.PodFailed, "Evicted"
	full.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"}}}
	for name, one := range map[string]struct {
		pod  *corev1.Pod
		want outcome
	}{
		"migrated":   {with(ended(0)), outcome{over: true, ok: true, why: "Running"}},
		"failed":     {with(ended(1)), outcome{over: true, why: "exit code 1: no such column"}},
		"serves":     {with(corev1.ContainerStatus{Ready: true}), outcome{over: true, ok: true, why: "Running"}},
		"no image":   {with(waits("ImagePullBackOff")), outcome{over: true, why: "ImagePullBackOff: why"}},
		"on its way": {with(waits("ContainerCreating")), outcome{lost: true, why: "ContainerCreating: why"}},
		"evicted":    {evicted, outcome{over: true, lost: true, why: "Evicted"}},
		"killed":     {killed, outcome{over: true, lost: true, why: "Evicted"}},
		"no node":    {full, outcome{lost: true, why: "Unschedulable: 0/1 nodes are available"}},
	} {
		if got := judgePod(one.pod); got != one.want {
			t.Errorf("%s: %+v, want %+v", name, got, one.want)
		}
	}
}

// TestPodsThatProveNothing: a quota, an eviction and a drained node are no failure of the release.
func TestPodsThatProveNothing(t *testing.T) {
	for want, end := range map[string]func(context.Context, client.WithWatch, client.Object) error{
		"kubectl get resourcequota": func(_ context.Context, _ client.WithWatch, o client.Object) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("failed quota: q: must specify limits.cpu for: glance"))
		},
		"Evicted: no memory": func(ctx context.Context, c client.WithWatch, o client.Object) error {
			o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "no memory"}
			return c.Create(ctx, o)
		},
		"its pod was deleted": func(context.Context, client.WithWatch, client.Object) error { return nil },
	} {
		named := func(o client.Object) []string { return []string{o.GetName()} }
		c := fake.NewClientBuilder().WithIndex(&corev1.Pod{}, metav1.ObjectNameField, named).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				return end(ctx, c, o)
			},
		}).Build()
		h := &rehearsal{Run: &Run{Means: Means{Pods: c}}, report: workflow.Discard{}}
		_, err := h.follow(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "rehearse-1-glance"}})
		if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7091" || !strings.Contains(l[0].Cause+l[0].Remedy, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestConclude(t *testing.T) {
	list := []v1alpha1.Rehearsed{{Component: "a", Result: v1alpha1.RehearsalPassed}, {Component: "b", Result: v1alpha1.RehearsalSkipped}}
	if err := conclude(list); err != nil {
		t.Error(err)
	}
	list = append(list, v1alpha1.Rehearsed{Component: "c", Result: v1alpha1.RehearsalFailed, Message: "no such column"})
	if err := conclude(list); err == nil || !strings.Contains(err.Error(), "c: no such column") {
		t.Error(err)
	}
}

// TestRehearsalLeavesNoDatabaseOut: the rehearsal fails if a component uses a database that is not recorded as the cloud's. Otherwise its migration would
// be skipped, and the rehearsal would succeed.
func TestRehearsalLeavesNoDatabaseOut(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	v := vaultOn(t, server)
	if _, err := v.Admin.EnsureDatabase(t.Context(), nil, "keystone"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Execute(t.Context(), "CREATE DATABASE glance"); err != nil {
		t.Fatal(err)
	}
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Status.Components = []v1alpha1.ComponentStatus{{Name: "keystone", State: v1alpha1.Available}, {Name: "glance", State: v1alpha1.Available}}
	_, err := rehearsable(t.Context(), v.Admin, cloud)
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7075" || !strings.Contains(l[0].Cause, "glance") {
		t.Errorf("%v", err)
	}
	cloud.Status.Components[1].State = v1alpha1.Disabled
	if names, err := rehearsable(t.Context(), v.Admin, cloud); err != nil || !slices.Equal(names, []string{"keystone"}) {
		t.Errorf("%q, %v", names, err)
	}
	require.NoError(t, v.Admin.Close())
	if _, err := rehearsable(t.Context(), v.Admin, cloud); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-7091" || finding.Of(err)[0].Remedy == "" {
		t.Errorf("without a server: %v", err)
	}
}

// TestCleanRehearsal: nothing of a killed operator's rehearsal is left on the database server and in the cluster.
func TestCleanRehearsal(t *testing.T) {
	server := mariadb.Require(t, mariadb.Options{})
	v := vaultOn(t, server)
	left, err := backup.NewScratch(t.Context(), v.Admin, v.CloudID, []string{"glance"})
	if err == nil {
		err = left.Close(t.Context()) // the lock of a killed operator ends with its connection
	}
	if err == nil {
		_, err = v.Admin.EnsureDatabase(t.Context(), nil, left.Name("glance"))
	}
	require.NoError(t, errors.Join(err, left.Grant(t.Context(), "Secret-1x")))
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: types.UID(v.CloudID)}}
	cloud.Spec.MySQL = v1alpha1.DatabaseServer{Host: server.Host, Port: int32(server.Port), Username: "root", Password: server.RootPassword}
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "rehearse-1"}, Spec: v1alpha1.OnecloudOperationSpec{Cloud: "c"}}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, &corev1.Secret{ObjectMeta: actorMeta(o, "glance")}).Build()
	require.NoError(t, cleanRehearsal(t.Context(), &Run{Operation: o, Means: Means{Client: api, Direct: api, Pods: api}}))
	again := vaultOn(t, server)
	databases, err := again.Admin.Databases(t.Context())
	accounts, failed := again.Admin.Accounts(t.Context())
	var secrets corev1.SecretList
	if err := errors.Join(err, failed, api.List(t.Context(), &secrets)); err != nil || len(secrets.Items) > 0 ||
		slices.Contains(databases, left.Name("glance")) || slices.ContainsFunc(accounts, func(a mysql.UserHost) bool { return a.User == left.User() }) {
		t.Errorf("%v: %v, %v, %d Secrets", err, databases, accounts, len(secrets.Items))
	}
}
