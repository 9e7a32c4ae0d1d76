// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/integration/harness"
)

// optional: the backup, a CronJob, comes and goes, and so does the console with its Ingress.
func (r *rig) optional() {
	r.edit(r.minimal(), `{"spec":{"backup":{"disable":false},"web":{"disable":true}}}`)
	r.until(&batchv1.CronJob{}, "default-backup", func(o client.Object) (bool, string) { return o != nil, "there is none" })
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	r.gone(ctx, &networkingv1.Ingress{}, "default-web")
	r.untilReady()
	r.edit(r.minimal(), `{"spec":{"backup":{"disable":true},"web":{"disable":false}}}`)
	r.gone(ctx, &batchv1.CronJob{}, "default-backup")
	r.until(&networkingv1.Ingress{}, "default-web", func(o client.Object) (bool, string) { return o != nil, "there is none" })
	r.untilReady()
}

// seldom tells whether a right is not used in an ordinary life; TestSeldomRights uses it. What is listed at once elsewhere is streamed by
// a watch of this API server; passwords are updated when a release adds some; the finalizers are asked for by an admission plugin; a bare
// pod is one of the earlier operator's etcd; a definition is updated when it is an earlier one.
func seldom(right string) bool {
	return strings.HasPrefix(right, "list ") || right == "patch apiextensions.k8s.io/customresourcedefinitions" || right == "update secrets" || right == "delete pods" || right == finalizers
}

// series is used where one pass tells two things of one kind about one state of a cloud: taking over a cloud may, an ordinary life need not.
const series = "patch events.k8s.io/events"

const finalizers = "update onecloud.yunion.io/onecloudclusters/finalizers"

// everybody are requests that Kubernetes allows every account (system:basic-user, system:discovery).
var everybody = []string{"create authorization.k8s.io/selfsubjectaccessreviews"}

// rights compares what the operator's account may do with what it did in its whole life, both ways.
func (r *rig) rights() {
	end, err := r.cluster.Mark(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	requests, err := r.cluster.Requests(0, end, harness.Filter{User: operatorUser, Watches: true, Leases: true})
	if err != nil {
		r.t.Fatal(err)
	}
	used := r.used(requests)
	granted := r.granted()
	for _, u := range slices.Sorted(maps.Keys(used)) {
		if !granted[u] {
			r.t.Errorf("used and not granted by its Roles: %s (%s)", u, used[u])
		}
	}
	for _, g := range slices.Sorted(maps.Keys(granted)) {
		if used[g] == "" && !seldom(g) && g != series {
			r.t.Errorf("granted and never used: %s", g)
		}
	}
	if len(used) < 40 {
		r.t.Errorf("only %d rights were used: is the audit log whole?", len(used))
	}
}

// used are the rights that requests took. One that was refused is a failure.
func (r *rig) used(requests []harness.Request) map[string]string {
	used := map[string]string{}
	for _, q := range requests {
		if q.Resource == "" || q.Code == 401 {
			continue // which kinds there are is for everybody to ask
		}
		if q.Code == 403 {
			r.t.Errorf("refused: %s", q)
		}
		used[right(q.Verb, q.Group, ofKind(q.Resource, q.Subresource))] = q.String()
		if q.Verb == "patch" && q.Code == 201 { // an apply that creates takes both
			used[right("create", q.Group, q.Resource)] = q.String()
		}
	}
	for _, e := range everybody {
		delete(used, e)
	}
	return used
}

// TestSeldomRights runs the operator where it takes the rights that it does not take elsewhere: with a namespace that was deleted, on an API server that does not stream
// lists and minds who may keep the owner of an object, and over a Secret of passwords that lacks some. There is no database: the cloud
// gets no further than its first objects.
func TestSeldomRights(t *testing.T) {
	r := &rig{t: t, whole: t.Context(), log: &harness.Log{}}
	r.cluster = harness.Require(t, harness.Options{APIServerArgs: []string{
		"--feature-gates=WatchList=false", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
	}})
	var err error
	if r.client, err = kube.New(r.cluster.Config(harness.Admin)); err != nil {
		t.Fatal(err)
	}
	r.apply("operator/deployment", "operator/rbac", "operator/namespace", "operator/crds")
	r.ageDefinition("")
	cr := r.cloudAt("127.0.0.1", 1)
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud}
	some := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-credentials", Labels: labels},
		Data: map[string][]byte{"keystone.database-password": []byte("from-before")}}
	for _, o := range []client.Object{some, cr} {
		if err := r.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	etcd := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-etcd-abcdefghij", Labels: maps.Clone(labels)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Image: "etcd"}}}}
	etcd.Labels[v1alpha1.LabelComponent] = "etcd"
	if err := controllerutil.SetControllerReference(cr, etcd, r.client.Scheme()); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}} // no pod is made without
	for _, o := range []client.Object{account, etcd} {
		if err := r.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	r.dial, r.namespaces = (&net.Dialer{}).DialContext, []string{"gone", namespace} // nobody gave it rights in the first
	r.startOperator()
	t.Cleanup(r.stopOperator)
	r.until(&corev1.ConfigMap{}, "default-region", func(o client.Object) (bool, string) { return o != nil, "there is none" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r.gone(ctx, &corev1.Pod{}, etcd.Name)
	if pw := string(r.credentials()["keystone.database-password"]); pw != "from-before" {
		t.Errorf("a password that was there is now %q", pw)
	}
	r.stopOperator()
	end, err := r.cluster.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	requests, err := r.cluster.Requests(0, end, harness.Filter{User: operatorUser, Watches: true, Leases: true})
	if err != nil {
		t.Fatal(err)
	}
	used := r.used(requests)
	for g := range r.granted() {
		if seldom(g) && g != finalizers && used[g] == "" {
			t.Errorf("not used here either: %s", g)
		}
	}
	// Without that right the plugin refuses what has an owner.
	roles := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "onecloud-operator"}}
	r.get(roles, roles.Name)
	roles.Rules = slices.DeleteFunc(roles.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "onecloudclusters/finalizers")
	})
	if err := r.client.Update(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
	as, err := kube.New(r.cluster.ServiceAccount(namespace, "onecloud-operator"))
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owned", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cr.Name, UID: cr.UID, BlockOwnerDeletion: new(true),
	}}}}
	if err := as.Create(t.Context(), owned); !apierrors.IsForbidden(err) {
		t.Errorf("the plugin does not ask for %s: %v", finalizers, err)
	}
}

func right(verb, group, resource string) string {
	return verb + " " + strings.TrimPrefix(group+"/"+resource, "/")
}

func ofKind(name, sub string) string {
	return strings.TrimSuffix(name+"/"+sub, "/")
}

// narrowEnough tells whether the operator may have a right in the whole cluster.
func narrowEnough(rule rbacv1.PolicyRule) bool {
	switch {
	case slices.Equal(rule.Resources, []string{"nodes"}):
		return slices.Equal(rule.Verbs, []string{"list", "watch"})
	case slices.Equal(rule.Resources, []string{"customresourcedefinitions"}):
		return slices.Equal(rule.Verbs, []string{"get", "patch"}) && slices.Equal(rule.ResourceNames, []string{"onecloudclusters.onecloud.yunion.io"})
	}
	return false
}

// granted are the rights that Roles give the operator. Those in the whole cluster must be narrowEnough.
func (r *rig) granted() map[string]bool {
	r.t.Helper()
	out := map[string]bool{}
	is := func(s rbacv1.Subject) bool { return s.Name == "onecloud-operator" }
	var wide rbacv1.ClusterRoleBindingList
	var narrow rbacv1.RoleBindingList
	if err := r.client.List(r.t.Context(), &wide); err != nil {
		r.t.Fatal(err)
	}
	add := func(rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						out[right(verb, group, resource)] = true
					}
				}
			}
		}
	}
	for _, b := range wide.Items {
		if !slices.ContainsFunc(b.Subjects, is) {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := r.client.Get(r.t.Context(), types.NamespacedName{Name: b.RoleRef.Name}, role); err != nil {
			r.t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if !narrowEnough(rule) {
				r.t.Errorf("%s gives the operator more in the whole cluster than to read nodes and update its definition: %v", b.RoleRef.Name, rule)
			}
		}
		add(role.Rules)
	}
	if err := r.client.List(r.t.Context(), &narrow); err != nil {
		r.t.Fatal(err)
	}
	for _, b := range narrow.Items {
		if !slices.ContainsFunc(b.Subjects, is) {
			continue
		}
		role := &rbacv1.Role{}
		if err := r.client.Get(r.t.Context(), types.NamespacedName{Namespace: b.Namespace, Name: b.RoleRef.Name}, role); err != nil {
			r.t.Fatal(err)
		}
		add(role.Rules)
	}
	return out
}
