// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/integration/harness"
)

// process measures the operator as a process of its own, with one cloud.
func (b *bench) process(ctx context.Context) error {
	w, err := b.newWorld(ctx, instant)
	if err != nil {
		return err
	}
	defer w.close()
	cr, err := w.newCloud(ctx)
	if err != nil {
		return err
	}
	p, err := w.startProcess(ctx, b.options.ocadm)
	if err != nil {
		return err
	}
	if _, err := w.create(ctx, cr); err != nil {
		return err
	}
	if err := w.pods(ctx, cr.Namespace); err != nil {
		return err
	}
	if err := b.perPass(ctx, w, p, cr); err != nil {
		return err
	}
	took, err := p.stop()
	if err != nil {
		return err
	}
	b.add(row{ID: "P16", Metric: "SIGTERM until the process has ended", Goal: "≤ 2 s", Result: short(took)}, took <= 2*time.Second)
	if err := b.swap(ctx, w); err != nil {
		return err
	}
	if err := b.takeover(ctx, w, cr); err != nil {
		return err
	}
	if p, err = w.startProcess(ctx, b.options.ocadm); err != nil {
		return err
	}
	if err := untilQuiet(ctx, p.passes, 0); err != nil {
		return err
	}
	if err := b.foreign(ctx, w, p); err != nil {
		return err
	}
	_, err = p.stop()
	return err
}

// perPass is the CPU of one pass that finds nothing to do.
func (b *bench) perPass(ctx context.Context, w *world, p *process, cr *v1alpha1.OnecloudCluster) error {
	if err := untilQuiet(ctx, p.passes, -1); err != nil {
		return err
	}
	const touches = 300
	before, _ := p.passes()
	cpu, err := p.cpu()
	if err != nil {
		return err
	}
	for i := range touches {
		if err := w.touch(ctx, cr, i); err != nil {
			return err
		}
		if err := pause(ctx, 60*time.Millisecond); err != nil {
			return err
		}
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	if err := untilQuiet(ctx, p.passes, before); err != nil {
		return err
	}
	now, _ := p.passes()
	each := time.Duration(float64(after-cpu) / (now - before))
	b.add(row{ID: "P3", Metric: fmt.Sprintf("CPU of a pass that finds nothing to do (mean of %.0f)", now-before), Goal: "≤ 10 ms",
		Result: fmt.Sprintf("%.1f ms", float64(each)/1e6), Anchor: anchorCPU}, each <= 10*time.Millisecond)
	rss, err := p.settled(ctx, 2*time.Second)
	if err != nil {
		return err
	}
	_, most, err := p.memory()
	if err != nil {
		return err
	}
	b.add(row{ID: "–", Metric: "memory with one cloud (most)", Goal: "–", Result: fmt.Sprintf("%s (%s)", mib(rss), mib(most)), Anchor: anchorMemory})
	return nil
}

// foreign makes Secrets that are none of the operator's.
func (b *bench) foreign(ctx context.Context, w *world, p *process) error {
	const secrets, size = 5000, 100 << 10
	if err := w.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}); err != nil {
		return err
	}
	before, err := p.settled(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	data := map[string][]byte{"blob": make([]byte, size)}
	numbers := make([]int, secrets)
	for i := range numbers {
		numbers[i] = i
	}
	if err := each(numbers, func(i int) error {
		return w.client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "foreign", Name: fmt.Sprintf("s%d", i)}, Data: data})
	}); err != nil {
		return err
	}
	after, err := p.settled(ctx, 5*time.Second)
	if err != nil {
		return err
	}
	b.add(row{ID: "P13", Metric: "memory after 5,000 Secrets of 100 KiB that are not the operator's", Goal: "≤ +5 MiB",
		Result: fmt.Sprintf("%+.1f MiB", float64(after-before)/(1<<20)), Anchor: "all Secrets cached"}, after-before <= 5<<20)
	return nil
}

// swap puts another build of the operator in the place of the first.
func (b *bench) swap(ctx context.Context, w *world) error {
	other := filepath.Join(b.dir, "ocadm-other")
	if err := build(ctx, other, "v9.9.9"); err != nil {
		return err
	}
	var first times
	var written int
	for range b.options.rounds {
		var p *process
		all, err := w.cluster.Count(ctx, harness.Filter{User: operatorUser}, func() (err error) {
			if p, err = w.startProcess(ctx, other); err != nil {
				return err
			}
			for {
				if n, _ := p.passes(); n > 0 {
					first = append(first, time.Since(p.began))
					break
				}
				if err := pause(ctx, 10*time.Millisecond); err != nil {
					return err
				}
			}
			return untilQuiet(ctx, p.passes, 0)
		})
		if err != nil {
			return err
		}
		written += len(writes(all)) + len(statusPatches(all))
		if _, err := p.stop(); err != nil {
			return err
		}
	}
	b.add(row{ID: "P20", Metric: fmt.Sprintf("writes when another build takes over (%d times)", b.options.rounds), Goal: "0", Result: fmt.Sprint(written)}, written == 0)
	b.add(row{ID: "P16", Metric: "start of the process until its first pass has ended", Goal: "≤ 3 s", Result: first.String(),
		Samples: first.seconds()}, first.median() <= 3*time.Second)
	return nil
}

// takeover: of two operators the leader is told to end while an object has been changed; the other one heals it.
func (b *bench) takeover(ctx context.Context, w *world, cr *v1alpha1.OnecloudCluster) error {
	leader, err := w.startProcess(ctx, b.options.ocadm, "--leader-elect")
	if err != nil {
		return err
	}
	var took times
	for range b.options.rounds {
		if err := untilQuiet(ctx, leader.passes, 0); err != nil {
			return err
		}
		next, err := w.startProcess(ctx, b.options.ocadm, "--leader-elect")
		if err != nil {
			return err
		}
		if err := pause(ctx, 4*time.Second); err != nil { // it reads the lease
			return err
		}
		from, err := w.cluster.Mark(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := leader.stop(); err != nil {
			return err
		}
		name := cloudName + "-logger"
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: name}}
		if err := w.client.Delete(ctx, s); err != nil {
			return err
		}
		if err := untilQuiet(ctx, next.passes, 0); err != nil {
			return err
		}
		to, err := w.cluster.Mark(ctx)
		if err != nil {
			return err
		}
		all, err := w.cluster.Requests(from, to, harness.Filter{User: operatorUser})
		if err != nil {
			return err
		}
		for _, q := range writes(all) {
			if q.Resource == "services" {
				took = append(took, q.Time.Sub(began))
				break
			}
		}
		leader = next
	}
	if _, err := leader.stop(); err != nil {
		return err
	}
	b.add(row{ID: "P16", Metric: "SIGTERM to the leader until the next one writes", Goal: "≤ 2 s", Result: took.String(), Samples: took.seconds()}, took.median() <= 2*time.Second)
	return nil
}

// pods makes a Pod for each workload of a cloud, as its controllers would: the operator keeps what it needs of them.
func (w *world) pods(ctx context.Context, ns string) error {
	if err := w.accounts(ctx, ns); err != nil {
		return err
	}
	objs, err := w.children(ctx, ns)
	if err != nil {
		return err
	}
	var pods []*corev1.Pod
	for _, o := range objs {
		pod, err := podOf(o)
		if err != nil {
			return err
		}
		if pod != nil {
			pods = append(pods, pod)
		}
	}
	return each(pods, func(p *corev1.Pod) error { return w.client.Create(ctx, p) })
}
