// SPDX-License-Identifier: Apache-2.0

// Package spread keeps a cluster from depending on one node: when a control-plane node joins, it moves a pod of the cluster's DNS and adds a replica
// of the operator. It also reports what else would be lost with a node.
package spread

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const dnsName = "coredns"

// dnsLabels returns the selector of kubeadm's CoreDNS. Other installers add labels.
func dnsLabels() map[string]string { return map[string]string{"k8s-app": "kube-dns"} }

// copies holds the pods of a Deployment that should not share a node, and the nodes that they can run on.
type copies struct {
	// ours is false if the Deployment does not exist or belongs to another installer.
	ours bool
	// replicas is the wanted number of pods; pods holds the existing ones that are not being deleted, by name.
	replicas int32
	pods     []corev1.Pod
	nodes    []corev1.Node
}

// readDNS reads the copies of CoreDNS.
func readDNS(ctx context.Context, k client.Reader) (copies, error) {
	return read(ctx, k, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: dnsName}, dnsLabels())
}

// read returns the copies of a Deployment. It is ours if its selector is exactly these labels, and nothing else manages it.
func read(ctx context.Context, k client.Reader, key client.ObjectKey, selector map[string]string) (copies, error) {
	var d appsv1.Deployment
	found, err := kube.Find(ctx, k, key, &d, "Deployment "+key.Name)
	if !found {
		return copies{}, err
	}
	out := copies{replicas: ptr.Deref(d.Spec.Replicas, 1)}
	out.ours = d.Spec.Selector != nil && len(d.Spec.Selector.MatchExpressions) == 0 && maps.Equal(d.Spec.Selector.MatchLabels, selector) &&
		len(d.OwnerReferences) == 0 && d.Labels[v1alpha1.LabelManagedBy] == ""
	if !out.ours {
		return out, nil
	}
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(selector)); err != nil {
		return copies{}, fmt.Errorf("listing the pods of Deployment %s: %w", key.Name, err)
	}
	out.pods = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || kube.PodEnded(&p)
	})
	slices.SortFunc(out.pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	if out.nodes, err = kubernetes.ControlPlanes(ctx, k); err != nil {
		return copies{}, err
	}
	return out, nil
}

// node returns the node that all pods run on, "" if they do not share one.
func (d copies) node() string {
	name := ""
	for _, p := range d.pods {
		if p.Spec.NodeName == "" || name != "" && name != p.Spec.NodeName {
			return ""
		}
		name = p.Spec.NodeName
	}
	return name
}

// others returns the control-plane nodes other than that one to which a pod may move once they are Ready.
func (d copies) others() []corev1.Node {
	return slices.DeleteFunc(slices.Clone(d.nodes), func(n corev1.Node) bool { return n.Name == d.node() || !takesPods(n) })
}

// takesPods reports whether a node accepts pods, or will once it is Ready.
func takesPods(n corev1.Node) bool {
	return n.DeletionTimestamp == nil && !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		keeps := t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		passes := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeNetworkUnavailable
		return keeps && !passes && t.Key != v1alpha1.LabelControlPlane // tolerated by CoreDNS and the operator
	})
}

// onOneNode reports whether all pods share a node, and another one could take some.
func (d copies) onOneNode() bool { return d.ours && d.node() != "" && len(d.others()) > 0 }

// done reports whether there is nothing to spread.
func (d copies) done() bool {
	switch {
	case !d.ours || d.replicas < 2:
		return true
	case d.node() == "" && len(d.pods) > 0: // a pod that is not scheduled yet may still join the others on their node
		return !slices.ContainsFunc(d.pods, func(p corev1.Pod) bool { return p.Spec.NodeName == "" })
	}
	return len(d.pods) > 0 && len(d.others()) == 0
}

// unready returns why not all pods answer, "" if they do.
func (d copies) unready() string {
	for _, p := range d.pods {
		if !kube.PodReady(&p) {
			return "pod " + p.Name + " is not ready"
		}
	}
	if len(d.pods) < int(d.replicas) {
		return fmt.Sprintf("%d of %d pods exist", len(d.pods), d.replicas)
	}
	return ""
}

// next returns the pod to move now, or why no pod can move: one may be evicted only while the others answer.
func (d copies) next() (pod *corev1.Pod, why string) {
	if why := d.unready(); why != "" {
		return nil, why
	}
	others := d.others()
	if !slices.ContainsFunc(others, func(n corev1.Node) bool { return kube.NodeReady(&n) }) {
		return nil, "node " + others[0].Name + " is not Ready"
	}
	return &d.pods[0], ""
}
