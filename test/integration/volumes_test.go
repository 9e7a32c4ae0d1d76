// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
)

// TestVolumeOfAnotherStorageClass checks that the images of a cloud are in a volume of the class that a user names. Another class creates another
// volume, and the previous one stays with its data. The claims outlive the cloud unless it is deleted with its data. Then the reclaim policies of
// their classes decide about the volumes.
func TestVolumeOfAnotherStorageClass(t *testing.T) {
	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.Retain, v1alpha1.Delete} {
		t.Run(string(policy), func(t *testing.T) {
			e := newCloudTest(t, env.Options{})
			cr := e.Only("keystone", "glance")
			cr.Spec.Glance.StorageClassName, cr.Spec.DeletionPolicy = "ceph", policy
			e.Install(cr)
			class := func(claim string) string {
				pvc := &corev1.PersistentVolumeClaim{}
				e.Get(pvc, claim)
				return *pvc.Spec.StorageClassName
			}
			uses := func() string {
				d := e.Deployments()["glance"]
				if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
					t.Errorf("two pods may write into one volume: %s", d.Spec.Strategy.Type)
				}
				for _, v := range d.Spec.Template.Spec.Volumes {
					if v.PersistentVolumeClaim != nil {
						return v.PersistentVolumeClaim.ClaimName
					}
				}
				return ""
			}
			if is := class("default-glance-ceph"); is != "ceph" || uses() != "default-glance-ceph" {
				t.Errorf("the claim has class %q, the pod uses %q", is, uses())
			}
			e.Edit(`{"spec":{"glance":{"storageClassName":"nfs"}}}`)
			e.UntilReady()
			if is := class("default-glance-nfs"); is != "nfs" || uses() != "default-glance-nfs" || class("default-glance-ceph") != "ceph" {
				t.Errorf("with another class: the claim has class %q, the pod uses %q", is, uses())
			}
			e.Delete()
			for _, claim := range []string{"default-glance-ceph", "default-glance-nfs"} {
				if policy == v1alpha1.Delete {
					e.UntilGone(&corev1.PersistentVolumeClaim{}, claim)
				} else {
					class(claim)
				}
			}
		})
	}
}
