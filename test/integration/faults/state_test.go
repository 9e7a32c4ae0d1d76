// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/keystone"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/require"
)

// secrets returns the passwords and keys of the cloud, by Secret and key. They must survive everything.
func (w *faulty) secrets(t testing.TB) map[string]string {
	t.Helper()
	var list corev1.SecretList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}))
	out := map[string]string{}
	for _, s := range list.Items {
		if s.Labels[v1alpha1.LabelComponent] != "" || s.Labels[v1alpha1.LabelRelease] != "" {
			continue
		}
		for k, v := range s.Data {
			out[s.Name+"/"+k] = string(v)
		}
	}
	return out
}

// state returns everything that makes up a cloud, by name, without what differs between two equal installations: identifiers and times are removed,
// and secrets replaced by their names.
func (w *faulty) state(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	secrets := w.secrets(t)
	for _, kind := range append(env.Kinds(), &v1alpha1.OnecloudCluster{}) {
		w.objects(t, kind, secrets, out)
	}
	databases, err := w.root.Databases(t.Context())
	require.NoError(t, err)
	accounts, err := w.root.Accounts(t.Context())
	require.NoError(t, err)
	out["databases"] = strings.Join(databases, "\n")
	out["accounts"] = ""
	for _, a := range accounts {
		out["accounts"] += a.String() + "\n"
	}
	w.release(t, out)
	w.logins(t, secrets, out)
	w.records(t, databases, out)
	return out
}

func (w *faulty) objects(t testing.TB, kind client.Object, secrets map[string]string, out map[string]string) {
	t.Helper()
	gvk, err := w.Client.GroupVersionKindFor(kind)
	require.NoError(t, err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	require.NoError(t, w.Client.List(t.Context(), list, client.InNamespace(namespace)))
	gone := w.In(t).TryCloud() == nil
	for _, o := range list.Items {
		if gvk.Kind != v1alpha1.Kind && o.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ValueManagedBy || gone && len(o.GetOwnerReferences()) > 0 {
			continue // not the operator's, or the garbage collector's, which is not here
		}
		if o.GetLabels()[v1alpha1.LabelRelease] != "" {
			continue // an interrupted pass may have created one more; release checks them
		}
		text, err := yaml.Marshal(masked(o.Object, gvk.Kind == "Secret"))
		require.NoError(t, err)
		out[gvk.Kind+" "+o.GetName()] = w.named(string(text), secrets)
	}
}

// release records whether the current release, which was written before any of it was applied, is readable.
func (w *faulty) release(t testing.TB, out map[string]string) {
	t.Helper()
	cr := w.In(t).TryCloud()
	if cr == nil {
		return
	}
	s := &corev1.Secret{}
	if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: release.SecretName(cr.Name, cr.Status.Release.Revision)}, s); err != nil {
		out["release"] = err.Error()
		return
	}
	_, err := release.Decode(s)
	out["release"] = fmt.Sprint(err)
}

// masked removes from an object what differs between installations, and decodes Secrets.
func masked(o map[string]any, secret bool) map[string]any {
	for _, at := range [][]string{
		{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "creationTimestamp"}, {"spec", "clusterIP"}, {"spec", "clusterIPs"},
		{"status", "release"},
	} {
		unstructured.RemoveNestedField(o, at...)
	}
	if data, ok := o["data"].(map[string]any); ok && secret {
		for k, v := range data {
			if plain, err := base64.StdEncoding.DecodeString(fmt.Sprint(v)); err == nil {
				data[k] = string(plain)
			}
		}
	}
	maskTree(o)
	return o
}

// volatile lists the fields with times and hashes of secrets, at any depth.
var volatile = map[string]bool{"uid": true, "time": true, "lastTransitionTime": true, "lastUpdateTime": true, "since": true, "lastProbeTime": true,
	"caNotAfter": true, "notAfter": true, "renewAt": true}

func maskTree(node any) {
	switch x := node.(type) {
	case map[string]any:
		for k, v := range x {
			switch s, isText := v.(string); {
			case volatile[k]:
				delete(x, k)
			case isText && strings.HasSuffix(k, "-hash"):
				x[k] = "<hash>"
			case k == "effects":
				if hashes, ok := v.(map[string]any); ok {
					for name := range hashes {
						hashes[name] = "<hash>"
					}
				}
			default:
				_ = s
				maskTree(v)
			}
		}
	case []any:
		for _, v := range x {
			maskTree(v)
		}
	}
}

var pemBlock = regexp.MustCompile(`(?s)-----BEGIN ([A-Z ]+)-----.*?-----END [A-Z ]+-----`)

// certificateName matches the end of the names of services' certificates: a hash of the contents.
var certificateName = regexp.MustCompile(`-[0-9a-f]{8}\b`)

// ownerField is the name of an owner reference in managedFields.
var ownerField = regexp.MustCompile(`k:\{"uid":"[0-9a-f-]+"\}`)

// named replaces secrets by their names.
func (w *faulty) named(text string, secrets map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if strings.HasPrefix(name, cloud+"-"+v1alpha1.SecretCredentials) {
			text = strings.ReplaceAll(text, secrets[name], "<"+name+">")
		}
	}
	text = ownerField.ReplaceAllString(text, "k:<owner>")
	return pemBlock.ReplaceAllString(text, "<$1>")
}

// logins records for each component whether its account can log in to its database.
func (w *faulty) logins(t testing.TB, secrets map[string]string, out map[string]string) {
	t.Helper()
	for _, c := range catalog.All() {
		if c.Database == nil || !slices.Contains(strings.Split(out["databases"], "\n"), c.Database.Name) {
			continue
		}
		err := w.root.VerifyAccount(t.Context(), mysql.Account{User: c.Database.Account(), Database: c.Database.Name,
			Password: secrets[cloud+"-"+v1alpha1.SecretCredentials+"/"+c.Name+".database-password"]})
		out["login "+c.Name] = fmt.Sprint(err)
	}
}

// records returns what the services stored, with names of records in place of their ids.
func (w *faulty) records(t testing.TB, databases []string, out map[string]string) {
	t.Helper()
	tables := map[string][]string{
		"keystone":    slices.DeleteFunc(keystone.Tables(), func(s string) bool { return s == "tokens" }),
		"yunioncloud": {"zones", "wires", "schedtags", "dynamicschedtags"}, "yunionconf": {"parameters"},
	}
	all := map[string][]rest.Record{}
	names := map[string]string{}
	for database, list := range tables {
		if !slices.Contains(databases, database) {
			continue
		}
		s, err := rest.Open(t.Context(), fmt.Sprintf("mysql+pymysql://root:%s@%s/%s?charset=utf8", w.DB.RootPassword, w.DB.Addr(), database))
		require.NoError(t, err)
		for _, table := range list {
			rows, err := s.List(t.Context(), table)
			if err != nil && !strings.Contains(err.Error(), "1146") { // never started
				t.Fatal(err)
			}
			all[database+"."+table] = rows
			for _, r := range rows {
				if name := r.Text("name"); name != r.Text("id") && !ids.MatchString(name) {
					names[r.Text("id")] = "<" + r.Text("name") + ">"
				}
			}
		}
		s.Close()
	}
	for table, rows := range all {
		var lines []string
		for _, r := range rows {
			for _, k := range []string{"created_at", "updated_at", "password"} {
				delete(r, k)
			}
			text, err := json.Marshal(r)
			require.NoError(t, err)
			line := ids.ReplaceAllStringFunc(string(text), func(id string) string {
				if n := names[id]; n != "" {
					return n
				}
				return "*"
			})
			line = pemBlock.ReplaceAllString(line, "<$1>")
			lines = append(lines, certificateName.ReplaceAllString(line, "-*"))
		}
		slices.Sort(lines)
		out["records "+table] = strings.Join(lines, "\n")
	}
}

// differences returns the differences between two states, line by line.
func differences(want, have map[string]string) []string {
	var out []string
	keys := map[string]bool{}
	for k := range want {
		keys[k] = true
	}
	for k := range have {
		keys[k] = true
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, inA := want[k]
		b, inB := have[k]
		switch {
		case !inB:
			out = append(out, k+" is missing")
		case !inA:
			out = append(out, k+" should not be there")
		case a != b:
			out = append(out, k+": "+lineDiff(a, b))
		}
	}
	return out
}

func lineDiff(a, b string) string {
	count := map[string]int{}
	for _, l := range strings.Split(a, "\n") {
		count[l]--
	}
	for _, l := range strings.Split(b, "\n") {
		count[l]++
	}
	var out []string
	for _, l := range slices.Sorted(maps.Keys(count)) {
		switch n := count[l]; {
		case n < 0:
			out = append(out, "lacks "+clip(l))
		case n > 0:
			out = append(out, "has "+clip(l))
		}
	}
	if out == nil {
		return "the order differs"
	}
	return strings.Join(out[:min(len(out), 6)], "; ")
}

func clip(s string) string {
	if s = strings.TrimSpace(s); len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// until waits until the cloud is as wanted; the condition also returns what is missing.
func (w *faulty) until(t testing.TB, o *operator, cond func(*v1alpha1.OnecloudCluster) (bool, string)) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("operator:\n%s", o.tail(12))
		}
	}()
	w.In(t).Until(&v1alpha1.OnecloudCluster{}, cloud, func(x client.Object) (bool, string) {
		got, ok := x.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "there is none"
		}
		return cond(got)
	})
}

// untilReady waits until the cloud is Ready and the operator idle, after at least one reconcile since.
func (w *faulty) untilReady(t testing.TB, o *operator, since float64) {
	t.Helper()
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) { return env.IsReady(cr), env.States(cr) })
	untilQuiet(t, since)
}

// untilQuiet waits until a reconcile has ended after since and none follows immediately.
func untilQuiet(t testing.TB, since float64) {
	t.Helper()
	env.UntilQuiet(t, since, 3, 15*time.Millisecond, func() (float64, bool) { return passes(t) })
}
