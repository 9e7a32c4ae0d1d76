// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// superAdminKubeconfig bypasses authorization; kubeadm keeps it for repairs.
const superAdminKubeconfig = kubernetesDir + "/super-admin.conf"

// administratorPhase gives the group in admin.conf its rights. kubeadm does that inside whichever phase asks the API server first; as
// a step of its own, everything else may start as soon as it is done.
func administratorPhase() host.Phase {
	return host.Phase{
		Name: "administrator", Short: "Give the administrator's kubeconfig its rights", After: []string{apiServerReady},
		Check: live(func(ctx context.Context, c client.Client, _ *host.Host) (bool, error) {
			return true, c.Get(ctx, client.ObjectKey{Name: constants.ClusterAdminsGroupAndClusterRoleBinding}, &rbacv1.ClusterRoleBinding{})
		}),
		Plan: func(context.Context, *host.Host) ([]string, error) {
			return []string{"create ClusterRoleBinding " + constants.ClusterAdminsGroupAndClusterRoleBinding}, nil
		},
		Run: bindAdministrators,
	}
}

func bindAdministrators(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	c, err := clientOf(h, superAdminKubeconfig)
	if err != nil {
		return err
	}
	name := constants.ClusterAdminsGroupAndClusterRoleBinding
	err = c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("binding the group %s: %w", name, err)
	}
	r.Changed("created ClusterRoleBinding %s", name)
	return nil
}
