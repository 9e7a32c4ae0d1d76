// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// TestOptionalComponentsComeAndGo enables and disables the backup, a CronJob, and the console with its Ingress.
func TestOptionalComponentsComeAndGo(t *testing.T) {
	e := installed(t, env.Options{}, append([]string{"backup"}, env.Small...)...)
	e.Edit(`{"spec":{"profile":"ha","backup":{"disable":false},"web":{"disable":true}}}`)
	e.UntilThere(&batchv1.CronJob{}, "default-backup")
	e.UntilThere(&policyv1.PodDisruptionBudget{}, "default-keystone")
	e.UntilGone(&networkingv1.Ingress{}, "default-web")
	e.UntilReady()
	e.Edit(`{"spec":{"profile":"small","backup":{"disable":true},"web":{"disable":false}}}`)
	e.UntilGone(&batchv1.CronJob{}, "default-backup")
	e.UntilGone(&policyv1.PodDisruptionBudget{}, "default-keystone")
	e.UntilThere(&networkingv1.Ingress{}, "default-web")
	e.UntilReady()
}

// seldom reports whether a permission is not used in normal operation; TestRareRights uses it. This API server streams lists with a watch;
// passwords are updated if a release adds some; an admission plugin requires the finalizers; a bare pod belongs to the earlier operator's etcd or to
// a rehearsal (TestRehearsal); a definition is updated if it is outdated.
func seldom(right string) bool {
	return strings.HasPrefix(right, "list ") || right == "patch apiextensions.k8s.io/customresourcedefinitions" || right == "update secrets" || right == "delete pods" ||
		right == finalizers
}

// series is used if one reconcile reports two events of one kind about a cloud. An adoption may do that; a normal reconcile need not.
const series = "patch events.k8s.io/events"

const finalizers = "update onecloud.yunion.io/onecloudclusters/finalizers"

// TestOperatorUsesExactlyItsRights makes the operator do everything that it does in the normal life of a cloud, and compares the permissions used
// with those granted, both ways.
func TestOperatorUsesExactlyItsRights(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	from := e.Mark()
	cr := e.Minimal()
	cr.Spec.DeletionPolicy = v1alpha1.Delete
	cr.Annotations = map[string]string{v1alpha1.AnnotationDeleteBackups: "true"}
	e.Install(cr)
	e.Edit(`{"spec":{"backup":{"disable":false},"version":"v4.0.5","profile":"ha"}}`)
	e.UntilReady()
	e.Edit(`{"spec":{"backup":{"disable":true},"web":{"disable":true},"glance":{"disable":true},"etcd":{"disable":true},"telegraf":{"disable":true}}}`)
	e.UntilGone(&networkingv1.Ingress{}, "default-web")
	e.UntilReady()
	e.manyOperations()
	e.EditObject(e.CloudAt("", 0), cloud, `{"metadata":{"annotations":{"onecloud.yunion.io/operation":"Check"}}}`)
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && cr.Annotations[v1alpha1.AnnotationOperation] == ""
	})
	e.Delete()
	e.StopOperator()
	requests := e.Requests(from, harness.Filter{User: env.OperatorUser, Watches: true, Leases: true})
	used := e.Used(requests)
	granted := e.Granted()
	for _, u := range slices.Sorted(maps.Keys(used)) {
		if !granted[u] {
			e.Errorf("used and not granted by its Roles: %s (%s)", u, used[u])
		}
	}
	for _, g := range slices.Sorted(maps.Keys(granted)) {
		if used[g] == "" && !seldom(g) && g != series && !env.NotOfClouds(g) {
			e.Errorf("granted and never used: %s", g)
		}
	}
	if len(used) < 40 {
		e.Errorf("only %d permissions were used: is the audit log whole?", len(used))
	}
}

// TestRareRights runs the operator where it needs the permissions that it does not need elsewhere: with a deleted namespace, on an API server that
// does not stream lists and checks who may set an owner reference that blocks deletion, and with a Secret that lacks some passwords. There is no
// database: the cloud gets only its first objects.
func TestRareRights(t *testing.T) {
	e := newCloudTest(t, env.Options{APIServer: []string{
		"--feature-gates=WatchList=false", "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
	}})
	from := e.Mark()
	e.ageDefinition("")
	cr := e.CloudAt("127.0.0.1", 1)
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud}
	some := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-credentials", Labels: labels},
		Data: map[string][]byte{"keystone.database-password": []byte("from-before")}}
	for _, o := range []client.Object{some, cr} {
		require.NoError(t, e.Client.Create(t.Context(), o))
	}
	etcd := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default-etcd-abcdefghij", Labels: maps.Clone(labels)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Image: "etcd"}}}}
	etcd.Labels[v1alpha1.LabelComponent] = "etcd"
	require.NoError(t, controllerutil.SetControllerReference(cr, etcd, e.Client.Scheme()))
	e.Create(etcd)
	e.StartOperator(func(l *env.Launch) { l.Options.Namespaces = []string{"gone", namespace} }) // nothing granted it permissions in the first
	e.UntilThere(&corev1.ConfigMap{}, "default-region")
	e.UntilGone(&corev1.Pod{}, etcd.Name)
	if pw := string(e.Credentials()["keystone.database-password"]); pw != "from-before" {
		t.Errorf("a password that was there is now %q", pw)
	}
	e.StopOperator()
	requests := e.Requests(from, harness.Filter{User: env.OperatorUser, Watches: true, Leases: true})
	used := e.Used(requests)
	for g := range e.Granted() {
		if seldom(g) && g != finalizers && used[g] == "" && !env.NotOfClouds(g) {
			t.Errorf("not used here either: %s", g)
		}
	}
	// Without that permission the plugin rejects objects with an owner.
	roles := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "onecloud-operator"}}
	e.Get(roles, roles.Name)
	roles.Rules = slices.DeleteFunc(roles.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "onecloudclusters/finalizers")
	})
	require.NoError(t, e.Client.Update(t.Context(), roles))
	as, err := kube.New(e.Cluster.ServiceAccount(namespace, "onecloud-operator"))
	require.NoError(t, err)
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owned", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cr.Name, UID: cr.UID, BlockOwnerDeletion: new(true),
	}}}}
	if err := as.Create(t.Context(), owned); !apierrors.IsForbidden(err) {
		t.Errorf("the plugin does not ask for %s: %v", finalizers, err)
	}
}
