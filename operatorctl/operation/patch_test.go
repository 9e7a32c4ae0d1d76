// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/require"
)

// A rollback restores neither an earlier database server, nor an earlier password, nor an address that the cloud no longer has. It keeps the
// fields that cannot change, those that protect data, the backups with their schedule, and the settings of machines that join later.
func TestRollbackPatchKeepsPlace(t *testing.T) {
	cloud, then := &v1alpha1.OnecloudCluster{}, &v1alpha1.OnecloudCluster{}
	cloud.Namespace, cloud.Name = key.Namespace, key.Name
	cloud.Spec.Version, then.Spec.Version = "v4.0.4", "v4.0.3"
	cloud.Spec.LoadBalancerEndpoint, then.Spec.LoadBalancerEndpoint = "10.0.0.9", "10.0.0.1"
	cloud.Spec.MySQL = v1alpha1.DatabaseServer{Host: "new", Password: "now", MovedFrom: "old"}
	then.Spec.MySQL = v1alpha1.DatabaseServer{Host: "old", Password: "then"}
	then.Spec.Clickhouse = v1alpha1.DatabaseServer{Host: "records", Password: "then"}
	cloud.Spec.Keystone.BootstrapPassword = "now"
	cloud.Spec.Keystone.Disable = new(true)
	then.Spec.Backup.HostPath, cloud.Spec.Backup.HostPath = "/then", "/now"
	cloud.Spec.Backup.Disable, cloud.Spec.Backup.Schedule = new(false), "@daily" // scheduled since: backups must not end without a word
	cloud.Spec.Backup.NodeSelector = map[string]string{"kubernetes.io/hostname": "node2"}
	cloud.Spec.Glance.Replicas, then.Spec.Glance.Replicas = new(int32(2)), new(int32(2))
	cloud.Spec.Region, cloud.Spec.Zone = "region0", "zone0" // written by hand since; without them the API server refuses the spec
	cloud.Annotations = map[string]string{v1alpha1.AnnotationEdition: "ee"}
	cloud.Spec.Etcd.Size, then.Spec.Etcd.Size = 3, 1
	cloud.Spec.DeletionPolicy, then.Spec.DeletionPolicy = v1alpha1.Retain, v1alpha1.Delete
	cloud.Spec.Backup.Keep, then.Spec.Backup.Keep = new(int32(30)), new(int32(3))
	cloud.Spec.Glance.StorageClassName = "ceph" // the images uploaded since are there
	cloud.Spec.Machines.Settings.Mirror = "mirror.example.com"
	kept := release.Release{Summary: release.Summary{Revision: 2, Version: "v4.0.3"}, Contents: release.Contents{From: release.From{Cloud: then}}}
	secret, err := kept.Secret(metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{}})
	require.NoError(t, err)
	o := op("r", 1, v1alpha1.OperationRunning, "")
	o.Status.Target = &v1alpha1.RollbackTarget{Revision: 2}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(secret).Build()
	r := &Run{Operation: o, Means: Means{Client: c}, record: newRecord(nil, nil, o)}
	patch, undo, of, err := rollbackPatch(t.Context(), r, cloud)
	require.NoError(t, err)
	for _, one := range []struct {
		what string
		got  map[string]any
		want string
	}{
		{"there", patch, `{"metadata":{"annotations":{"onecloud.yunion.io/edition":null}},"spec":{"keystone":{"disable":null},"version":"v4.0.3"}}`},
		{"back", undo, `{"metadata":{"annotations":{"onecloud.yunion.io/edition":"ee"}},"spec":{"keystone":{"disable":true},"version":"v4.0.4"}}`},
	} {
		got, err := json.Marshal(one.got)
		if err != nil || string(got) != one.want {
			t.Errorf("%s: %s, want %s, %v", one.what, got, one.want, err)
		}
	}
	if of != 2 {
		t.Errorf("release %d", of)
	}
}

func TestChangedFields(t *testing.T) {
	for patch, want := range map[string]string{
		`{"spec":{"version":"v4.0.3","hostagent":{"tag":null}}}`:                 "spec.hostagent.tag: (none), spec.version: v4.0.3",
		`{"spec":{"mysql":{"password":"secret","host":"db"}}}`:                   "spec.mysql.host, spec.mysql.password",
		`{"spec":{"components":{"x":{"env":["TOKEN=secret"]}},"profile":""}}`:    `spec.components.x.env, spec.profile: ""`,
		`{"metadata":{"annotations":{"onecloud.yunion.io/edition":"ee"}}}`:       "metadata.annotations.onecloud.yunion.io/edition: ee",
		`{"spec":{"disableResourceManagement":true,"glance":{"disable":false}}}`: "spec.disableResourceManagement: true, spec.glance.disable: false",
	} {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(patch), &fields))
		if got := changedFields(fields); got != want {
			t.Errorf("%s: %q, want %q", patch, got, want)
		}
	}
}
