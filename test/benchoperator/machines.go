// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/sshserver"
)

// The goals for machines: API requests per machine, and the memory of the operator for 500 machines.
const (
	requestsPerMachine = 30
	memoryOfMachines   = 40 << 20 // bytes
)

// machines measures the concurrent joining of many machines. Each is an SSH server that plays ocadm. Their Jobs run "ocadm operator work" as processes.
func (b *bench) machines() {
	e := b.clouds(env.Options{Jobs: true, Controllers: []string{"--node-monitor-grace-period=10h"}}) // no kubelet reports the nodes
	b.environ = []string{cluster.OperatorImageVariable + "=registry.example.org/ocadm:v0"}
	p := b.start(e, fmt.Sprintf("--machines-at-once=%d", b.options.atOnce))
	create(e, e.Minimal())
	private, public := sshserver.NewKey(b)
	e.Joinable(private)
	e.StartJobPods(cmp.Or(b.options.ocadm, p.child.Cmd.Path))
	logins := &atomic.Int64{}
	var all []*v1alpha1.OnecloudMachine
	for i := range b.options.machines {
		all = append(all, b.machineAt(e, fmt.Sprintf("worker-%d", i), b.host(e, public, logins)))
	}
	p.untilQuiet(-1)
	b.pause(restAfter)
	before, _ := p.memory(5 * time.Second)

	from := e.Mark()
	began := time.Now()
	b.no(each(all, func(m *v1alpha1.OnecloudMachine) error { return e.Client.Create(b.ctx, m) }))
	added := time.Since(began)
	b.untilRunning(e)
	took := time.Since(began)
	p.untilQuiet(-1)
	b.requests(e, from)
	n := b.options.machines
	b.add(row{ID: "M1", Metric: fmt.Sprintf("%d machines until all are Running, %d at once (all resources created after %s)", n, b.options.atOnce, short(added)), Goal: "–",
		Result: fmt.Sprintf("%s, %.1f machines/s; %d logins", short(took), float64(n)/took.Seconds(), logins.Load())})
	_, most := p.memory(time.Second)
	b.pause(restAfter)
	after, _ := p.memory(5 * time.Second)
	b.add(row{ID: "M3", Metric: fmt.Sprintf("memory of the operator with %d machines (most)", n), Goal: "≤ +40 MiB",
		Result: fmt.Sprintf("%+.1f MiB, from %s (%s)", float64(after-before)/(1<<20), mib(before), mib(most))}, after-before <= memoryOfMachines)
	asked := e.Count(func() { b.pause(time.Minute) }).Kubernetes
	b.add(row{ID: "M4", Metric: "requests to Kubernetes in a minute at rest", Goal: "0", Result: fmt.Sprintf("%d %s", len(asked), env.Tally(asked, env.Verb))}, len(asked) == 0)
	if b.options.profile != "" {
		p.heap(b.options.profile)
	}
	p.stop()
}

// host starts a machine whose join succeeds immediately.
func (b *bench) host(e *env.Env, public ssh.PublicKey, logins *atomic.Int64) *sshserver.Server {
	s := &sshserver.Server{Keys: []ssh.PublicKey{public}}
	s.Run = func(c *sshserver.Call) int {
		text, _ := io.ReadAll(c.Stdin)
		if strings.Contains(c.Line, "clock") || strings.Contains(c.Line, "identity") {
			return 0
		}
		logins.Add(1)
		if strings.Contains(c.Line, "precheck") {
			fmt.Fprintln(c.Stdout, `{"passed":true,"findings":[]}`)
			return 0
		}
		fmt.Fprintln(c.Stdout, `{"type":"phase-started","phase":"preflight"}`)
		if err := e.Register(c, string(text)); err != nil {
			fmt.Fprint(c.Stderr, err)
			return 1
		}
		return 0
	}
	return s.Start(b)
}

func (b *bench) machineAt(e *env.Env, name string, s *sshserver.Server) *v1alpha1.OnecloudMachine {
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	m.Spec.Cloud = env.Name
	m.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{Address: "127.0.0.1", Port: int32(s.Port()), CredentialsSecretName: env.LoginSecret} //nolint:gosec // a port
	return m
}

func (b *bench) untilRunning(e *env.Env) {
	running, seen := sets.New[string](), 0
	late := time.Now().Add(env.Patience)
	note := func(m *v1alpha1.OnecloudMachine) {
		if m.Status.Phase == v1alpha1.MachineRunning {
			running.Insert(m.Name)
		}
		if m.Status.Phase == v1alpha1.MachineFailed || m.Status.Attempts > 1 {
			b.Fatalf("machine %s: %s", m.Name, m.Status.Message)
		}
		if n := running.Len() / 50; n > seen { //nolint:mnd // how often progress is printed
			seen = n
			b.Logf("%d machines run", running.Len())
		}
	}
	for running.Len() < b.options.machines { // a watch ends if its client is slower than the changes
		if time.Now().After(late) {
			b.Fatalf("only %d machines run", running.Len())
		}
		var list v1alpha1.OnecloudMachineList
		b.no(e.Client.List(b.ctx, &list, client.InNamespace(e.Namespace)))
		for i := range list.Items {
			note(&list.Items[i])
		}
		w, err := e.Client.Watch(b.ctx, &v1alpha1.OnecloudMachineList{}, client.InNamespace(e.Namespace),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
		b.no(err)
		for running.Len() < b.options.machines && time.Now().Before(late) {
			change, open := <-w.ResultChan()
			m, is := change.Object.(*v1alpha1.OnecloudMachine)
			if !open || !is {
				break
			}
			note(m)
		}
		w.Stop()
	}
}

// requests counts the API requests of the operator and the Jobs.
func (b *bench) requests(e *env.Env, from harness.Mark) {
	all := e.Requests(from, harness.Filter{Watches: true})
	tally := map[string]map[string]int{}
	sum := 0
	for _, q := range all {
		var who string
		switch {
		case q.User == env.OperatorUser:
			who = "operator"
		case strings.Contains(q.User, "onecloud-machine-"):
			who = "Jobs"
		default: // Kubernetes or the benchmark
			continue
		}
		if tally[who] == nil {
			tally[who] = map[string]int{}
		}
		tally[who][env.Verb(q)]++
		tally[who][""]++
		sum++
	}
	n := float64(b.options.machines)
	if b.options.trace {
		for _, who := range slices.Sorted(maps.Keys(tally)) {
			for _, what := range slices.Sorted(maps.Keys(tally[who])) {
				fmt.Fprintf(os.Stderr, "%8s %7.2f  %s\n", who, float64(tally[who][what])/n, cmp.Or(what, "all"))
			}
		}
	}
	each := func(who string) float64 { return float64(tally[who][""]) / n }
	b.add(row{ID: "M2", Metric: fmt.Sprintf("requests to Kubernetes for each of %d machines", b.options.machines), Goal: fmt.Sprintf("≤ %d", requestsPerMachine),
		Result: fmt.Sprintf("%.1f: the operator %.1f, the Job %.1f", float64(sum)/n, each("operator"), each("Jobs"))}, float64(sum)/n <= requestsPerMachine)
}
