// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// apiTimeout bounds the API requests of a check.
const apiTimeout = 5 * time.Second

// live returns a check of the API server's objects. If no API server answers or grants access, the work is not done.
func live(f func(context.Context, client.Client, *host.Host) (bool, error)) check {
	return func(ctx context.Context, h *host.Host) (bool, error) {
		if _, err := h.Files.ReadFile(AdminKubeconfig); err != nil {
			return false, nil // before kubeconfig/admin there is no server to ask
		}
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		c, err := h.Kube(ctx)
		if err != nil {
			return false, nil // no answer: the phase runs and reports what is wrong
		}
		done, err := f(ctx, c, h)
		return done && err == nil, nil // as above; usually not found
	}
}

// inSystem returns the check of a phase that makes an object in kube-system.
func inSystem(o client.Object, name string) check {
	return live(func(ctx context.Context, c client.Client, _ *host.Host) (bool, error) {
		return true, c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, o)
	})
}

// HealthAgent is the agent of compute nodes that reads the addresses of the control-plane nodes once, when it starts. While etcd is away for some
// seconds and none of them answers a ping, it stops the servers of its node: Cloudpods, pkg/hostman/host_health/health_manager.go.
const HealthAgent = "host-health"

// labelMaster is the label that kubeadm before 1.24 also put on control-plane nodes. Region finds them by it (GET /hosts/k8s-master-node-ips), and
// HealthAgent does not start without their addresses.
const labelMaster = "node-role.kubernetes.io/master"

func labelMasterNode(ctx context.Context, h *host.Host, _ workflow.Reporter) error {
	c, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	return LabelControlPlane(ctx, c, h.Config.Node.Name)
}

// LabelControlPlane sets the labels of a control-plane node on a Node: kubeadm's and labelMaster. A kubelet may not set such labels itself.
func LabelControlPlane(ctx context.Context, c client.Client, name string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"",%q:"",%q:""}}}`, constants.LabelNodeRoleControlPlane, constants.LabelExcludeFromExternalLB, labelMaster)
	if err := c.Patch(ctx, n, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("labelling node %s: %w", name, err)
	}
	return nil
}

func controlPlaneMarked(ctx context.Context, c client.Client, h *host.Host) (bool, error) {
	var n corev1.Node
	if err := c.Get(ctx, client.ObjectKey{Name: h.Config.Node.Name}, &n); err != nil {
		return false, err
	}
	_, labelled := n.Labels[constants.LabelNodeRoleControlPlane]
	for _, t := range n.Spec.Taints {
		if t.Key == constants.LabelNodeRoleControlPlane {
			return false, nil
		}
	}
	_, master := n.Labels[labelMaster]
	return labelled && master, nil
}

// bootstrapTokenDone reports whether nodes can join: the public cluster information exists, and so does a valid token, which is the user's if one was chosen.
func bootstrapTokenDone(ctx context.Context, c client.Client, h *host.Host) (bool, error) {
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: "cluster-info"}, &corev1.ConfigMap{}); err != nil {
		return false, err
	}
	tokens, err := ListTokens(ctx, c)
	if err != nil {
		return false, err
	}
	now := time.Now()
	return slices.ContainsFunc(tokens, func(t Token) bool {
		return t.Joins(now) && (h.Config.Cluster.Token == "" || h.Config.Cluster.Token == t.String())
	}), nil
}

// SuperAdminKubeconfig bypasses authorization; kubeadm keeps it for repairs.
const SuperAdminKubeconfig = kubernetesDir + "/super-admin.conf"

// administratorPhase grants the group in admin.conf its permissions. kubeadm does that in whichever phase first contacts the API server; as a separate step, it lets
// everything else start as soon as it is done.
func administratorPhase() host.Phase {
	return host.Phase{
		Name: "administrator", Short: "Grant the administrator's kubeconfig its permissions", After: []string{apiServerReady},
		Check: live(func(ctx context.Context, c client.Client, _ *host.Host) (bool, error) {
			return true, c.Get(ctx, client.ObjectKey{Name: constants.ClusterAdminsGroupAndClusterRoleBinding}, &rbacv1.ClusterRoleBinding{})
		}),
		Plan: workflow.Says[*host.Host]("create ClusterRoleBinding " + constants.ClusterAdminsGroupAndClusterRoleBinding),
		Run:  bindAdministrators,
	}
}

func bindAdministrators(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	c, err := clientOf(h, SuperAdminKubeconfig, "")
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
