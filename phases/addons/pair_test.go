// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// TestRecordOfPair: a deleted record is recreated from the pods' labels, never guessed.
func TestRecordOfPair(t *testing.T) {
	const namespace = "onecloud"
	secret := &corev1.Secret{ObjectMeta: named(namespace, dbpair.SecretName)}
	pod := func(server, role string) client.Object {
		p := &corev1.Pod{ObjectMeta: named(namespace, dbpair.PodName(server))}
		p.Labels = map[string]string{dbpair.RoleLabel: role}
		return p
	}
	other := &coordinationv1.Lease{ObjectMeta: named(namespace, dbpair.RecordName)}
	dbpair.Record{Primary: dbpair.Second, InSync: dbpair.First, Term: 7}.Write(other)
	for name, c := range map[string]struct {
		objs []client.Object
		want dbpair.Record
		code string
	}{
		"a new pair":                    {nil, dbpair.Record{Primary: dbpair.First}, ""},
		"an existing record stays":      {[]client.Object{secret, other}, dbpair.Record{Primary: dbpair.Second, InSync: dbpair.First, Term: 7}, ""},
		"deleted, the second is known":  {[]client.Object{secret, pod(dbpair.Second, dbpair.RolePrimary)}, dbpair.Record{Primary: dbpair.Second, Term: 1}, ""},
		"deleted, and nothing is known": {[]client.Object{secret}, dbpair.Record{}, "OCA-7436"},
	} {
		scheme := kube.Scheme()
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.objs...).Build()
		_, err := ensurePairObjects(t.Context(), k, namespace)
		if f := finding.Of(err); c.code != "" && (len(f) != 1 || f[0].Code != c.code || !strings.Contains(f[0].Remedy, " label pod POD ")) || c.code == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l := &coordinationv1.Lease{}
		err = k.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: dbpair.RecordName}, l)
		if (err != nil) != (c.code != "") || err == nil && dbpair.ReadRecord(l) != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, dbpair.ReadRecord(l), err, c.want)
		}
	}
}

// TestReplicaPullsImages: the pods of the pair keep the registry credentials that init gave the first server.
func TestReplicaPullsImages(t *testing.T) {
	const namespace, auth = "onecloud", `{"auths":{}}`
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	cfg := plainConfig()
	p, _, err := ensurePassword(t.Context(), k, cfg, false)
	require.NoError(t, err)
	objs, err := database().Objects(cfg, p)
	if err == nil {
		objs, err = host.WithPullSecret(auth, objs)
	}
	if err == nil {
		_, err = kube.Apply(t.Context(), k, kube.FieldManager, objs...)
	}
	if err == nil {
		_, err = AddReplica(t.Context(), k, namespace, "ocadm:v1")
	}
	require.NoError(t, err)
	for _, server := range dbpair.Servers() {
		s := &appsv1.StatefulSet{}
		require.NoError(t, k.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: server}, s))
		if has := s.Spec.Template.Spec.ImagePullSecrets; len(has) != 1 || has[0].Name != cluster.PullSecret {
			t.Errorf("%s: %v", server, has)
		}
	}
}

// TestVolumeStays: the volume of a StatefulSet cannot be changed, so a repeated installation without the flags of the first renders the same one.
func TestVolumeStays(t *testing.T) {
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	first := plainConfig()
	first.Database.StorageSize, first.Cloud.StorageClass = "50Gi", "ceph"
	for _, cfg := range []*config.Config{first, plainConfig()} {
		p, _, err := ensurePassword(t.Context(), k, cfg, false)
		require.NoError(t, err)
		objs, err := database().Objects(cfg, p)
		if err == nil {
			_, err = kube.Apply(t.Context(), k, kube.FieldManager, objs...)
		}
		require.NoError(t, err)
		s := &appsv1.StatefulSet{}
		require.NoError(t, k.Get(t.Context(), client.ObjectKey{Namespace: cfg.Cloud.Namespace, Name: dbpair.First}, s))
		claim := s.Spec.VolumeClaimTemplates[0].Spec
		if size := claim.Resources.Requests.Storage().String(); size != "50Gi" || claim.StorageClassName == nil || *claim.StorageClassName != "ceph" {
			t.Errorf("%s of class %v", size, claim.StorageClassName)
		}
	}
	// Another size on request is refused, the same one in other units is not.
	for size, code := range map[string]string{"60Gi": "OCA-7439", "51200Mi": ""} {
		cfg := plainConfig()
		cfg.Database.StorageSize, cfg.Given = size, []string{"database.storageSize"}
		_, _, err := ensurePassword(t.Context(), k, cfg, true)
		if list := finding.Of(err); code == "" && err != nil || code != "" && (len(list) != 1 || list[0].Code != code) {
			t.Errorf("%s: %v", size, err)
		}
	}
}
