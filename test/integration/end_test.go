// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/integration/harness"
)

// canary looks for every secret of the cloud in everything that people may read, after the database has refused one of them.
func (r *rig) canary() {
	const wrong = "Canary-wrong-Pa55word"
	r.edit(r.minimal(), `{"spec":{"mysql":{"password":"`+wrong+`"},"enableCloudNet":true}}`)
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		return ok && slices.ContainsFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool {
			return c.Name == "cloudnet" && c.State == v1alpha1.Degraded && c.Reason == "EffectFailed"
		}), "the database has not refused the password"
	})
	failed := r.text(r.cloud().Status)
	r.edit(r.minimal(), `{"spec":{"mysql":{"password":"`+r.db.RootPassword+`"},"enableCloudNet":false}}`)
	r.untilReady()
	words := map[string]string{"the database administrator's password": r.db.RootPassword, "the wrong password": wrong}
	for k, v := range r.credentials() {
		if k != component.CloudID {
			words["credential "+k] = string(v)
		}
	}
	cr := r.cloud()
	cr.Spec.MySQL.Password = "" // there the user has put it himself
	texts := map[string]string{"operator's log": r.log.String(), "cloud": r.text(cr), "failed cloud": failed, "metrics": r.metricsText()}
	for name, log := range r.pods.Logs() {
		if log != "" { // programs of other projects are not played here, and say nothing
			texts["log of "+name] = log
		}
	}
	if len(texts) < 12 {
		r.t.Errorf("only %d logs to look at", len(texts)-2)
	}
	for _, list := range []client.ObjectList{
		&eventsv1.EventList{}, &corev1.ConfigMapList{}, &corev1.PodList{}, &corev1.ServiceList{}, &appsv1.DeploymentList{},
		&appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}, &networkingv1.IngressList{}, &corev1.PersistentVolumeClaimList{},
		&coordinationv1.LeaseList{},
	} {
		if err := r.client.List(r.t.Context(), list, client.InNamespace(namespace)); err != nil {
			r.t.Fatal(err)
		}
		texts[strings.TrimPrefix(r.kind(list), "*")] = r.text(list)
	}
	for _, leak := range harness.Leaks(words, texts) {
		r.t.Error(leak)
	}
}

// metricsText is everything that the operator's metrics say.
func (r *rig) metricsText() string {
	families, err := metrics.Registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func (r *rig) kind(o runtime.Object) string {
	gvk, err := r.client.GroupVersionKindFor(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return gvk.Kind
}

func (r *rig) text(o any) string {
	r.t.Helper()
	b, err := yaml.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) gone(ctx context.Context, o client.Object, name string) {
	r.t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	if err := kube.WaitGone(ctx, r.client, o, func(client.Object) string { return "it is still there" }, func(string) {}); err != nil {
		r.t.Fatal(err)
	}
}

// delete deletes the cloud and returns the order in which its workloads were deleted.
func (r *rig) delete() []string {
	r.t.Helper()
	began := time.Now()
	w := r.count(func() {
		if err := r.client.Delete(r.t.Context(), r.minimal()); err != nil {
			r.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		defer cancel()
		r.gone(ctx, &v1alpha1.OnecloudCluster{}, cloud)
	})
	r.t.Logf("deleted after %s: %s", time.Since(began).Round(10*time.Millisecond), w.summary())
	var order []string
	for _, q := range w.kubernetes {
		if q.Verb == "delete" && q.Group == "apps" {
			order = append(order, strings.TrimPrefix(q.Name, cloud+"-"))
		}
	}
	return order
}

// left are the objects of the cloud that are still there once the garbage collector has been.
func (r *rig) left(want ...string) {
	r.t.Helper()
	var have []string
	deadline := time.Now().Add(patience)
	for {
		have = nil
		for _, list := range []client.ObjectList{
			&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, &corev1.PodList{},
			&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}, &networkingv1.IngressList{},
		} {
			if err := r.client.List(r.t.Context(), list, client.InNamespace(namespace),
				client.MatchingLabels{v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud}); err != nil {
				r.t.Fatal(err)
			}
			if err := meta.EachListItem(list, func(o runtime.Object) error {
				m, err := meta.Accessor(o)
				have = append(have, strings.TrimSuffix(r.kind(list), "List")+"/"+m.GetName())
				return err
			}); err != nil {
				r.t.Fatal(err)
			}
		}
		slices.Sort(have)
		if slices.Equal(have, want) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("left: %q, want %q", have, want)
		}
		time.Sleep(100 * time.Millisecond) // the garbage collector works when it likes, over many kinds
	}
}

// claims of the cloud, by kind and name, sorted.
func (r *rig) claims() []string {
	list := &corev1.PersistentVolumeClaimList{}
	err := r.client.List(r.t.Context(), list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, c := range list.Items {
		out = append(out, "PersistentVolumeClaim/"+c.Name)
	}
	if len(out) == 0 {
		r.t.Fatal("the cloud has no claims, so nothing shows that they stay")
	}
	slices.Sort(out)
	return out
}

// remove: without a policy, what holds data stays.
func (r *rig) remove() {
	databases, credentials := r.databases(), r.credentials()
	keeps := append(r.claims(), "Secret/default-credentials")
	order := r.delete()
	for _, pair := range [][2]string{{"web", "apigateway"}, {"glance", "region"}, {"scheduler", "region"}, {"region", "keystone"}, {"climc", "keystone"}} {
		if slices.Index(order, pair[0]) > slices.Index(order, pair[1]) || !slices.Contains(order, pair[0]) {
			r.t.Errorf("%s goes before %s, but the order was %q", pair[0], pair[1], order)
		}
	}
	r.left(keeps...)
	if now := r.databases(); !slices.Equal(now, databases) {
		r.t.Errorf("databases %q, before %q", now, databases)
	}
	if now := r.credentials(); !maps.EqualFunc(now, credentials, slices.Equal) {
		r.t.Error("the credentials have changed")
	}
}

// interrupted: the operator is stopped on the way, and the cloud that comes back finds its data.
func (r *rig) interrupted() {
	credentials := r.credentials()
	r.installWithStops("default-keystone", "default-region")
	if !maps.EqualFunc(r.credentials(), credentials, slices.Equal) {
		r.t.Error("the credentials have changed")
	}
	for name, account := range map[string]string{"glance": "glance", "keystone": "keystone", "region": "yunioncloud"} {
		if !r.logsIn(r.t.Context(), account, string(credentials[component.DatabasePassword(name)])) {
			r.t.Errorf("the database account of %s has another password", name)
		}
	}
}

// first: the same where nothing is there yet.
func (r *rig) first() {
	r.startOperator()
	credentials := r.installWithStops("default-keystone", "default-region", "default-scheduler")
	if !maps.EqualFunc(r.credentials(), credentials, slices.Equal) {
		r.t.Error("the credentials have changed on the way")
	}
	r.catalogue()
}

// installWithStops makes the cloud with another operator from each of the Deployments on, and returns the credentials as they were
// when the first operator was stopped.
func (r *rig) installWithStops(deployments ...string) map[string][]byte {
	r.t.Helper()
	if err := r.client.Create(r.t.Context(), r.minimal()); err != nil {
		r.t.Fatal(err)
	}
	var credentials map[string][]byte
	for _, name := range deployments {
		r.until(&appsv1.Deployment{}, name, func(o client.Object) (bool, string) { return o != nil, "there is none" })
		r.stopOperator()
		if credentials == nil {
			credentials = r.credentials()
		}
		r.startOperator()
	}
	r.untilReady()
	return credentials
}

// purge: with deletionPolicy Delete, and backups that are not to be kept, nothing stays.
func (r *rig) purge() {
	r.edit(r.minimal(), `{"metadata":{"annotations":{"`+v1alpha1.AnnotationDeleteBackups+`":"true"}},"spec":{"deletionPolicy":"Delete"}}`)
	r.untilReady()
	r.delete()
	r.left()
	for _, name := range []string{"keystone", "yunioncloud", "glance", "yunionlogger", "yunionconf"} {
		if slices.Contains(r.databases(), name) {
			r.t.Errorf("database %s is still there", name)
		}
	}
	r.stopOperator()
}
