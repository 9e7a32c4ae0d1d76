// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Once returns what would be lost with one node in a cluster of several control-plane nodes, one line each, with the command that changes it.
func Once(ctx context.Context, k client.Client) ([]string, error) {
	nodes, err := kubernetes.ControlPlanes(ctx, k)
	if err != nil || len(nodes) < 2 {
		return nil, err
	}
	d, err := readDNS(ctx, k)
	if err != nil {
		return nil, err
	}
	out := d.once()
	o, err := readOperator(ctx, k)
	if err != nil {
		return nil, err
	}
	out = append(out, o.operatorOnce()...)
	clouds, err := cluster.All(ctx, k)
	if err != nil {
		return nil, err
	}
	for i := range clouds {
		line, err := database(ctx, k, &clouds[i])
		if err != nil {
			return nil, err
		}
		for _, l := range append(line, profile(&clouds[i])...) {
			out = append(out, strings.TrimSpace(l)) // empty flags leave a trailing space
		}
	}
	return out, nil
}

// once returns a line if all pods of CoreDNS run on one node.
func (d copies) once() []string {
	switch {
	case !d.onOneNode():
		return nil
	case d.replicas < 2:
		return []string{"CoreDNS runs on one node, " + d.node() + ", in one pod: kubectl -n kube-system scale deployment coredns --replicas=2"}
	}
	return []string{"CoreDNS runs on one node, " + d.node() + ": kubectl -n kube-system delete pod " + d.pods[0].Name}
}

// database returns a line if a cloud's embedded database does not survive the loss of a node.
func database(ctx context.Context, k client.Reader, cloud *v1alpha1.OnecloudCluster) ([]string, error) {
	if !dbpair.Embedded(cloud.Spec.MySQL.Host) {
		return nil, nil
	}
	s, err := cluster.EmbeddedDatabase(ctx, k, cloud.Namespace)
	switch {
	case len(finding.Of(err)) > 0: // without one: ocadm why reports it
		return nil, nil
	case err != nil:
		return nil, err
	}
	in := flag("-n ", cloud.Namespace, cluster.DefaultNamespace)
	switch {
	case s.Record == nil:
		return []string{fmt.Sprintf("database of cloud %s: one copy, on %s: ocadm cluster database add-replica %s", cloud.Name, cmp.Or(s.Servers[0].Node, "no node yet"), in)}, nil
	case !s.Redundant:
		return []string{fmt.Sprintf("database of cloud %s: %s: ocadm cluster database status %s", cloud.Name, s.Message, in)}, nil
	}
	return nil, nil
}

// profile returns a line if the services of a cloud run only once. It is pure.
func profile(cloud *v1alpha1.OnecloudCluster) []string {
	of := strings.TrimSpace(flag("--name ", cloud.Name, cluster.DefaultName) + flag(" -n ", cloud.Namespace, cluster.DefaultNamespace))
	if p := cloud.Spec.Profile; p != "ha" {
		return []string{fmt.Sprintf("cloud %s has profile small: its services run once: ocadm cluster update --profile ha --wait %s", cloud.Name, of)}
	}
	if c := meta.FindStatusCondition(cloud.Status.Conditions, v1alpha1.ConditionHighlyAvailable); c != nil && c.Status == metav1.ConditionFalse {
		return []string{fmt.Sprintf("cloud %s: %s: ocadm cluster status %s", cloud.Name, c.Message, of)}
	}
	return nil
}

// flag returns a flag of a command, or "" if the value is the default.
func flag(name, value, byDefault string) string {
	if value == byDefault {
		return ""
	}
	return name + value
}

// Runs describes what of a cluster and its clouds runs only on the given node.
func Runs(ctx context.Context, k client.Reader, node string) ([]string, error) {
	d, err := readDNS(ctx, k)
	if err != nil {
		return nil, err
	}
	var out []string
	if d.ours && d.node() == node {
		out = append(out, "all pods of CoreDNS")
	}
	o, err := readOperator(ctx, k)
	if err != nil {
		return nil, err
	}
	if o.ours && o.node() == node {
		out = append(out, "the operator")
	}
	clouds, err := cluster.All(ctx, k)
	if err != nil {
		return nil, err
	}
	for i := range clouds {
		cloud := &clouds[i]
		if dbpair.Embedded(cloud.Spec.MySQL.Host) {
			s, err := cluster.EmbeddedDatabase(ctx, k, cloud.Namespace)
			if err != nil && len(finding.Of(err)) == 0 {
				return nil, err
			}
			out = append(out, server(s, cloud.Name, node)...)
		}
		var pods corev1.PodList
		ours := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy} // its instance label may be that of an earlier operator
		if err := k.List(ctx, &pods, client.InNamespace(cloud.Namespace), ours); err != nil {
			return nil, fmt.Errorf("listing the pods of cloud %s: %w", cloud.Name, err)
		}
		if names := only(pods.Items, node); len(names) > 0 {
			out = append(out, fmt.Sprintf("of cloud %s: %s", cloud.Name, strings.Join(names, ", ")))
		}
	}
	return out, nil
}

// server describes the database server of a cloud on a node, if its loss would be noticed.
func server(s cluster.DatabaseStatus, cloud, node string) []string {
	for _, m := range s.Servers {
		switch {
		case m.Node != node || m.Role != dbpair.RolePrimary:
		case len(s.Servers) == 1:
			return []string{"the only copy of the database of cloud " + cloud}
		default:
			return []string{"the primary of the database of cloud " + cloud}
		}
	}
	return nil
}

// only returns the components whose ready pods all run on a node. Pods of DaemonSets do not count, because they belong to their nodes. It is pure.
func only(pods []corev1.Pod, node string) []string {
	here, elsewhere := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		name := p.Labels[v1alpha1.LabelComponent]
		owner := metav1.GetControllerOf(&p)
		switch {
		case name == "" || !kube.PodReady(&p) || owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Job"):
		case p.Spec.NodeName == node:
			here[name] = true
		default:
			elsewhere[name] = true
		}
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(here)), func(name string) bool { return elsewhere[name] })
}
