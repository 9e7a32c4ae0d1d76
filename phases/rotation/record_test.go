// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

func TestReached(t *testing.T) {
	for _, c := range []struct {
		a, b Stage
		want bool
	}{{Trust, Trust, true}, {Trust, Sign, false}, {Sign, Trust, true}, {Drop, Sign, true}, {"", Trust, false}, {Drop, "", false}} {
		if got := reached(c.a, c.b); got != c.want {
			t.Errorf("%q has reached %q: %v", c.a, c.b, got)
		}
	}
}

// sealed returns material, and keys with these texts.
func sealed(t *testing.T) (material, map[string][]byte) {
	t.Helper()
	m, keys := material{certs: map[string][]byte{}}, map[string][]byte{}
	for _, name := range authorities {
		for _, prefix := range []string{oldPrefix, newPrefix} {
			m.certs[prefix+name], keys[prefix+name] = []byte(prefix+name+"\n"), []byte("key of "+prefix+name)
		}
	}
	var err error
	if m.sealed, m.wrapped, err = seal(keys); err != nil {
		t.Fatal(err)
	}
	return m, keys
}

// The trusted CAs of a stage start with the signing one, and a revert is a rotation with the two swapped.
func TestBundle(t *testing.T) {
	m, keys := sealed(t)
	for stage, want := range map[Stage]string{Trust: "old-ca new-ca", Sign: "new-ca old-ca", Drop: "new-ca"} {
		got := strings.Fields(string(m.bundle(stage, "ca")))
		if strings.Join(got, " ") != want || !strings.HasPrefix(got[0], signer(stage)) {
			t.Errorf("%s: %q, signed by %s", stage, got, signer(stage))
		}
	}
	m.certs, keys = m.swapped(keys)
	if got := string(m.bundle(Sign, "ca")); got != "old-ca\nnew-ca\n" || string(keys[newPrefix+"ca"]) != "key of old-ca" {
		t.Errorf("on the way back: %q, signed with %s", got, keys[newPrefix+"ca"])
	}
}

// A record that is damaged, or of a later release, is refused: an unknown stage must not pass for the last one.
func TestUnknownStage(t *testing.T) {
	read := func(text string) error {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: secretName}, Data: map[string][]byte{recordKey: []byte(text)}}
		_, _, _, err := load(t.Context(), fake.NewClientBuilder().WithObjects(s).Build())
		return err
	}
	for _, text := range []string{"", "{", "null", "{}", `{"id":"1","stage":"retire"}`} {
		if read(text) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if err := read(`{"id":"1","stage":"sign","later":1}`); err != nil {
		t.Error(err)
	}
}

// Holders of the old or the new key can read all keys, others cannot; the record itself contains no key.
func TestKeys(t *testing.T) {
	m, keys := sealed(t)
	data, err := toData(Record{ID: "1", Stage: Sign, Nodes: map[string]Stage{"node1": Trust}, Published: map[Stage]time.Time{Trust: time.Unix(1, 0)}}, m)
	require.NoError(t, err)
	for name, raw := range data {
		if bytes.Contains(raw, []byte("key of")) {
			t.Errorf("%s shows a key", name)
		}
		if wrong := validation.IsConfigMapKey(name); wrong != nil {
			t.Errorf("a Secret has no key %s: %v", name, wrong)
		}
	}
	rec, m, err := fromData(data)
	if err != nil || rec.Stage != Sign || rec.Nodes["node1"] != Trust {
		t.Fatalf("%+v, %v", rec, err)
	}
	for own, readable := range map[string]bool{"key of old-ca": true, "key of new-ca": true, "key of another": false} {
		h := controlPlane(t, own)
		got, err := m.keys(h)
		if !readable {
			if list := finding.Of(err); len(list) != 1 || list[0].Code != "OCA-4411" {
				t.Errorf("with another key: %v", err)
			}
			continue
		}
		if err != nil || !bytes.Equal(got[newPrefix+"front-proxy-ca"], keys[newPrefix+"front-proxy-ca"]) {
			t.Errorf("with %q: %v", own, err)
		}
		tr, err := m.trust(h, Sign)
		if err != nil || string(tr.Keys["ca"]) != "key of new-ca" || string(tr.Certs["ca"]) != "new-ca\nold-ca\n" || string(tr.Certs["etcd/ca"]) != "new-etcd/ca\nold-etcd/ca\n" {
			t.Errorf("to trust: %+v, %v", tr, err)
		}
	}
	for _, prefix := range []string{oldPrefix, newPrefix} {
		delete(m.certs, prefix+"etcd/ca")
	}
	if tr, err := m.trust(controlPlane(t, "key of new-ca"), Sign); err != nil || len(tr.Certs) != 2 || len(tr.Keys) != 2 {
		t.Errorf("without etcd, to trust: %+v, %v", tr, err)
	}
}

// etcd and the API server restart if their trusted CAs change, and only in a rotation that replaces etcd's CA.
func TestEtcdSteps(t *testing.T) {
	with, without := kubernetes.Trust{Certs: map[string][]byte{"etcd/ca": {1}}}, kubernetes.Trust{}
	for _, c := range []struct {
		stage    Stage
		trust    kubernetes.Trust
		restarts bool
	}{{Trust, with, true}, {Sign, with, false}, {Drop, with, true}, {Trust, without, false}, {Drop, without, false}} {
		for _, name := range []string{"etcd", "kube-apiserver"} {
			i := slices.IndexFunc(NodeSteps(), func(s NodeStep) bool { return s.Name == name })
			if i < 0 {
				t.Fatalf("no step %s", name)
			}
			if why := NodeSteps()[i].Skip(&Node{Stage: c.stage, trust: c.trust}); (why == "") != c.restarts {
				t.Errorf("%s in %s: %q", name, c.stage, why)
			}
		}
	}
}

// An unanswered request is repeated, and one whose answer was lost counts once.
func TestLostAnswer(t *testing.T) {
	lost, requests := 1, 0
	answer := func(err error) error {
		if requests++; err == nil && lost > 0 {
			lost--
			return errors.New("connection reset by peer")
		}
		return err
	}
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return answer(c.Create(ctx, o, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return answer(c.Update(ctx, o, opts...))
		},
	})
	m, _ := sealed(t)
	s := &corev1.Secret{}
	for i, stage := range []Stage{Trust, Sign} {
		lost = 1
		if err := save(t.Context(), c, s, Record{Stage: stage}, m); err != nil || requests != 2*(i+1) {
			t.Fatalf("%s: %d requests, %v", stage, requests, err)
		}
		if _, rec, _, err := load(t.Context(), c); err != nil || rec.Stage != stage {
			t.Errorf("%s: %+v, %v", stage, rec, err)
		}
	}
	other := s.DeepCopy()
	require.NoError(t, save(t.Context(), c, other, Record{Stage: Drop}, m))
	if f := finding.Of(save(t.Context(), c, s, Record{Stage: Trust}, m)); len(f) != 1 || f[0].Code != "OCA-4412" {
		t.Errorf("beside another command: %+v", f)
	}
}

// A rotation keeps the set of CAs with which it began.
func TestWithEtcd(t *testing.T) {
	h := controlPlane(t, "key")
	if f := finding.Of((&Rotation{Host: h}).WithEtcd()); len(f) != 1 || f[0].Code != "OCA-4146" {
		t.Errorf("with an etcd elsewhere: %+v", f)
	}
	if f := finding.Of((&Rotation{Host: h, Record: &Record{Authorities: []string{"ca"}}}).WithEtcd()); len(f) != 1 || f[0].Code != "OCA-4421" {
		t.Errorf("while one is underway without it: %+v", f)
	}
	if err := (&Rotation{Host: h, Record: &Record{Authorities: authorities}}).WithEtcd(); err != nil {
		t.Errorf("while one is underway with it: %v", err)
	}
	if got := (&Rotation{}).authorities(); slices.Contains(got, kubernetes.EtcdAuthority) || len(got) != 2 {
		t.Errorf("by default: %v", got)
	}
}

func controlPlane(t *testing.T, key string) *host.Host {
	t.Helper()
	root := t.TempDir()
	c := config.Default()
	h, err := host.Fake(t.Context(), root, &c, &host.Recorder{})
	require.NoError(t, err)
	ca, err := pki.NewCA(time.Now(), "kubernetes", nil)
	require.NoError(t, err)
	for name, text := range map[string]string{"pki/ca.crt": string(ca.CertPEM()), "pki/ca.key": key, "manifests/kube-apiserver.yaml": "x"} {
		file := filepath.Join(root, "etc/kubernetes", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return h
}

// A worker gets no CA key, a control-plane node gets the sealed ones, and no pod gets a token.
func TestPod(t *testing.T) {
	worker, plane := pod("image", member{name: "w"}, Sign, "1"), pod("image", member{name: "p", controlPlane: true}, Sign, "1")
	var items []string
	for _, i := range worker.Spec.Volumes[0].Secret.Items {
		items = append(items, i.Key)
	}
	if want := []string{"rotation.json", "old-ca", "new-ca"}; !slices.Equal(items, want) {
		t.Errorf("a worker gets %v", items)
	}
	if plane.Spec.Volumes[0].Secret.Items != nil || worker.Name == plane.Name {
		t.Errorf("%+v", plane)
	}
	for _, p := range []*corev1.Pod{worker, plane} {
		if *p.Spec.AutomountServiceAccountToken || p.Spec.NodeName == "" || len(p.Spec.Containers[0].VolumeMounts) != 1 {
			t.Errorf("%+v", p.Spec)
		}
	}
}

func TestUsesAPI(t *testing.T) {
	volume := func(v corev1.VolumeSource) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: v}}}}
	}
	reference := corev1.LocalObjectReference{Name: rootMap}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"token":     {volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: reference}}}}}), true},
		"mounted":   {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: reference}}), true},
		"other map": {volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), false},
		"none":      {&corev1.Pod{}, false},
	} {
		if got := usesAPI(c.pod); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The clocks of this machine and of the API server that sets the time of a pod may differ. A pod of a restarted template is new nevertheless: otherwise
// the wait for it would never end, because its template is restarted only once.
func TestRestartedPodsAreNew(t *testing.T) {
	at := time.Now().Truncate(time.Second)
	pod := func(name, mark string, created time.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{restarted: mark}},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: rootMap}}}}}}}
	}
	k := fake.NewClientBuilder().WithObjects(pod("before", "", at.Add(-time.Hour)), pod("of-the-stage-before", "7-trust", at.Add(-time.Hour)),
		pod("restarted", "7-drop", at.Add(-5*time.Second)), pod("after", "", at.Add(time.Second)), pod("of-a-clock-ahead", "", at.Add(time.Hour)), pod("restarted-ahead", "7-drop", at.Add(time.Hour))).Build()
	n := &Rotation{Record: &Record{ID: "7", Published: map[Stage]time.Time{Drop: at}}}
	old, err := n.oldPods(t.Context(), k, Drop)
	var names []string
	for _, p := range old {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"before", "of-a-clock-ahead", "of-the-stage-before"}) {
		t.Errorf("%v, %v", names, err)
	}
}

// If the API server fails to answer once, a workload's pods do not keep the old CAs, and the next workload still gets the new ones.
func TestReplaceTriesAgain(t *testing.T) {
	yes, patches := true, 0
	var objects []client.Object
	var pods []corev1.Pod
	for _, name := range []string{"proxy", "network"} {
		meta := metav1.ObjectMeta{Namespace: "kube-system", Name: name}
		objects = append(objects, &appsv1.DaemonSet{ObjectMeta: meta})
		meta.Name, meta.OwnerReferences = name+"-1", []metav1.OwnerReference{{Kind: "DaemonSet", Name: name, Controller: &yes}}
		pods = append(pods, corev1.Pod{ObjectMeta: meta})
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(objects...).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if patches++; patches == 1 {
				return errors.New("no answer")
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	restartedFor := func(name string) string {
		t.Helper()
		var set appsv1.DaemonSet
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: name}, &set))
		return set.Spec.Template.Annotations[restarted]
	}
	done := map[string]bool{}
	for i, first := range []string{"", "mark", "mark"} {
		if err := replaceAll(t.Context(), c, workflow.Discard{}, pods, "mark", done); (err != nil) != (first == "") {
			t.Errorf("%d: %v", i, err)
		}
		if got := restartedFor("proxy") + ", " + restartedFor("network"); got != first+", mark" {
			t.Errorf("%d: restarted for %s", i, got)
		}
	}
	if patches != 3 {
		t.Errorf("%d patches", patches)
	}
}

// One server of a database has every row while the other one restarts. Other pods do not wait.
func TestServersOfADatabaseInTurn(t *testing.T) {
	pod := func(name, kind, owner string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}}}
	}
	names := dbpair.Servers()
	a, b, proxy, metrics := pod("a", "StatefulSet", names[0]), pod("b", "StatefulSet", names[1]), pod("proxy", "DaemonSet", "proxy"), pod("metrics", "StatefulSet", "metrics")
	turns, now := map[string]turn{}, time.Now()
	for _, step := range []struct {
		what  string
		after time.Duration
		old   []corev1.Pod
		whole bool
		want  []string
	}{
		{"the replica copies", 0, []corev1.Pod{a, b, metrics, proxy}, false, []string{"metrics", "proxy"}},
		{"it has every row", time.Second, []corev1.Pod{a, b}, true, []string{"a"}},
		{"its controller has not observed it", time.Second, []corev1.Pod{a, b}, true, []string{"a"}},
		{"it starts", time.Second, []corev1.Pod{b}, false, nil},
		{"it has every row again", time.Second, []corev1.Pod{b}, true, []string{"b"}},
	} {
		now = now.Add(step.after)
		restart, said := inTurn(step.old, turns, func(string) bool { return step.whole }, now)
		var got []string
		for _, p := range restart {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, step.want) || len(said) != len(step.old) {
			t.Errorf("%s: %v, %v, want %v", step.what, got, said, step.want)
		}
	}
	broken := func(string) bool { return false }
	turns = map[string]turn{}
	if got, _ := inTurn([]corev1.Pod{a}, turns, broken, now); len(got) != 0 {
		t.Errorf("a pair that is broken: %v", got)
	}
	if got, _ := inTurn([]corev1.Pod{a}, turns, broken, now.Add(pairPatience)); len(got) != 1 {
		t.Errorf("a pair that stays broken: %v", got)
	}
}

// The plan of each part is complete, and each step reports what it would do.
func TestPlans(t *testing.T) {
	for name, steps := range map[string][]Step{"trust": TrustSteps(), "finish": FinishSteps(), "revert": RevertSteps()} {
		if err := workflow.Validate(steps); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
