// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &out))
	return out
}

// The difference between base and now is applied to old, and nothing else.
func TestMerge(t *testing.T) {
	file := func(text string) string {
		return "{kind: Secret, data: {x.conf: " + base64.StdEncoding.EncodeToString([]byte(text)) + "}}"
	}
	for name, c := range map[string]struct{ old, base, now, want string }{
		"nothing":             {"{a: 1}", "{a: 2, b: 3}", "{a: 2, b: 3}", "{a: 1}"},
		"a value":             {"{a: 1, r: 1}", "{a: 2, r: 1}", "{a: 2, r: 5}", "{a: 1, r: 5}"},
		"a value of both":     {"{a: 1}", "{a: 2}", "{a: 3}", "{a: 3}"},
		"one more":            {"{a: {x: 1}}", "{a: {x: 2}}", "{a: {x: 2, y: 1}}", "{a: {x: 1, y: 1}}"},
		"one less":            {"{a: 1, b: 1}", "{a: 2, b: 1}", "{a: 2}", "{a: 1}"},
		"only the build's":    {"{a: 1}", "{a: 1, b: 1}", "{a: 1, b: 2}", "{a: 1}"},
		"in a list with keys": {"{env: [{name: a, value: 1}, {name: c}]}", "{env: [{name: a, value: 2}, {name: b, value: 1}]}", "{env: [{name: a, value: 2}, {name: b, value: 1}, {name: d}]}", "{env: [{name: a, value: 1}, {name: c}, {name: d}]}"},
		"out of such a list":  {"{env: [{name: a}, {name: b}]}", "{env: [{name: a, value: 1}, {name: b}]}", "{env: [{name: a, value: 1}]}", "{env: [{name: a}]}"},
		"a list as one value": {"{args: [x]}", "{args: [x, y]}", "{args: [x, y, z]}", "{args: [x, y, z]}"},
		"a file":              {file("a: 1\n"), file("a: 1\nb: 2\n"), file("a: 1\nb: 2\nc: 3\n"), file("a: 1\nc: 3\n")},
	} {
		if d := cmp.Diff(object(t, c.want), release.Merge(object(t, c.old), object(t, c.base), object(t, c.now))); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// A diff shows which secrets differ, never their values.
func TestDiffHidesSecrets(t *testing.T) {
	of := func(password string) *release.Release {
		return &release.Release{Contents: release.Contents{Objects: []release.Object{
			{Kind: "Secret", Name: "s", Content: object(t, "{kind: Secret, data: {x.conf: "+base64.StdEncoding.EncodeToString([]byte("port: 1\npw: "+password+"\n"))+"}}")},
			{Kind: "ConfigMap", Name: "c", Content: object(t, "{kind: ConfigMap, data: {smtp_password: "+password+", url: 'http://"+password+"@x'}}")},
		}}}
	}
	d := release.Compare(of("first-secret"), of("second-secret"), func(s string) string {
		return strings.NewReplacer("first-secret", "***", "second-secret", "***").Replace(s)
	})
	raw, err := yaml.Marshal(d)
	require.NoError(t, err)
	for _, secret := range []string{"first-secret", "second-secret", base64.StdEncoding.EncodeToString([]byte("second-secret"))[:12]} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("it shows %s:\n%s", secret, raw)
		}
	}
	if !strings.Contains(string(raw), "data.x.conf.pw") || strings.Contains(string(raw), "data.x.conf.port") || !strings.Contains(string(raw), "effects: []") {
		t.Errorf("%s", raw)
	}
}

// A release that is too large for a Secret is rejected before anything is applied.
func TestSizeIsBounded(t *testing.T) {
	noise := make([]byte, release.MaxSize)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	r := release.Release{Contents: release.Contents{From: release.From{Options: []*corev1.ConfigMap{{BinaryData: map[string][]byte{"x": noise}}}}}}
	if _, err := r.Secret(metav1.ObjectMeta{Name: "default", Labels: map[string]string{}}); err == nil || !strings.Contains(err.Error(), "shorten the options") {
		t.Error(err)
	}
}

// A damaged release is an error that names its Secret, not other contents.
func TestDamagedRelease(t *testing.T) {
	secret := func() *corev1.Secret {
		s, err := release.Release{Summary: release.Summary{Revision: 3}}.Secret(metav1.ObjectMeta{Name: "default", Labels: map[string]string{}})
		require.NoError(t, err)
		return s
	}
	if _, err := release.Decode(secret()); err != nil {
		t.Fatal(err)
	}
	sum, cut, moved := secret(), secret(), secret()
	sum.Data["contents"][len(sum.Data["contents"])-8]++ // the checksum
	cut.Data["contents"] = cut.Data["contents"][:len(cut.Data["contents"])-8]
	moved.Labels[v1alpha1.LabelRelease] = "4"
	for name, s := range map[string]*corev1.Secret{"a wrong checksum": sum, "without its end": cut, "under the label of another": moved} {
		if _, err := release.Decode(s); err == nil || !strings.Contains(err.Error(), "default-release-3") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTwins(t *testing.T) {
	all := []release.Summary{{Revision: 6}, {Revision: 7, Of: 5}, {Revision: 3}, {Revision: 4}, {Revision: 5, Of: 3}, {Revision: 9, Of: 2}, {Revision: 10, Of: 2}}
	for revision, want := range map[int][]int{3: {7, 5}, 5: {7, 3}, 4: nil, 9: {10}} {
		if got := release.Twins(slices.Clone(all), revision); !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", revision, got, want)
		}
	}
}

func TestPrevious(t *testing.T) {
	never := func(release.Summary) bool { return false }
	reverted := []release.Summary{{Revision: 2}, {Revision: 3, By: "kubectl-edit"}, {Revision: 4, By: "update-a"}, {Revision: 5, By: "update-a", Of: 3}}
	for _, c := range []struct {
		name     string
		all      []release.Summary
		revision int
		failed   func(release.Summary) bool
		want     int
		passed   []int
	}{
		{"the one before", []release.Summary{{Revision: 2}, {Revision: 3, By: "update-a"}}, 3, never, 2, nil},
		{"an edit while an update moved the cloud", []release.Summary{{Revision: 2}, {Revision: 3, By: "update-a"}, {Revision: 4, By: "update-a"}}, 4, never, 3, nil},
		{"an update went back", reverted, 5, never, 2, []int{4, 3}},
		{"an update went back, and an edit came", append(slices.Clone(reverted), release.Summary{Revision: 6, By: "kubectl-edit"}), 6, never, 5, nil},
		{"an update went back, and another succeeded", append(slices.Clone(reverted), release.Summary{Revision: 6, By: "update-b"}), 6, never, 5, nil},
		{"a rollback, and another", []release.Summary{{Revision: 2}, {Revision: 3}, {Revision: 4, By: "rollback-a", Of: 2}}, 4, never, 3, []int{}},
		{"a rollback went back", []release.Summary{{Revision: 2}, {Revision: 3}, {Revision: 4, By: "rollback-a", Of: 2}, {Revision: 5, By: "rollback-a", Of: 3}}, 5, never, 2, []int{4, 3}},
		{"an update was given up", []release.Summary{{Revision: 2}, {Revision: 3, By: "update-a"}, {Revision: 4}}, 4,
			func(s release.Summary) bool { return s.By == "update-a" }, 2, []int{3}},
		{"the first", []release.Summary{{Revision: 1}}, 1, never, 0, nil},
		{"only what went back", []release.Summary{{Revision: 3}, {Revision: 4, By: "update-a"}, {Revision: 5, By: "update-a", Of: 3}}, 5, never, 0, []int{4, 3}},
	} {
		got, passed := release.Previous(slices.Clone(c.all), c.revision, c.failed)
		if got != c.want || !slices.Equal(passed, c.passed) {
			t.Errorf("%s: %d, passed over %v, want %d and %v", c.name, got, passed, c.want, c.passed)
		}
	}
}
