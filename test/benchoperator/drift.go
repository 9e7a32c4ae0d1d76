// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
)

// stray is a change to an object by another client: a new value at a path.
type stray struct {
	object            client.Object
	name, path, value string
}

// strays returns one change for each kind that the operator owns. For a ConfigMap it is a label, because users may change the options.
func strays() []stray {
	const label, image, other = "/metadata/labels/app.kubernetes.io~1name", "/spec/template/spec/containers/0/image", `"example.com/other:v1"`
	return []stray{
		{&corev1.ConfigMap{}, "region", label, `"x"`},
		{&corev1.Secret{}, "region-config", "/data/region.conf", `"eA=="`},
		{&corev1.Service{}, "region", "/spec/ports/0/targetPort", "9"},
		{&corev1.PersistentVolumeClaim{}, "glance", label, `"x"`},
		{&appsv1.Deployment{}, "logger", image, other},
		{&appsv1.StatefulSet{}, "etcd", image, other},
		{&appsv1.DaemonSet{}, "telegraf", image, other},
		{&batchv1.CronJob{}, "backup", "/spec/schedule", `"1 1 * * *"`},
		{&networkingv1.Ingress{}, "web", "/spec/rules/0/http/paths/0/path", `"/x"`},
	}
}

// drift edits and deletes one object of each kind and measures the time until it is restored.
func (b *bench) drift() {
	e := b.clouds(env.Options{})
	startOperator(e)
	e, cr := b.newCloud(e)
	cr.Spec.Backup.Disable = new(false) // the only CronJob
	create(e, cr)
	for _, way := range []string{"edited", "deleted"} {
		var all times
		var parts, wrong []string
		for _, s := range strays() {
			var one times
			for range b.options.rounds {
				took, writes := b.heal(e, s, way)
				one = append(one, took)
				if writes != 1 {
					wrong = append(wrong, fmt.Sprintf("%s: %d", e.Kind(s.object), writes))
				}
			}
			all = append(all, one...)
			parts = append(parts, fmt.Sprintf("%s %s", e.Kind(s.object), short(one.median())))
		}
		b.Logf("%s: %s %v", way, strings.Join(parts, ", "), wrong)
		b.add(row{ID: "P8", Metric: fmt.Sprintf("an object %s behind its back, each of %d kinds, until it is back", way, len(parts)), Goal: "p50 ≤ 100 ms, p99 ≤ 500 ms",
			Result: fmt.Sprintf("p50 %s, p99 %s", short(all.median()), short(all.quantile(0.99))), Anchor: anchorHeal},
			all.median() <= 100*time.Millisecond && all.quantile(0.99) <= 500*time.Millisecond)
		b.add(row{ID: "P8", Metric: fmt.Sprintf("writes for an object %s, other than exactly one", way), Goal: "0",
			Result: fmt.Sprintf("%d of %d", len(wrong), len(all))}, len(wrong) == 0)
	}
}

// heal makes one change to an object. From the audit log, it returns the time until the operator's first write to it and the number of such writes.
func (b *bench) heal(e *env.Env, s stray, way string) (time.Duration, int) {
	e.Rest()
	o := s.object.DeepCopyObject().(client.Object)
	o.SetNamespace(e.Namespace)
	o.SetName(env.Name + "-" + s.name)
	from := e.Mark()
	before, _ := e.Passes()
	if way == "edited" {
		patch := fmt.Sprintf(`[{"op":"replace","path":%q,"value":%s}]`, s.path, s.value)
		b.no(e.Client.Patch(b.ctx, o, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("kubectl-edit")))
	} else {
		b.no(e.Client.Delete(b.ctx, o, client.PropagationPolicy("Background")))
	}
	e.UntilQuiet(before)
	e.UntilReady()
	all := env.Work{Kubernetes: e.Requests(from, harness.Filter{})}.Changes()
	var admin, ours []harness.Request
	for _, q := range all {
		switch {
		case q.Namespace != e.Namespace:
		case q.User == harness.Admin:
			admin = append(admin, q)
		case q.User == env.OperatorUser:
			ours = append(ours, q)
		}
	}
	is := func(q harness.Request) bool {
		return q.Name == env.Name+"-"+s.name && q.Resource == resource(e, s.object)
	}
	i, j := slices.IndexFunc(admin, is), slices.IndexFunc(ours, is)
	if i < 0 || j < 0 {
		b.Fatalf("%s %s: the audit log lacks it: %v", way, s.name, all)
	}
	return ours[j].Time.Sub(admin[i].Time), len(ours)
}

// resource returns the resource name of an object's kind, as in requests.
func resource(e *env.Env, o client.Object) string {
	gvk, err := e.Client.GroupVersionKindFor(o)
	e.Must(err)
	mapping, err := e.Client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	e.Must(err)
	return mapping.Resource.Resource
}
