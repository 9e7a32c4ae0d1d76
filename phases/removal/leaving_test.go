// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A kubelet finds the volumes of its pods with its own permissions: it may list only its pods, and get only their claims and volumes.
func TestVolumesInUse(t *testing.T) {
	k := interceptor.NewClient(cluster(t,
		pod("one", "node3", "data-ocadm-mysql-0"), pod("two", "node3", "glance", "data-ocadm-mysql-0", "shared", "pending", "lost"), pod("three", "node4", "other"),
		claim("data-ocadm-mysql-0", "pvc-1"), volume("pvc-1", "node3", "data-ocadm-mysql-0"), claim("glance", "pvc-2"), volume("pvc-2", "node3", "glance"),
		claim("shared", "pvc-3"), volume("pvc-3", "node4", "shared"), claim("pending", ""), claim("other", "pvc-4"), volume("pvc-4", "node4", "other"),
	), interceptor.Funcs{List: func(ctx context.Context, k client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if _, is := l.(*corev1.PodList); !is {
			return errors.New("forbidden")
		}
		return k.List(ctx, l, opts...)
	}})
	got, err := VolumesInUse(t.Context(), k, "node3")
	if err != nil || len(got) != 2 || got[0].Claim != "onecloud/data-ocadm-mysql-0" || !got[0].Database || got[0].Size != "5Gi" || got[1].Claim != "onecloud/glance" || got[1].Database {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := VolumesOn(t.Context(), k, "node3"); err == nil {
		t.Error("an administrator lists volumes")
	}
}
