// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
)

// restAfter exceeds the idle time after which an operator returns memory to the system.
const restAfter = 35 * time.Second

// many measures an operator with many clouds that share one database server.
func (b *bench) many() {
	e := b.clouds(env.Options{})
	p := b.start(e)
	one, objects := b.fill(e, p)
	b.pause(restAfter)
	rss, most := p.memory(10 * time.Second)
	n, goal, id := b.options.clouds, int64(160), "P10"
	if n >= 200 {
		goal, id = 400, "P11"
	}
	b.add(row{ID: id, Metric: fmt.Sprintf("memory with %d clouds, %d objects (most, while they were made)", n, objects), Goal: fmt.Sprintf("≤ %d MiB", goal),
		Result: fmt.Sprintf("%s (%s)", mib(rss), mib(most)), Anchor: anchorMemory}, rss <= goal<<20)
	each := float64(rss-one) / float64(n-1) / (1 << 20)
	b.add(row{ID: "P12", Metric: "memory for each further cloud", Goal: "≤ 1.5 MiB", Result: fmt.Sprintf("%.2f MiB", each)}, each <= 1.5)

	b.pause(5 * time.Second)
	before := p.cpu()
	asked := e.Count(func() { b.pause(time.Minute) }).Kubernetes
	milli := float64(p.cpu()-before) / float64(time.Minute) * 1000
	b.add(row{ID: id, Metric: "CPU in a minute at rest", Goal: "≤ 10 millicores", Result: fmt.Sprintf("%.1f millicores", milli), Anchor: anchorCPU}, milli <= 10)
	b.add(row{ID: "P1", Metric: "requests to Kubernetes in that minute", Goal: "0", Result: fmt.Sprintf("%d %s", len(asked), env.Tally(asked, env.Verb)), Anchor: anchorRest},
		len(asked) == 0)
	if b.options.profile != "" {
		p.heap(b.options.profile)
	}
	p.stop()

	var took time.Duration
	again := e.CountBy(harness.Filter{}, func() {
		p = b.start(e)
		p.untilQuiet(float64(n - 1))
		took = time.Since(p.began)
	})
	b.pause(restAfter)
	rss, _ = p.memory(10 * time.Second)
	writes := len(again.Changes()) + len(again.StatusPatches())
	b.add(row{ID: id, Metric: "new operator, until it rests", Goal: "≤ 20 s, 0 writes",
		Result: fmt.Sprintf("%s, %d writes", short(took), writes)}, took <= 20*time.Second && writes == 0)
	b.add(row{ID: id, Metric: "its memory then", Goal: fmt.Sprintf("≤ %d MiB", goal), Result: mib(rss)}, rss <= goal<<20)
	p.stop()
}

// fill creates the clouds. It returns the memory used with one cloud and the total number of objects.
func (b *bench) fill(e *env.Env, p *process) (one int64, objects int) {
	began := time.Now()
	var all []*env.Env
	for i := range b.options.clouds {
		e, cr := b.newCloud(e)
		all = append(all, e)
		ownNames(e)
		if i > 0 {
			e.Create(cr)
			continue
		}
		create(e, cr)
		b.pause(restAfter)
		one, _ = p.memory(5 * time.Second)
		began = time.Now()
	}
	for _, e := range all {
		e.UntilReady()
	}
	took := time.Since(began)
	objects = lists.Sum(all, b.pods)
	b.add(row{ID: "–", Metric: fmt.Sprintf("%d clouds created at once, until all are ready", b.options.clouds-1), Goal: "–",
		Result: fmt.Sprintf("%s, %.0f objects/s", short(took), float64(objects)/took.Seconds())})
	p.untilQuiet(-1)
	return one, objects
}

// pods creates a Pod for each workload of a cloud, as the controllers of Kubernetes would, because the operator caches Pods. It returns the number of
// the cloud's objects.
func (b *bench) pods(e *env.Env) int {
	objs := children(e)
	b.no(each(objs, func(o *unstructured.Unstructured) error {
		template, there, err := unstructured.NestedMap(o.Object, "spec", "template")
		if err != nil || !there {
			return err
		}
		p := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, p); err != nil {
			return err
		}
		p.ObjectMeta = metav1.ObjectMeta{Namespace: e.Namespace, Name: o.GetName() + "-0", Labels: p.Labels, Annotations: p.Annotations}
		p.Spec.NodeName = "node1"
		for i := range p.Spec.Containers { // a StatefulSet's claims are not in its template
			p.Spec.Containers[i].VolumeMounts = nil
		}
		return e.Client.Create(b.ctx, p)
	}))
	return len(objs)
}
