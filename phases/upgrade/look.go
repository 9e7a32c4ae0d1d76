// SPDX-License-Identifier: Apache-2.0

// Package upgrade upgrades the nodes of a cluster to another version of Kubernetes, one node at a time: the first control-plane node, then the
// others, then the workers. It plans (present state, steps, obstacles) and upgrades the machine that it runs on.
package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Inventory describes what a cluster runs.
type Inventory struct {
	// Version is the version in kubeadm's configuration: it changes with the first control-plane node.
	Version string  `json:"version"`
	Nodes   []Node  `json:"nodes"`
	Addons  []Addon `json:"addons"`
	// Deprecated lists requests to API versions that a later Kubernetes no longer serves.
	Deprecated []Deprecated `json:"deprecatedAPIs,omitempty"`
}

// Node describes what a node runs.
type Node struct {
	Name         string `json:"name"`
	ControlPlane bool   `json:"controlPlane"`
	Ready        bool   `json:"ready"`
	// Here is set for the machine that the command runs on.
	Here    bool   `json:"here,omitempty"`
	Kubelet string `json:"kubelet"`
	// Runtime is, for example, "containerd://2.4.2".
	Runtime string `json:"runtime"`
	// StaticPods holds the image versions of the control plane, by name.
	StaticPods map[string]string `json:"staticPods,omitempty"`
	// Pods counts the running pods that a drain would move.
	Pods int `json:"pods"`
}

// Role returns the node's role for people.
func (n Node) Role() string {
	if n.ControlPlane {
		return "control plane"
	}
	return "worker"
}

// Addon is a component that runs beside the nodes.
type Addon struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Image   string `json:"image"`
}

// Deprecated is a deprecated API version that a client has used since the API server started.
type Deprecated struct {
	// API is GROUP/VERSION RESOURCE; Removed is the minor version of Kubernetes that no longer serves it: "1.37".
	API     string `json:"api"`
	Removed string `json:"removedIn"`
}

const (
	proxyName = "kube-proxy"
	dnsName   = "coredns"
)

// networks lists pod networks, by the names of their DaemonSets.
var networks = []string{"kube-flannel-ds", "calico-node", "cilium", "kube-ovn-cni", "kube-router"}

// Look reads what the cluster runs. It needs the permissions of an administrator.
func Look(ctx context.Context, k client.Client, server *rest.Config, here string) (Inventory, error) {
	var out Inventory
	var err error
	if out.Version, err = kubernetes.ClusterVersion(ctx, k); err != nil {
		return out, err
	}
	var nodes corev1.NodeList
	if err := k.List(ctx, &nodes); err != nil {
		return out, fmt.Errorf("listing nodes: %w", err)
	}
	var pods corev1.PodList
	if err := k.List(ctx, &pods); err != nil {
		return out, fmt.Errorf("listing pods: %w", err)
	}
	out.Nodes = lists.Map(nodes.Items, func(n corev1.Node) Node { return nodeOf(n, pods.Items, here) })
	slices.SortFunc(out.Nodes, func(a, b Node) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Name, b.Name))
	})
	if out.Addons, err = addonsOf(ctx, k); err != nil {
		return out, err
	}
	out.Deprecated = deprecated(ctx, server)
	return out, nil
}

// rank orders nodes as they are upgraded: this control-plane node, the others, workers.
func rank(n Node) int {
	switch {
	case n.ControlPlane && n.Here:
		return 0
	case n.ControlPlane:
		return 1
	}
	return 2
}

func nodeOf(n corev1.Node, pods []corev1.Pod, here string) Node {
	_, control := n.Labels[v1alpha1.LabelControlPlane]
	out := Node{Name: n.Name, ControlPlane: control, Ready: kube.NodeReady(&n), Here: n.Name == here, Kubelet: n.Status.NodeInfo.KubeletVersion,
		Runtime: n.Status.NodeInfo.ContainerRuntimeVersion}
	for _, p := range pods {
		if p.Spec.NodeName != n.Name || len(p.Spec.Containers) == 0 {
			continue
		}
		if p.Labels["tier"] == "control-plane" && p.Namespace == metav1.NamespaceSystem && p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
			if out.StaticPods == nil {
				out.StaticPods = map[string]string{}
			}
			out.StaticPods[p.Labels["component"]] = kubernetes.Tag(p.Spec.Containers[0].Image)
		}
		if p.Status.Phase == corev1.PodRunning && kube.Evictable(&p) {
			out.Pods++
		}
	}
	return out
}

func addonsOf(ctx context.Context, k client.Client) (out []Addon, _ error) {
	add := func(name string, t corev1.PodTemplateSpec) {
		if len(t.Spec.Containers) > 0 {
			image := t.Spec.Containers[0].Image
			out = append(out, Addon{Name: name, Version: kubernetes.Tag(image), Image: image})
		}
	}
	var dns appsv1.Deployment
	if _, err := kube.Find(ctx, k, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: dnsName}, &dns, "CoreDNS"); err != nil {
		return nil, err
	}
	add(dnsName, dns.Spec.Template)
	var daemons appsv1.DaemonSetList
	if err := k.List(ctx, &daemons); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("listing DaemonSets: %w", err)
	}
	for _, d := range daemons.Items {
		if d.Namespace == metav1.NamespaceSystem && d.Name == proxyName || slices.Contains(networks, d.Name) {
			add(d.Name, d.Spec.Template)
		}
	}
	return out, nil
}

// deprecatedMetric is set by the API server for each API version that was used and that a later release does not serve.
const deprecatedMetric = "apiserver_requested_deprecated_apis{"

// deprecated asks one API server which deprecated APIs were used there. The request is cheap, and errors are ignored.
func deprecated(ctx context.Context, server *rest.Config) []Deprecated {
	d, err := discovery.NewDiscoveryClientForConfig(server)
	if err != nil {
		return nil
	}
	raw, err := d.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil
	}
	return deprecatedIn(string(raw))
}

func deprecatedIn(metrics string) (out []Deprecated) {
	for line := range strings.Lines(metrics) {
		labels, ok := strings.CutPrefix(line, deprecatedMetric)
		if !ok || !strings.HasSuffix(strings.TrimSpace(line), " 1") {
			continue
		}
		labels, _, _ = strings.Cut(labels, "}")
		of := map[string]string{}
		for pair := range strings.SplitSeq(labels, ",") {
			name, value, _ := strings.Cut(pair, "=")
			of[name] = strings.Trim(value, `"`)
		}
		if of["removed_release"] != "" {
			out = append(out, Deprecated{API: strings.TrimPrefix(of["group"]+"/"+of["version"], "/") + " " + of["resource"], Removed: of["removed_release"]})
		}
	}
	slices.SortFunc(out, func(a, b Deprecated) int { return cmp.Compare(a.API, b.API) })
	return slices.Compact(out)
}
