// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/require"
)

// by runs a command over the REST API, with a sender's token in a file.
func (f *apiTest) by(sender string, args ...string) (string, error) {
	f.Helper()
	file := filepath.Join(f.test.TempDir(), "token")
	require.NoError(f, os.WriteFile(file, []byte(f.tokens[sender]+"\n"), 0o600))
	return run(f.Env, append(args, "--api", "https://"+f.address, "--api-token-file", file, "--api-ca-file", f.authority)...)
}

// isFinding checks the finding with which a command failed.
func (f *apiTest) isFinding(what string, err error, code, text string) {
	f.Helper()
	if list := finding.Of(err); len(list) == 0 || list[0].Code != code || !strings.Contains(list[0].Error(), text) {
		f.Errorf("%s: %v %+v, want %s with %q", what, err, list, code, text)
	}
}

// ages matches ages in whole seconds, which may differ between two commands.
var ages = regexp.MustCompile(` +\d+m?\d*s\b *`)

// same runs a command with a kubeconfig and over the REST API, and compares the output and the errors.
func (f *apiTest) same(args ...string) string {
	f.Helper()
	want, wantErr := ocadm(f.Env, args...)
	got, err := f.by("person", args...)
	if ages.ReplaceAllString(got, " AGE") != ages.ReplaceAllString(want, " AGE") {
		f.Errorf("ocadm %s: with a kubeconfig\n%s\nover the API\n%s", strings.Join(args, " "), want, got)
	}
	code := func(err error) string {
		if list := finding.Of(err); len(list) > 0 {
			return list[0].Code + " " + list[0].Error()
		}
		return ""
	}
	if (err == nil) != (wantErr == nil) || code(err) != code(wantErr) {
		f.Errorf("ocadm %s: with a kubeconfig %v, over the API %v", strings.Join(args, " "), wantErr, err)
	}
	return want
}

// TestCommandsOverTheAPI checks that commands have the same output and the same effect over the REST API as with a kubeconfig.
func TestCommandsOverTheAPI(t *testing.T) {
	f := newAPITest(t, nil)
	f.sender("person", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	f.commandsWithoutCloud()
	cr := f.CloudAt("127.0.0.1", 3306)
	cr.Spec.MySQL.Password = "correct horse"
	f.Create(cr)
	f.readsOverAPI()
	f.writesOverAPI()
	f.followsOverAPI()
	f.refusedOverAPI()
}

func (f *apiTest) commandsWithoutCloud() {
	f.Helper()
	for _, args := range [][]string{
		{"cluster", "status"}, {"cluster", "history"}, {"operation", "list"}, {"operation", "show", "none"}, {"operation", "logs", "none"}, {"operation", "cancel", "none"},
		{"machine", "list"}, {"machine", "get", "none"}, {"machine", "pause", "none"}, {"machine", "remove", "none", "--yes"}, {"component", "disable", "region"},
	} {
		f.same(args...)
	}
}

func (f *apiTest) readsOverAPI() {
	f.Helper()
	o := f.Operation("checked", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck})
	require.NoError(f, f.Client.Status().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed","message":"no room",
		"steps":[{"name":"nodes","short":"Check the nodes","state":"Failed"}],"findings":[{"code":"OCA-7057","what":"x","cause":"y","remedy":"z"}]}}`))))
	f.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: operation.LogName("checked")}, Data: map[string]string{
		operation.LogKey: "{\"time\":\"2026-01-02T03:04:05Z\",\"type\":\"PhaseInfo\",\"phase\":\"nodes\",\"message\":\"looks\"}\n{\"type\":\"PhaseFailed\",\"message\":\"no room\"}\n"}})
	f.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: backup.HistoryName}, Data: map[string]string{
		backup.HistoryKey: `[{"time":"2026-01-02T03:04:05Z","name":"a","place":"/backup","size":7},{"time":"2026-01-01T03:04:05Z","name":"b","error":"full"}]`}})
	for _, name := range []string{"w1", "w2"} {
		m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Spec.Cloud, m.Spec.Roles = cloud, []v1alpha1.MachineRole{v1alpha1.RoleCompute}
		m.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{Address: name + ".example.org", CredentialsSecretName: "fleet"}
		f.Create(m)
	}
	for _, read := range [][]string{
		{"cluster", "status"}, {"cluster", "history"}, {"cluster", "backup", "list"}, {"operation", "list"}, {"operation", "show", "checked"}, {"machine", "list"}, {"machine", "get", "w1"},
	} {
		for _, format := range []string{"", "json", "yaml"} {
			args := read
			if format != "" {
				args = append(read[:len(read):len(read)], "-o", format)
			}
			if f.same(args...) == "" {
				f.Errorf("ocadm %v prints nothing", args)
			}
		}
	}
	w2 := &v1alpha1.OnecloudMachine{}
	f.Get(w2, "w2")
	require.NoError(f, f.Client.Status().Patch(f.Context(), w2, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed","operation":"checked"}}`))))
	if out := f.same("machine", "get", "w2"); !strings.Contains(out, "checked Failed: no room") || !strings.Contains(out, "OCA-7057 x: y; z") || !strings.Contains(out, "ocadm machine retry w2") {
		f.Errorf("%s", out)
	}
	if out := f.same("operation", "logs", "checked"); !strings.Contains(out, "no room") {
		f.Errorf("%s", out)
	}
	f.same("operation", "logs", "checked", "-o", "jsonl")
	f.same("operation", "pause", "checked") // it has ended
}

// writesOverAPI makes each change over the API, and checks that the second time there is nothing to do.
func (f *apiTest) writesOverAPI() {
	f.Helper()
	file := filepath.Join(f.test.TempDir(), "machines.yaml")
	require.NoError(f, os.WriteFile(file, []byte(strings.ReplaceAll(twoMachines, "NAMESPACE", namespace)), 0o600))
	waiting := f.Operation("waiting", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck})
	for _, args := range [][]string{
		{"machine", "pause", "w1"}, {"machine", "resume", "w1"}, {"machine", "add", "-f", file}, {"operation", "pause", waiting.Name}, {"operation", "resume", waiting.Name},
		{"operation", "cancel", waiting.Name}, {"component", "update", "region", "--version", "v4.0.2"}, {"component", "disable", "glance"},
		{"cluster", "update", "--profile", "ha"},
	} {
		first, err := f.by("person", args...)
		if err != nil || first == "" || strings.Contains(first, "unchanged") {
			f.Errorf("ocadm %v: %v, printed %q", args, err, first)
		}
		if again := f.same(args...); !strings.Contains(again, "unchanged") {
			f.Errorf("ocadm %v again: %q", args, again)
		}
	}
	live := f.Cloud()
	if live.Spec.RegionServer.Tag != "v4.0.2" || live.Spec.Glance.Disable == nil || !*live.Spec.Glance.Disable || live.Spec.MySQL.Password != "correct horse" {
		f.Errorf("%+v %+v", live.Spec.RegionServer, live.Spec.Glance)
	}
	out, err := f.by("person", "operation", "check", "--wait=false")
	if err != nil || !strings.Contains(out, "created") {
		f.Errorf("%v %s", err, out)
	}
}

const twoMachines = `apiVersion: onecloud.yunion.io/v1alpha1
kind: OnecloudMachine
metadata: {name: f1, labels: {rack: r1}}
spec: {infrastructure: {ssh: {address: 192.0.2.1, credentialsSecretName: fleet}}}
---
apiVersion: onecloud.yunion.io/v1alpha1
kind: OnecloudMachine
metadata: {name: f2, namespace: NAMESPACE}
spec: {infrastructure: {ssh: {address: 192.0.2.2, credentialsSecretName: fleet}}}
`

// followsOverAPI checks that a command that follows gets each change as an event.
func (f *apiTest) followsOverAPI() {
	f.Helper()
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := f.by("person", "cluster", "rollback", "--wait", "-o", "jsonl")
		ended <- result{out, err}
	}()
	var o *v1alpha1.OnecloudOperation
	f.Eventually(func() (bool, string) {
		for _, one := range f.Operations() {
			if one.Spec.Action == v1alpha1.ActionRollback {
				o = one
			}
		}
		return o != nil, "there is no operation"
	})
	for _, phase := range []v1alpha1.OperationPhase{v1alpha1.OperationRunning, v1alpha1.OperationSucceeded} {
		require.NoError(f, f.Client.Status().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`))))
	}
	if r := <-ended; r.err != nil || !strings.Contains(r.out, string(v1alpha1.OperationSucceeded)) {
		f.Errorf("%v %s", r.err, r.out)
	}
	// The deletion of a machine is reported as well.
	f.EditObject(&v1alpha1.OnecloudMachine{}, "w2", `{"metadata":{"finalizers":["`+v1alpha1.MachineFinalizer+`"]}}`)
	go func() {
		out, err := f.by("person", "machine", "remove", "w2", "--yes", "--wait")
		ended <- result{out, err}
	}()
	f.Eventually(func() (bool, string) {
		m := &v1alpha1.OnecloudMachine{}
		f.Get(m, "w2")
		return m.DeletionTimestamp != nil, "it is not being deleted"
	})
	f.EditObject(&v1alpha1.OnecloudMachine{}, "w2", `{"metadata":{"finalizers":null}}`)
	if r := <-ended; r.err != nil || !strings.Contains(r.out, "removed") {
		f.Errorf("%v %s", r.err, r.out)
	}
}

// refusedOverAPI checks commands that the API does not support or the sender may not run, and invalid settings.
func (f *apiTest) refusedOverAPI() {
	f.Helper()
	for _, args := range [][]string{
		{"cluster", "create", "--version", "v4.0.4"}, {"cluster", "diff"}, {"cluster", "rcadmin"}, {"cluster", "database", "status"}, {"component", "restart", "region"},
		{"component", "logs", "region"}, {"machine", "bootstrap-data", "w1"}, {"cluster", "update", "--operator-version", "v1"}, {"ui"}, {"why"}, {"support"},
		{"machine", "add", "w3", "--address", "192.0.2.3", "--key", f.key},
	} {
		out, err := f.by("person", args...)
		f.isFinding(strings.Join(args, " ")+out, err, "OCA-7632", "")
	}
	_, err := f.by("reader", "machine", "pause", "w1")
	f.isFinding("a reader", err, "OCA-7616", "cannot patch")
	_, err = f.by("stranger", "cluster", "status")
	f.isFinding("a stranger", err, "OCA-7616", "cannot get")
	_, err = f.by("", "cluster", "status")
	f.isFinding("no token", err, "OCA-7630", "token")
	f.tokens["wrong"] = "x.y.z"
	_, err = f.by("wrong", "cluster", "status")
	f.isFinding("another token", err, "OCA-7615", "")
	at, status := "https://"+f.address, []string{"cluster", "status"}
	f.test.Setenv("OCADM_API_TOKEN", f.tokens["reader"])
	with := func(more ...string) error {
		_, err := run(f.Env, append(status[:2:2], more...)...)
		return err
	}
	f.isFinding("without a CA", with("--api", at), "OCA-7631", "")
	f.isFinding("another fingerprint", with("--api", at, "--api-fingerprint", strings.Repeat("0a", 32)), "OCA-7631", "fingerprint")
	f.isFinding("nothing there", with("--api", "https://127.0.0.1:1"), "OCA-7630", "does not answer")
	f.isFinding("clear text", with("--api", "http://operator.example.org"), "OCA-7630", "clear text")
	f.isFinding("no file", with("--api", at, "--api-ca-file", "none"), "OCA-7630", "none")
	f.isFinding("both", with("--api", at, "--kubeconfig", "x"), "OCA-0401", "both")
	f.test.Setenv("OCADM_API", at)
	f.test.Setenv("OCADM_API_CA_FILE", f.authority)
	if err := with(); err == nil || finding.Of(err)[0].Code != "OCA-7301" {
		f.Errorf("by variables alone: %v", err)
	}
	f.isFinding("a kubeconfig counts more", with("--kubeconfig", "none.conf"), "OCA-4202", "none.conf")
}
