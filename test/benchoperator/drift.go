// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/integration/harness"
)

// stray is how somebody changes an object of a kind behind the operator's back: a JSON patch.
type stray struct{ kind, name, patch string }

func replace(path, value string) string {
	return fmt.Sprintf(`[{"op":"replace","path":%q,"value":%s}]`, path, value)
}

// strays are one for each kind that the operator owns. The options in a ConfigMap are people's to change, its labels are not.
func strays() []stray {
	label, image := "/metadata/labels/app.kubernetes.io~1name", "/spec/template/spec/containers/0/image"
	return []stray{
		{"ConfigMap", "region", replace(label, `"x"`)},
		{"Secret", "region-config", replace("/data/region.conf", `"eA=="`)},
		{"Service", "region", replace("/spec/ports/0/targetPort", "9")},
		{"PersistentVolumeClaim", "glance", replace(label, `"x"`)},
		{"Deployment", "logger", replace(image, `"example.com/other:v1"`)},
		{"StatefulSet", "etcd", replace(image, `"example.com/other:v1"`)},
		{"DaemonSet", "telegraf", replace(image, `"example.com/other:v1"`)},
		{"CronJob", "backup", replace("/spec/schedule", `"1 1 * * *"`)},
		{"Ingress", "web", replace("/spec/rules/0/http/paths/0/path", `"/x"`)},
	}
}

// drift edits and deletes one object of each kind and measures when it is as it was.
func (b *bench) drift(ctx context.Context) error {
	w, err := b.newWorld(ctx, instant)
	if err != nil {
		return err
	}
	defer w.close()
	o := &operator{w: w}
	o.start(ctx)
	defer func() { _ = o.stop() }()
	cr, err := w.newCloud(ctx)
	if err != nil {
		return err
	}
	no := false
	cr.Spec.Backup.Disable = &no // the only CronJob
	if _, err := w.create(ctx, cr); err != nil {
		return err
	}
	for _, way := range []string{"edited", "deleted"} {
		var all times
		var parts, wrong []string
		for _, s := range strays() {
			took, bad, err := b.heal(ctx, o, cr, s, way)
			if err != nil {
				return fmt.Errorf("%s %s: %w", way, s.kind, err)
			}
			all, wrong = append(all, took...), append(wrong, bad...)
			parts = append(parts, fmt.Sprintf("%s %s", s.kind, short(took.median())))
		}
		b.say("%s: %s %v", way, strings.Join(parts, ", "), wrong)
		b.add(row{ID: "P8", Metric: fmt.Sprintf("an object %s behind its back, each of %d kinds, until it is back", way, len(parts)), Goal: "p50 ≤ 100 ms, p99 ≤ 500 ms",
			Result: fmt.Sprintf("p50 %s, p99 %s", short(all.median()), short(all.quantile(0.99))), Anchor: anchorHeal, Samples: all.seconds()},
			all.median() <= 100*time.Millisecond && all.quantile(0.99) <= 500*time.Millisecond)
		b.add(row{ID: "P8", Metric: fmt.Sprintf("writes for an object %s, other than exactly one", way), Goal: "0",
			Result: fmt.Sprintf("%d of %d", len(wrong), len(all))}, len(wrong) == 0)
	}
	return nil
}

// heal does one thing several times. wrong tells where it took another number of writes than one.
func (b *bench) heal(ctx context.Context, o *operator, cr *v1alpha1.OnecloudCluster, s stray, way string) (took times, wrong []string, err error) {
	u := &unstructured.Unstructured{}
	u.SetKind(s.kind)
	u.SetAPIVersion(map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "CronJob": "batch/v1", "Ingress": "networking.k8s.io/v1"}[s.kind])
	if u.GetAPIVersion() == "" {
		u.SetAPIVersion("v1")
	}
	u.SetNamespace(cr.Namespace)
	u.SetName(cloudName + "-" + s.name)
	for range b.options.rounds {
		if err := untilQuiet(ctx, passes, -1); err != nil {
			return nil, nil, err
		}
		from, err := o.w.cluster.Mark(ctx)
		if err != nil {
			return nil, nil, err
		}
		before, _ := passes()
		if way == "edited" {
			err = o.w.client.Patch(ctx, u.DeepCopy(), client.RawPatch(types.JSONPatchType, []byte(s.patch)), client.FieldOwner("kubectl-edit"))
		} else {
			err = o.w.client.Delete(ctx, u.DeepCopy(), client.PropagationPolicy("Background"))
		}
		if err != nil {
			return nil, nil, err
		}
		if err := untilQuiet(ctx, passes, before); err != nil {
			return nil, nil, err
		}
		if err := o.w.untilReady(ctx, cr); err != nil {
			return nil, nil, err
		}
		to, err := o.w.cluster.Mark(ctx)
		if err != nil {
			return nil, nil, err
		}
		d, n, err := o.w.healed(from, to, resource(u), u.GetName())
		if err != nil {
			return nil, nil, err
		}
		took = append(took, d)
		if n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %d", s.kind, n))
		}
	}
	return took, wrong, nil
}

// healed is the time between somebody's change of an object and the operator's first write of it, and the number of all its writes.
func (w *world) healed(from, to harness.Mark, resource, name string) (time.Duration, int, error) {
	all, err := w.cluster.Requests(from, to, harness.Filter{})
	if err != nil {
		return 0, 0, err
	}
	by := func(user string) []harness.Request {
		return pick(writes(all), func(q harness.Request) bool { return q.User == user && strings.HasPrefix(q.Namespace, "cloud-") })
	}
	is := func(q harness.Request) bool { return q.Resource == resource && q.Name == name }
	admin, ours := by(harness.Admin), by(operatorUser)
	i, j := slices.IndexFunc(admin, is), slices.IndexFunc(ours, is)
	if i < 0 || j < 0 {
		return 0, 0, fmt.Errorf("the audit log does not tell of %s %s: %v", resource, name, all)
	}
	return ours[j].Time.Sub(admin[i].Time), len(ours), nil
}
