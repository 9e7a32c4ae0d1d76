// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/integration/harness"
)

// restAfter is more than the time after which an operator at rest gives memory back.
const restAfter = 35 * time.Second

// many measures an operator with many clouds. They share one database server under many addresses, and one kind of stand-in.
func (b *bench) many(ctx context.Context) error {
	w, err := b.newWorld(ctx, instant)
	if err != nil {
		return err
	}
	defer w.close()
	p, err := w.startProcess(ctx, b.options.ocadm)
	if err != nil {
		return err
	}
	one, objects, err := b.fill(ctx, w, p)
	if err != nil {
		return err
	}
	// It gives memory back when it has been at rest for some time.
	if err := pause(ctx, restAfter); err != nil {
		return err
	}
	rss, err := p.settled(ctx, 10*time.Second)
	if err != nil {
		return err
	}
	_, most, err := p.memory()
	if err != nil {
		return err
	}
	n := b.options.clouds
	goal := int64(160)
	id := "P10"
	if n >= 200 {
		goal, id = 400, "P11"
	}
	b.add(row{ID: id, Metric: fmt.Sprintf("memory with %d clouds, %d objects (most, while they were made)", n, objects), Goal: fmt.Sprintf("≤ %d MiB", goal),
		Result: fmt.Sprintf("%s (%s)", mib(rss), mib(most)), Anchor: anchorMemory}, rss <= goal<<20)
	each := float64(rss-one) / float64(n-1) / (1 << 20)
	b.add(row{ID: "P12", Metric: "memory for each further cloud", Goal: "≤ 1.5 MiB", Result: fmt.Sprintf("%.2f MiB", each)}, each <= 1.5)
	if err := b.idle(ctx, w, p, id); err != nil {
		return err
	}
	if b.options.profile != "" {
		if err := p.heap(b.options.profile); err != nil {
			return err
		}
	}
	if _, err := p.stop(); err != nil {
		return err
	}
	return b.again(ctx, w, id, goal)
}

// fill makes the clouds. It returns the memory with one, and the number of objects of all.
func (b *bench) fill(ctx context.Context, w *world, p *process) (one int64, objects int, err error) {
	began := time.Now()
	var all []*v1alpha1.OnecloudCluster
	for i := range b.options.clouds {
		cr, err := w.newCloud(ctx)
		if err != nil {
			return 0, 0, err
		}
		all = append(all, cr)
		if err := w.shareDatabases(ctx, cr); err != nil {
			return 0, 0, err
		}
		if i > 0 {
			if err := w.client.Create(ctx, cr.DeepCopy()); err != nil {
				return 0, 0, err
			}
			continue
		}
		if _, err := w.create(ctx, cr); err != nil {
			return 0, 0, err
		}
		if err := pause(ctx, restAfter); err != nil {
			return 0, 0, err
		}
		if one, err = p.settled(ctx, 5*time.Second); err != nil {
			return 0, 0, err
		}
		began = time.Now()
	}
	for _, cr := range all {
		if err := w.untilReady(ctx, cr); err != nil {
			return 0, 0, err
		}
	}
	took := time.Since(began)
	for _, cr := range all {
		objs, err := w.children(ctx, cr.Namespace)
		if err != nil {
			return 0, 0, err
		}
		objects += len(objs)
		if err := w.pods(ctx, cr.Namespace); err != nil {
			return 0, 0, err
		}
	}
	b.add(row{ID: "–", Metric: fmt.Sprintf("%d clouds created at once, until all are ready", b.options.clouds-1), Goal: "–",
		Result: fmt.Sprintf("%s, %.0f objects/s", short(took), float64(objects)/took.Seconds())})
	return one, objects, untilQuiet(ctx, p.passes, -1)
}

// shareDatabases gives a cloud the identity of all others: they use the databases of one server.
func (w *world) shareDatabases(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	return w.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: cr.Name + "-" + v1alpha1.SecretCredentials, Labels: map[string]string{
			v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cr.Name,
		}},
		Data: map[string][]byte{component.CloudID: []byte("bench")},
	})
}

// idle is what many clouds cost when nothing happens.
func (b *bench) idle(ctx context.Context, w *world, p *process, id string) error {
	if err := pause(ctx, 5*time.Second); err != nil {
		return err
	}
	const span = time.Minute
	before, err := p.cpu()
	if err != nil {
		return err
	}
	all, err := w.cluster.Count(ctx, harness.Filter{User: operatorUser}, func() error { return pause(ctx, span) })
	if err != nil {
		return err
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	milli := float64(after-before) / float64(span) * 1000
	b.add(row{ID: id, Metric: "CPU in a minute at rest", Goal: "≤ 10 millicores", Result: fmt.Sprintf("%.1f millicores", milli), Anchor: anchorCPU}, milli <= 10)
	b.add(row{ID: "P1", Metric: "requests to Kubernetes in that minute", Goal: "0", Result: fmt.Sprintf("%d %s", len(all), tally(all)), Anchor: anchorRest}, len(all) == 0)
	return nil
}

// again starts a new operator beside all those clouds.
func (b *bench) again(ctx context.Context, w *world, id string, goal int64) error {
	var p *process
	var took time.Duration
	all, err := w.cluster.Count(ctx, harness.Filter{User: operatorUser}, func() (err error) {
		if p, err = w.startProcess(ctx, b.options.ocadm); err != nil {
			return err
		}
		if err := untilQuiet(ctx, p.passes, float64(b.options.clouds-1)); err != nil {
			return err
		}
		took = time.Since(p.began)
		return nil
	})
	if err != nil {
		return err
	}
	if err := pause(ctx, restAfter); err != nil {
		return err
	}
	rss, err := p.settled(ctx, 10*time.Second)
	if err != nil {
		return err
	}
	n := len(writes(all)) + len(statusPatches(all))
	b.add(row{ID: id, Metric: "operator started anew, until it rests", Goal: "≤ 20 s, 0 writes",
		Result: fmt.Sprintf("%s, %d writes", short(took), n)}, took <= 20*time.Second && n == 0)
	b.add(row{ID: id, Metric: "its memory then", Goal: fmt.Sprintf("≤ %d MiB", goal), Result: mib(rss)}, rss <= goal<<20)
	_, err = p.stop()
	return err
}

// podOf is a running Pod of a workload, nil of anything else.
func podOf(o *unstructured.Unstructured) (*corev1.Pod, error) {
	template, there, err := unstructured.NestedMap(o.Object, "spec", "template")
	if err != nil || !there {
		return nil, err
	}
	p := &corev1.Pod{}
	if err := untree(template, p); err != nil {
		return nil, err
	}
	p.ObjectMeta = metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName() + "-0", Labels: p.Labels, Annotations: p.Annotations}
	p.Spec.NodeName = "node1"
	for i := range p.Spec.Containers { // a StatefulSet's claims are not in its template
		c := &p.Spec.Containers[i]
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		})
	}
	return p, nil
}

// accounts are the service accounts that the pods of a cloud name; the operator's manifest has them in its own namespace.
func (w *world) accounts(ctx context.Context, ns string) error {
	for _, name := range []string{"default", "onecloud-node-reader", "onecloud-cluster-admin", "onecloud-service-operator"} {
		err := w.client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
