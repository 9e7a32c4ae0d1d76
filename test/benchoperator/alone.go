// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/test/env"
)

// process measures the operator in a separate process, with one cloud.
func (b *bench) process() {
	e := b.clouds(env.Options{})
	p := b.start(e)
	e, cr := b.newCloud(e)
	create(e, cr)
	b.pods(e)
	b.perPass(e, p)
	took := p.stop()
	b.add(row{ID: "P16", Metric: "SIGTERM until the process has ended", Goal: "≤ 2 s", Result: short(took)}, took <= 2*time.Second)
	b.swap(e)
	b.takeover(e)
	p = b.start(e)
	p.untilQuiet(0)
	b.foreign(e, p)
	p.stop()
}

// perPass measures the CPU time of one reconcile that changes nothing.
func (b *bench) perPass(e *env.Env, p *process) {
	p.untilQuiet(-1)
	const touches = 300
	before, _ := p.passes()
	cpu := p.cpu()
	for i := range touches {
		touch(e, i)
		b.pause(60 * time.Millisecond)
	}
	used := p.cpu() - cpu
	p.untilQuiet(before)
	now, _ := p.passes()
	each := time.Duration(float64(used) / (now - before))
	b.add(row{ID: "P3", Metric: fmt.Sprintf("CPU of a reconcile that finds nothing to do (mean of %.0f)", now-before), Goal: "≤ 10 ms",
		Result: fmt.Sprintf("%.1f ms", float64(each)/1e6), Anchor: anchorCPU}, each <= 10*time.Millisecond)
	rss, most := p.memory(2 * time.Second)
	b.add(row{ID: "–", Metric: "memory with one cloud (most)", Goal: "–", Result: fmt.Sprintf("%s (%s)", mib(rss), mib(most)), Anchor: anchorMemory})
}

// foreign creates Secrets that do not belong to the operator.
func (b *bench) foreign(e *env.Env, p *process) {
	const secrets, size = 5000, 100 << 10
	ns := b.namespace(e, "foreign")
	before, _ := p.memory(5 * time.Second)
	data := map[string][]byte{"blob": make([]byte, size)}
	b.no(each(make([]struct{}, secrets), func(struct{}) error {
		return e.Client.Create(b.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "s"}, Data: data})
	}))
	after, _ := p.memory(5 * time.Second)
	b.add(row{ID: "P13", Metric: "memory after 5,000 Secrets of 100 KiB that are not the operator's", Goal: "≤ +5 MiB",
		Result: fmt.Sprintf("%+.1f MiB", float64(after-before)/(1<<20)), Anchor: "all Secrets cached"}, after-before <= 5<<20)
}

// swap replaces the operator with another build.
func (b *bench) swap(e *env.Env) {
	other := filepath.Join(e.Cluster.Dir, "ocadm-other")
	b.build(other, "v9.9.9")
	var first times
	written := 0
	for range b.options.rounds {
		var p *process
		did := e.Count(func() {
			p = b.startProgram(e, other)
			for n := 0.0; n == 0; n, _ = p.passes() {
				b.pause(10 * time.Millisecond)
			}
			first = append(first, time.Since(p.began))
			p.untilQuiet(0)
		})
		written += len(did.Changes()) + len(did.StatusPatches())
		p.stop()
	}
	b.add(row{ID: "P20", Metric: fmt.Sprintf("writes when another build takes over (%d times)", b.options.rounds), Goal: "0", Result: fmt.Sprint(written)}, written == 0)
	b.add(row{ID: "P16", Metric: "start of the process until its first reconcile has ended", Goal: "≤ 3 s", Result: first.String()}, first.median() <= 3*time.Second)
}

// takeover stops the leader of two operators and deletes an object, which the other operator must restore.
func (b *bench) takeover(e *env.Env) {
	leader := b.start(e, "--leader-elect")
	var took times
	for range b.options.rounds {
		leader.untilQuiet(0)
		next := b.start(e, "--leader-elect")
		b.pause(4 * time.Second) // it reads the lease
		var began time.Time
		did := e.Count(func() {
			began = time.Now()
			leader.stop()
			b.no(e.Client.Delete(b.ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: env.Name + "-logger"}}))
			next.untilQuiet(0)
		})
		for _, q := range did.Changes() {
			if q.Resource == "services" {
				took = append(took, q.Time.Sub(began))
				break
			}
		}
		leader = next
	}
	leader.stop()
	b.add(row{ID: "P16", Metric: "SIGTERM to the leader until the next one writes", Goal: "≤ 2 s", Result: took.String()}, took.median() <= 2*time.Second)
}

func (b *bench) tuned() {
	b.available(env.Options{Workloads: env.Pods, Controllers: []string{"--kube-api-qps=200", "--kube-api-burst=400"}},
		"kube-controller-manager as ocadm init sets it", "≤ 5 s", func(took, _ times) bool { return took.median() <= 5*time.Second })
}

func (b *bench) untuned() {
	b.available(env.Options{Workloads: env.Pods, Controllers: []string{"--kube-api-qps=20", "--kube-api-burst=30"}},
		"kube-controller-manager with its defaults", "≤ 1.5 × flat", func(took, flat times) bool { return ratio(took, flat) <= 1.5 })
}

// available measures the time from the CR until every service is Available, with a real kube-controller-manager and a kubelet that reports pods ready
// immediately. It compares that with 50 Deployments that wait for nothing.
func (b *bench) available(o env.Options, what, goal string, met func(took, flat times) bool) {
	all := b.clouds(o)
	startOperator(all)
	var took, flat times
	for range b.options.rounds {
		flat = append(flat, b.flat(all))
		e, cr := b.newCloud(all)
		took = append(took, create(e, cr))
		b.Logf("%s: flat %s, the cloud %s", what, short(flat[len(flat)-1]), short(took[len(took)-1]))
		remove(e)
	}
	b.add(row{ID: "P7", Metric: "from the CR to all Available, " + what, Goal: goal, Result: took.String(),
		Ratio: fmt.Sprintf("%.2f (50 flat Deployments: %s)", ratio(took, flat), flat), Anchor: anchorTime}, met(took, flat))
}
