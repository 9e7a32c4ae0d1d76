// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/integration/harness"
)

// objects of a cloud and the cloud itself, its pods included: each with its resource version.
func (k *neighbourhood) objects(x *tenant) map[string]string {
	k.t.Helper()
	all := map[string]string{}
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{},
		&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}, &networkingv1.IngressList{},
	} {
		if err := k.client.List(k.t.Context(), list, client.InNamespace(x.namespace),
			client.MatchingLabels{v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud}); err != nil {
			k.t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			all[fmt.Sprintf("%T/%s", o, m.GetName())] = m.GetResourceVersion()
			return err
		}); err != nil {
			k.t.Fatal(err)
		}
	}
	cr := x.cr.DeepCopy()
	if err := k.client.Get(k.t.Context(), client.ObjectKeyFromObject(cr), cr); err == nil {
		all["the cloud"] = cr.ResourceVersion
	} else if !apierrors.IsNotFound(err) {
		k.t.Fatal(err)
	}
	return all
}

// untilStill waits until the controllers of Kubernetes, too, have finished: nothing tells that nothing more will happen.
func (k *neighbourhood) untilStill(x *tenant) map[string]string {
	k.t.Helper()
	deadline := time.Now().Add(patience)
	last := k.objects(x)
	for calm := 0; calm < 10; {
		time.Sleep(100 * time.Millisecond)
		now := k.objects(x)
		if calm++; !maps.Equal(now, last) {
			calm = 0
		}
		if last = now; time.Now().After(deadline) {
			k.t.Fatal("the cloud does not come to rest")
		}
	}
	return last
}

// untilGone waits until the garbage collector has taken what a deleted cloud owned, and returns what it leaves.
func (k *neighbourhood) untilGone(x *tenant) []string {
	k.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		left := slices.Sorted(maps.Keys(k.objects(x)))
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// wroteNothing: since a mark the operator has asked for no change of anything in a namespace, but for its lease.
func (k *neighbourhood) wroteNothing(x *tenant, from harness.Mark) {
	k.t.Helper()
	to, err := k.cluster.Mark(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	all, err := k.cluster.Requests(from, to, harness.Filter{User: operatorUser})
	if err != nil {
		k.t.Fatal(err)
	}
	changes := 0
	for _, q := range all {
		if slices.Contains([]string{"get", "list", "watch"}, q.Verb) {
			continue
		}
		changes++
		// The recorder of events works in its own time, also when it tells of what was before; reviews of rights change nothing.
		if q.Namespace == x.namespace && q.Resource != "events" && q.Resource != "selfsubjectaccessreviews" {
			k.t.Errorf("it wrote to the other cloud: %s", q)
		}
	}
	if changes < 100 {
		k.t.Errorf("only %d changes are in the audit log, so nothing is shown", changes)
	}
}

// heals: what somebody breaks in a cloud is mended, by one request.
func (k *neighbourhood) heals(x *tenant) {
	k.t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: cloud + "-glance"}}
	if err := k.client.Get(k.t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		k.t.Fatal(err)
	}
	want := d.Spec.Template.Spec.Containers[0].Image
	writes, err := k.cluster.Count(k.t.Context(), harness.Filter{User: operatorUser}, func() error {
		patch := `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"example.com/other:v1"}]`
		if err := k.client.Patch(k.t.Context(), d, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(k.t.Context(), patience)
		defer cancel()
		return kube.WaitFor(ctx, k.client, d.DeepCopy(), func(o client.Object) (bool, string) {
			d, ok := o.(*appsv1.Deployment)
			return ok && d.Spec.Template.Spec.Containers[0].Image == want, "the image is not restored"
		}, func(string) {})
	})
	if err != nil {
		k.t.Fatal(err)
	}
	if got := (work{kubernetes: writes}).writes(); !slices.Equal(got, []string{"patch deployments/" + d.Name}) {
		k.t.Errorf("the operator healed by %q", got)
	}
}

// databases and accounts that somebody has made in the server of a cloud, sorted.
func (x *tenant) databases(t *testing.T) []string {
	t.Helper()
	admin, err := mysql.Open(t.Context(), mysql.Config{Host: x.db.Host, Port: x.db.Port, User: "root", Password: x.db.RootPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	all, err := admin.Databases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := admin.Accounts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accounts {
		if a.User != "root" && a.User != "mariadb.sys" {
			all = append(all, "account "+a.User+"@"+a.Host)
		}
	}
	slices.Sort(all)
	return all
}

// statements that change something and that the server of a cloud was told.
func (x *tenant) statements(t *testing.T) []string {
	t.Helper()
	all, err := x.db.Statements()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range all {
		verb, _, _ := strings.Cut(s.Text, " ")
		if slices.Contains([]string{"CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "FLUSH", "RENAME"}, strings.ToUpper(verb)) {
			out = append(out, s.Text)
		}
	}
	return out
}
