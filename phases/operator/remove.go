// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/addons"
)

// Removal lists the objects to remove from a cluster, in order, and those that stay, one line each.
type Removal struct {
	Delete []*unstructured.Unstructured
	// Nodes lists the nodes that lose the role an installation gave them.
	Nodes []string
	Keep  []string
}

// leaseName is the lease of the operator's leader election.
const leaseName = "ocadm-operator"

// PlanRemoval finds what an installation created and still exists. The embedded database's data and the clouds' settings are removed only if data is
// set. It returns a finding if the cluster has a cloud, or an operator that another tool installed.
func PlanRemoval(ctx context.Context, c client.Client, data bool) (Removal, error) {
	var r Removal
	if err := removable(ctx, c); err != nil {
		return r, err
	}
	namespaces, err := managed(ctx, c)
	if err != nil {
		return r, err
	}
	made, kept, err := candidates(namespaces)
	if err != nil {
		return r, err
	}
	if made, err = addons.Present(ctx, c, made); err != nil {
		return r, err
	}
	for _, o := range made {
		if manager := others(o); manager != "" {
			r.Keep = append(r.Keep, lines([]*unstructured.Unstructured{o})[0]+" (created by "+manager+")")
			continue
		}
		r.Delete = append(r.Delete, o)
	}
	kept, err = addons.Present(ctx, c, kept)
	if err != nil {
		return r, err
	}
	if data {
		r.Delete = append(r.Delete, kept...)
	} else {
		r.Keep = append(r.Keep, lines(kept)...)
	}
	if r.Nodes, err = markedNodes(ctx, c); err != nil {
		return r, err
	}
	return r, r.namespaces(ctx, c, namespaces, data)
}

// removable returns a finding if a cloud exists, or if another tool installed the operator.
func removable(ctx context.Context, c client.Client) error {
	const what = "The operator cannot be removed"
	clouds, err := cluster.All(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if len(clouds) > 0 {
		one := clouds[0]
		return finding.New("OCA-7035", what, "the cluster has "+lists.Counted(len(clouds), "cloud")+", which only the operator can delete",
			"ocadm cluster delete --namespace "+one.Namespace+" --name "+one.Name).
			With(lists.Map(clouds, func(cloud v1alpha1.OnecloudCluster) string { return cloud.Namespace + "/" + cloud.Name })...)
	}
	d, err := installed(ctx, c)
	if d == nil || err != nil {
		return err
	}
	if d.Labels[v1alpha1.LabelManagedBy] == "Helm" {
		return finding.New("OCA-7036", what, "Helm installed it", "helm -n "+Namespace+" uninstall "+d.Annotations["meta.helm.sh/release-name"])
	}
	if !slices.ContainsFunc(d.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == kube.FieldManager }) {
		return finding.New("OCA-7036", what, "ocadm did not install Deployment "+Namespace+"/"+Name,
			"delete it with the tool that installed it, for example: ocadm operator manifests | kubectl delete -f -")
	}
	return nil
}

// managed returns the namespaces in which the operator has permissions. The Deployment that lists them may already be gone.
func managed(ctx context.Context, c client.Client) ([]string, error) {
	var list rbacv1.RoleBindingList
	if err := c.List(ctx, &list, client.MatchingFields{"metadata.name": Name}); err != nil {
		return nil, fmt.Errorf("listing the permissions of the operator: %w", err)
	}
	out := lists.Map(list.Items, func(b rbacv1.RoleBinding) string { return b.Namespace })
	return all(out), nil
}

// candidates returns all objects that an installation may have created, except namespaces: workloads first, the definition last. kept are those that hold data.
func candidates(namespaces []string) (made, kept []*unstructured.Unstructured, err error) {
	objs, err := Objects("none", namespaces...)
	if err != nil {
		return nil, nil, err
	}
	objs = slices.DeleteFunc(objs, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
	for _, ns := range namespaces {
		database, data, err := addons.EmbeddedDatabase(ns)
		if err != nil {
			return nil, nil, err
		}
		objs = append(objs, slices.DeleteFunc(database, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })...)
		objs = append(objs, object("v1", "Secret", ns, cluster.PullSecret))
		kept = append(kept, data...)
		kept = append(kept, object("v1", "ConfigMap", ns, cluster.SettingsName), object("v1", "Secret", ns, cluster.DatabaseSecret))
	}
	objs = append(objs, object("coordination.k8s.io/v1", "Lease", Namespace, leaseName))
	rank := func(o *unstructured.Unstructured) int {
		return map[string]int{"Deployment": -2, "StatefulSet": -1, "CustomResourceDefinition": 1}[o.GetKind()]
	}
	slices.SortStableFunc(objs, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objs, kept, nil
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// others returns the creator of an object if it is neither the installer nor the operator; "" if unknown.
func others(o *unstructured.Unstructured) string {
	managers := lists.Map(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) string { return m.Manager })
	if len(managers) == 0 || slices.ContainsFunc(managers, func(m string) bool { return strings.HasPrefix(m, kube.FieldManager) }) {
		return ""
	}
	return managers[0]
}

func markedNodes(ctx context.Context, c client.Client) ([]string, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return lists.Pick(nodes.Items, func(n corev1.Node) (string, bool) { return n.Name, n.Annotations[cluster.AnnotationInstalled] != "" }), nil
}

// namespaces adds the namespaces that the installation created. Without data, a namespace that holds anything else stays.
func (r *Removal) namespaces(ctx context.Context, c client.Client, names []string, data bool) error {
	for _, name := range names {
		found, err := addons.Present(ctx, c, []*unstructured.Unstructured{object("v1", "Namespace", "", name)})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		if found[0].GetAnnotations()[cluster.AnnotationInstalled] == "" {
			r.Keep = append(r.Keep, "Namespace "+name+" (operator install did not create it)")
			continue
		}
		rest, err := r.rest(ctx, c, name)
		if err != nil {
			return err
		}
		if len(rest) > 0 && !data {
			r.Keep = append(append(r.Keep, "Namespace "+name), rest...)
			continue
		}
		r.Delete = append(r.Delete, found[0])
	}
	slices.Sort(r.Keep)
	r.Keep = slices.Compact(r.Keep)
	return nil
}

// lasting returns the kinds of objects for which a namespace is kept.
func lasting() map[string][]string {
	return map[string][]string{
		"v1":                   {"ConfigMap", "PersistentVolumeClaim", "Pod", "Secret", "Service"},
		"apps/v1":              {"DaemonSet", "Deployment", "StatefulSet"},
		"batch/v1":             {"CronJob", "Job"},
		"networking.k8s.io/v1": {"Ingress"},
	}
}

// rest returns the objects in a namespace that are not deleted.
func (r *Removal) rest(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	going := map[string]bool{"ConfigMap " + namespace + "/kube-root-ca.crt": true} // every namespace has it
	for _, line := range lines(r.Delete) {
		going[line] = true
	}
	var out []string
	for _, version := range slices.Sorted(maps.Keys(lasting())) {
		for _, kind := range lasting()[version] {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind+"List"))
			if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return nil, fmt.Errorf("listing objects of kind %s in namespace %q: %w", kind, namespace, err)
			}
			for i := range list.Items {
				line := kind + " " + namespace + "/" + list.Items[i].Name
				if owners := list.Items[i].OwnerReferences; !going[line] && len(owners) == 0 { // an object with an owner is deleted with it
					out = append(out, line)
				}
			}
		}
	}
	return out, nil
}

func lines(objs []*unstructured.Unstructured) []string {
	return lists.Map(objs, func(o *unstructured.Unstructured) string { return strings.TrimPrefix(change(o).Planned(), "delete ") })
}

func change(o *unstructured.Unstructured) kube.Change {
	return kube.Change{Action: kube.Deleted, Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Changes returns the changes that Apply makes.
func (r Removal) Changes() kube.ChangeSet {
	nodes := lists.Map(r.Nodes, func(n string) kube.Change { return kube.Change{Action: kube.Configured, Kind: "Node", Name: n} })
	return append(lists.Map(r.Delete, change), nodes...)
}

// Apply deletes the objects one by one and waits for each to disappear, so that the operator has stopped before its permissions go. It returns the
// changes made, even with an error; a repeated removal continues.
func (r Removal) Apply(ctx context.Context, c client.WithWatch, report func(what, why string)) (kube.ChangeSet, error) {
	var set kube.ChangeSet
	for _, o := range r.Delete {
		err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			return set, fmt.Errorf("deleting %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
		what := lines([]*unstructured.Unstructured{o})[0]
		wait := func(why string) { report(what, why) }
		if err := kube.WaitGone(ctx, c, o, func(client.Object) string { return "it is being deleted" }, wait); err != nil {
			return set, err
		}
		set = append(set, change(o))
	}
	for _, n := range r.Nodes {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null}}}`,
			v1alpha1.NodeRolePrefix+cluster.RoleController, cluster.AnnotationInstalled)
		node := object("v1", "Node", "", n)
		err := c.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(kube.FieldManager))
		if client.IgnoreNotFound(err) != nil {
			return set, fmt.Errorf("removing the role of node %q: %w", n, err)
		}
		set = append(set, kube.Change{Action: kube.Configured, Kind: "Node", Name: n})
	}
	return set, nil
}
