// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/test/require"
)

func entry(manager string, op metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

var managed = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}

// cloud returns a cloud whose version is a choice, whose glance image is a default and whose replicas are both.
func cloud(t *testing.T) (*unstructured.Unstructured, *v1alpha1.OnecloudCluster) {
	t.Helper()
	u := &unstructured.Unstructured{}
	err := json.Unmarshal([]byte(`{"apiVersion":"onecloud.yunion.io/v1alpha1","kind":"OnecloudCluster",
		"metadata":{"name":"default","namespace":"onecloud","uid":"u","resourceVersion":"7","finalizers":["x"],
			"annotations":{"onecloud.yunion.io/edition":"ee","onecloud.yunion.io/paused":"true","onecloud.yunion.io/default-images":"r:v1"}},
		"spec":{"version":"v4.0.3","mysql":{"host":"db","passwordSecretRef":{"name":"mine","key":"pw"}},"loadBalancerEndpoint":"10.0.0.1",
			"backup":{"s3":{"endpoint":"s3.example.com","bucket":"b","secret":"keys-of-the-bucket"}},
			"glance":{"image":"r/glance:v4.0.3","replicas":2}},
		"status":{"release":{"revision":3},"components":[{"name":"glance","image":"r/glance:v4.0.3"}]}}`), &u.Object)
	require.NoError(t, err)
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("kubectl-create", metav1.ManagedFieldsOperationUpdate,
			`{"f:spec":{"f:version":{},"f:mysql":{"f:host":{},"f:passwordSecretRef":{"f:name":{},"f:key":{}}},"f:loadBalancerEndpoint":{},"f:glance":{"f:replicas":{}}}}`),
		entry(v1alpha1.ManagerDefaults, metav1.ManagedFieldsOperationApply,
			`{"f:metadata":{"f:annotations":{"f:onecloud.yunion.io/default-images":{}}},"f:spec":{"f:glance":{"f:image":{},"f:replicas":{}}}}`),
	})
	cr := &v1alpha1.OnecloudCluster{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cr))
	return u, cr
}

func saved(t *testing.T) backup.Contents {
	t.Helper()
	u, cr := cloud(t)
	secret := func(name string, data map[string]string, labels map[string]string) corev1.Secret {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, UID: "u", ResourceVersion: "1", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Name: "default", UID: "u"}}}, Type: "Opaque", Data: map[string][]byte{}}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	cm := func(name string, entries ...metav1.ManagedFieldsEntry) corev1.ConfigMap {
		return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, Labels: managed, ManagedFields: entries},
			Data: map[string]string{"port": "1", "log_level": "debug"}}
	}
	ours := entry(engine.FieldManager, metav1.ManagedFieldsOperationApply, `{"f:data":{"f:port":{}}}`)
	source, err := collect(u, cr, []corev1.Secret{
		secret("default-credentials", map[string]string{component.CloudID: "id-1", "keystone.bootstrap-password": "secret"}, managed),
		secret("default-certs", map[string]string{"ca.crt": "ca"}, managed), secret("default-glance-config", map[string]string{"glance.conf": "x"}, managed),
		secret("mine", map[string]string{"pw": "root-password"}, nil), secret("keys-of-the-bucket", map[string]string{v1alpha1.BackupSecretKey: "s"}, nil), secret("someone-elses", map[string]string{"x": "y"}, nil),
		secret("default-release-3", map[string]string{"release": "{}"}, map[string]string{v1alpha1.LabelRelease: "3"}),
	}, []corev1.ConfigMap{
		cm("default-glance", ours, entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, `{"f:data":{"f:log_level":{}}}`)), cm("default-region", ours), cm("other", ours),
	})
	require.NoError(t, err)
	if h := source.Header; h.Cloud != (backup.Cloud{Namespace: "onecloud", Name: "default", ID: "id-1"}) || h.Version != "v4.0.3" || h.Release != 3 {
		t.Errorf("%+v", h)
	}
	if !slices.Equal(source.Images, []string{"r/glance:v4.0.3"}) {
		t.Error(source.Images)
	}
	return backup.Contents{Header: source.Header, Objects: source.Objects}
}

func TestWhatIsSaved(t *testing.T) {
	c := saved(t)
	var names []string
	text := ""
	for _, o := range c.Objects {
		names = append(names, o.Kind+"/"+o.Name)
		text += string(o.JSON)
	}
	slices.Sort(names)
	want := []string{"ConfigMap/default-glance", "OnecloudCluster/default", "Secret/default-certs", "Secret/default-credentials", "Secret/default-release-3", "Secret/keys-of-the-bucket",
		"Secret/mine"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	for _, gone := range []string{`"uid"`, "resourceVersion", "ownerReferences", "managedFields", "finalizers", "status", "paused", "default-images", `"image"`, `"port"`, `"namespace"`} {
		if strings.Contains(text, gone) {
			t.Errorf("%s is saved: %s", gone, text)
		}
	}
	for _, kept := range []string{`"replicas":2`, `"log_level":"debug"`, `"onecloud.yunion.io/edition":"ee"`, `"version":"v4.0.3"`} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s is not saved: %s", kept, text)
		}
	}
}

// The earlier operator's record of an adopted file stays behind: where it is restored, it would be adopted again and replace later choices of users.
func TestAdoptedFileIsNotAdoptedAgain(t *testing.T) {
	u, cr := cloud(t)
	record := map[string]string{engine.HashAnnotation: "h", adopt.LastApplied: `{"config":"admin_password: p"}`}
	file := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-region", Labels: managed, Annotations: record, ManagedFields: []metav1.ManagedFieldsEntry{
		entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, `{"f:data":{"f:config":{}}}`)}}, Data: map[string]string{adopt.ConfigKey: "admin_password: p"}}
	source, err := collect(u, cr, nil, []corev1.ConfigMap{file})
	require.NoError(t, err)
	restored := &corev1.ConfigMap{}
	require.NoError(t, json.Unmarshal(source.Objects[len(source.Objects)-1].JSON, restored))
	if restored.Name != file.Name || adopt.IsEarlier(restored, false) {
		t.Errorf("%+v", restored)
	}
}

func TestPlaces(t *testing.T) {
	c := saved(t)
	server, err := Server(c)
	if err != nil || server.Host != "db" || server.Password != "root-password" {
		t.Errorf("%+v %v", server, err)
	}
	same, err := Place{Namespace: "onecloud"}.Objects(c)
	require.NoError(t, err)
	if last := same[len(same)-1]; last.GetKind() != v1alpha1.Kind || last.GetNamespace() != "onecloud" || len(same) != len(c.Objects) {
		t.Errorf("%v", last)
	}
	moved, err := Place{Namespace: "other", Address: "10.9.9.9", MySQL: v1alpha1.DatabaseServer{Host: "new", Port: 3307, Password: "p"}}.Objects(c)
	require.NoError(t, err)
	spec := moved[len(moved)-1].Object["spec"].(map[string]any)
	mysql := spec["mysql"].(map[string]any)
	if spec["loadBalancerEndpoint"] != "10.9.9.9" || mysql["host"] != "new" || mysql["port"] != int64(3307) || mysql["passwordSecretRef"].(map[string]any)["name"] != "default-database" {
		t.Errorf("%v", spec)
	}
	for _, o := range moved {
		if o.GetNamespace() != "other" {
			t.Errorf("%s %s is in %q", o.GetKind(), o.GetName(), o.GetNamespace())
		}
	}
	if _, err := (Place{}).Objects(backup.Contents{}); err == nil {
		t.Error("a backup without a cloud: no error")
	}
}

// TestVersion checks that a backup has the version that runs, even while the spec requests another one, and is restored with it.
func TestVersion(t *testing.T) {
	for name, c := range map[string]struct {
		cloud v1alpha1.OnecloudCluster
		want  string
	}{
		"runs":           {v1alpha1.OnecloudCluster{}, "v1"},
		"without a spec": {v1alpha1.OnecloudCluster{Spec: v1alpha1.OnecloudClusterSpec{Version: ""}}, "v1"},
		"update pending": {v1alpha1.OnecloudCluster{Spec: v1alpha1.OnecloudClusterSpec{Version: "v2"}}, "v1"},
		"restored": {v1alpha1.OnecloudCluster{Spec: v1alpha1.OnecloudClusterSpec{Version: "v2"},
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationAtOnce: "3"}}}, "v2"},
		"restored, and followed": {v1alpha1.OnecloudCluster{Spec: v1alpha1.OnecloudClusterSpec{Version: "v1"},
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationAtOnce: "2"}}}, "v1"},
	} {
		c.cloud.Status.Release = v1alpha1.ReleaseStatus{Revision: 3, Version: "v1"}
		if got := versionOf(&c.cloud); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
	b := saved(t)
	b.Header.Version = "v4.0.2" // the spec requests v4.0.3
	objects, err := Place{}.Objects(b)
	require.NoError(t, err)
	if v, _, _ := unstructured.NestedString(objects[len(objects)-1].Object, "spec", "version"); v != "v4.0.2" {
		t.Errorf("the cloud begins as %s", v)
	}
}

// TestPut checks that objects are created once; only the passwords follow the backup.
func TestPut(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	objects, err := Place{Namespace: "other"}.Objects(saved(t))
	require.NoError(t, err)
	lines, err := Put(t.Context(), c, "test", objects)
	if err != nil || len(lines) != len(objects) {
		t.Fatalf("%q %v", lines, err)
	}
	key := client.ObjectKey{Namespace: "other", Name: "default"}
	if id, err := CredentialsID(t.Context(), c, key); err != nil || id != "id-1" {
		t.Errorf("%q %v", id, err)
	}
	if lines, err = Put(t.Context(), c, "test", objects); err != nil || len(lines) != 0 {
		t.Errorf("twice: %q %v", lines, err)
	}
	s := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "default-credentials"}, s))
	s.Data["keystone.bootstrap-password"], s.Data["newer"] = []byte("changed"), []byte("stays")
	require.NoError(t, c.Update(t.Context(), s))
	if lines, err = Put(t.Context(), c, "test", objects); err != nil || len(lines) != 1 {
		t.Errorf("%q %v", lines, err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || string(s.Data["keystone.bootstrap-password"]) != "secret" || string(s.Data["newer"]) != "stays" {
		t.Errorf("%q %v", s.Data, err)
	}
	if id, err := CredentialsID(t.Context(), c, client.ObjectKey{Namespace: "none", Name: "default"}); err != nil || id != "" {
		t.Errorf("%q %v", id, err)
	}
}

// A backup comes from a store that others may write to. Nothing is restored but what a backup can contain: the administrator who restores it may create
// anything.
func TestObjectsOfOtherKinds(t *testing.T) {
	for name, text := range map[string]string{
		"binding": `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"x"},"roleRef":{"kind":"ClusterRole","name":"cluster-admin"}}`,
		"pod":     `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}`,
		"kind":    `{"apiVersion":"example.org/v1","kind":"Secret","metadata":{"name":"x"}}`,
	} {
		b := saved(t)
		b.Objects = append(b.Objects, backup.Object{Kind: "Secret", Name: "x", JSON: []byte(text)})
		if _, err := (Place{Namespace: "onecloud"}).Objects(b); err == nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
