// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// samples are the numbers of points to try when time is short. OCADM_SWEEP=all tries every point, OCADM_SWEEP=TEXT those whose name contains the text.
var samples = map[string]int{"TestCrashOnInstall": 10, "TestCrashOnUpgrade": 4, "TestCrashOnDelete": 4}

// TestCrashOnInstall kills the operator before and after each of its effects during a first installation: every mutating request to the API server,
// every statement, every mutating request to the services. Another operator must then reach the same final state as an undisturbed one, with the same
// secrets.
func TestCrashOnInstall(t *testing.T) {
	w := use(t)
	want, effects := w.undisturbed(t)
	w.sweep(t, effects, func(t *testing.T, p point) ([]string, bool) {
		w.In(t).Clean()
		return w.crash(t, p, want, env.IsReady, func(t *testing.T) { w.In(t).Create(w.minimal()) })
	})
}

// TestStopOnInstall checks that an operator that is asked to stop completes its current request: an API server that is interrupted while it creates a
// Service keeps its port for ten minutes.
func TestStopOnInstall(t *testing.T) {
	w := use(t)
	for _, at := range []string{"default-etcd", "default-glance", "default-web"} {
		w.In(t).Clean()
		began, _ := passes(t)
		first := w.startOne(t, &operator{orderly: true, kill: &point{what: "PATCH /api/v1/services/" + at, nth: 1}})
		w.In(t).Create(w.minimal())
		select {
		case <-first.killed:
		case <-time.After(env.Patience):
			t.Fatalf("it has not come to the Service %s", at)
		}
		first.stop(t)
		secrets := w.secrets(t)
		second := w.start(t, nil)
		w.untilReady(t, second, began)
		second.stop(t)
		now := w.secrets(t)
		for key, was := range secrets { // certificates may be added to them
			if now[key] != was {
				t.Errorf("%s is another", key)
			}
		}
	}
}

// TestCrashOnUpgrade does the same while a cloud repeatedly changes to another release, without waves, and back. TestUpdateOfKilledOperator does it to operations.
func TestCrashOnUpgrade(t *testing.T) {
	w := use(t)
	versions := []string{"v4.0.5", "v4.0.4"}
	began, _ := passes(t)
	o := w.start(t, nil)
	w.In(t).Create(w.minimal())
	w.untilReady(t, o, began)
	want := map[string]map[string]string{}
	var effects []point
	for _, v := range versions {
		before := len(o.all())
		w.move(t, o, v)
		want[v] = withoutGenerations(w.state(t))
		if v == versions[0] {
			effects = o.all()[before:]
		}
	}
	o.stop(t)
	effects = renumbered(effects)
	turn := 0
	w.sweep(t, effects, func(t *testing.T, p point) ([]string, bool) {
		version := versions[turn%2]
		turn++
		generations := w.generations(t)
		wrong, met := w.crash(t, p, nil, env.IsReady, func(t *testing.T) { w.In(t).MoveAtOnce(version) })
		wrong = append(wrong, differences(want[version], withoutGenerations(w.state(t)))...)
		for name, now := range w.generations(t) {
			if now != generations[name]+1 {
				wrong = append(wrong, fmt.Sprintf("%s was changed %d times", name, now-generations[name]))
			}
		}
		return wrong, met
	})
}

// TestCrashOnDelete does the same while a cloud is deleted with its databases.
func TestCrashOnDelete(t *testing.T) {
	w := use(t)
	install := func(t *testing.T) {
		w.In(t).Clean()
		began, _ := passes(t)
		o := w.start(t, nil)
		cr := w.minimal()
		cr.Spec.DeletionPolicy = v1alpha1.Delete
		w.In(t).Create(cr)
		w.untilReady(t, o, began)
		o.stop(t)
	}
	install(t)
	o := w.start(t, nil)
	w.remove(t)
	w.untilGone(t, o)
	o.stop(t)
	want, effects := w.state(t), o.all()
	w.sweep(t, effects, func(t *testing.T, p point) ([]string, bool) {
		install(t)
		return w.crash(t, p, want, func(cr *v1alpha1.OnecloudCluster) bool { return cr == nil }, func(t *testing.T) { w.remove(t) })
	})
}

func (w *faulty) remove(t testing.TB) {
	t.Helper()
	require.NoError(t, w.Client.Delete(t.Context(), w.minimal()))
}

func (w *faulty) untilGone(t testing.TB, o *operator) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), env.Patience)
	defer cancel()
	if err := kube.WaitGone(ctx, w.Client, w.minimal(), func(client.Object) string { return "it is still there" }, func(string) {}); err != nil {
		t.Fatalf("%v\n%s\n%s", err, env.States(w.In(t).TryCloud()), o.tail(12))
	}
}

func (w *faulty) move(t *testing.T, o *operator, version string) {
	t.Helper()
	began, _ := passes(t)
	w.In(t).MoveAtOnce(version)
	w.untilReady(t, o, began)
}

// generations returns how many times each workload was changed.
func (w *faulty) generations(t testing.TB) map[string]int64 {
	t.Helper()
	var list appsv1.DeploymentList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(namespace)))
	out := map[string]int64{}
	for _, d := range list.Items {
		out[strings.TrimPrefix(d.Name, cloud+"-")] = d.Generation
	}
	return out
}

var generation = regexp.MustCompile(`(?m)^ *((observedG|g|deprecated\.daemonset\.template\.g)eneration|onecloud\.yunion\.io/update-at-once): "?\d+"?$\n`)

func withoutGenerations(state map[string]string) map[string]string {
	for k, v := range state {
		state[k] = generation.ReplaceAllString(v, "")
	}
	return state
}

// undisturbed installs a cloud twice, and returns the final state and the effects at which an operator may die. The second run detects differences
// between installations without any crash.
func (w *faulty) undisturbed(t *testing.T) (want map[string]string, effects []point) {
	t.Helper()
	for range 2 {
		w.In(t).Clean()
		began, _ := passes(t)
		o := w.start(t, nil)
		w.In(t).Create(w.minimal())
		w.untilReady(t, o, began)
		state := w.state(t)
		o.stop(t)
		if want != nil {
			for _, d := range differences(want, state) {
				t.Errorf("two installations differ: %s", d)
			}
		}
		want, effects = state, o.all()
	}
	if t.Failed() {
		t.FailNow()
	}
	return want, effects
}

func beforeAndAfter(effects []point) []point {
	var points []point
	for _, e := range effects {
		after := e
		after.after = true
		points = append(points, e, after)
	}
	return points
}

// alike matches repeated requests for records that differ only in their names: the standard policies and roles.
var alike = regexp.MustCompile(`^POST default-keystone\S*/v3/(policies|roles|roles/\S+/add-policy)( |$)`)

// fewAlike keeps a few effects of each kind of similar ones, spread over all of them.
func fewAlike(effects []point) []point {
	kinds := map[string][]point{}
	out := slices.DeleteFunc(slices.Clone(effects), func(p point) bool {
		m := alike.FindStringSubmatch(p.what)
		if m == nil {
			return false
		}
		_, action, _ := strings.Cut(m[1], "*/")
		kind := m[1][:1] + action
		kinds[kind] = append(kinds[kind], p)
		return true
	})
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, spread(kinds[kind], 5)...)
	}
	return out
}

// spread returns n points at equal distances, including the first and the last.
func spread(points []point, n int) []point {
	if len(points) <= n {
		return points
	}
	out := make([]point, n)
	for i := range out {
		out[i] = points[i*(len(points)-1)/(n-1)]
	}
	return out
}

// renumbered counts effects from here on: the operator that repeats them has not done those before.
func renumbered(effects []point) []point {
	times := map[string]int{}
	out := slices.Clone(effects)
	for i := range out {
		times[out[i].what]++
		out[i].nth = times[out[i].what]
	}
	return out
}

// sweep tries the moments before and after each effect, or a sample, and prints a table of failures.
func (w *faulty) sweep(t *testing.T, effects []point, try func(*testing.T, point) (wrong []string, met bool)) {
	t.Helper()
	points := beforeAndAfter(fewAlike(effects))
	switch chosen := os.Getenv("OCADM_SWEEP"); chosen {
	case "all":
	case "":
		points = spread(points, samples[t.Name()])
	default:
		points = slices.DeleteFunc(points, func(p point) bool { return !strings.Contains(p.String(), chosen) })
	}
	began := time.Now()
	var failed []string
	missed := 0
	for i, p := range points {
		wrong, met := try(t, p)
		if !met {
			missed++ // one run may report its status less often than another
		}
		if len(wrong) > 0 {
			failed = append(failed, fmt.Sprintf("%4d  %s\n      %s", i+1, p, strings.Join(wrong, "\n      ")))
		}
		t.Logf("%d of %d: %s: met %t, %d wrong", i+1, len(points), p, met, len(wrong)) // so that an interrupted run has some output
	}
	t.Logf("%d effects, %d points tried in %s: %d not met, %d failed", len(effects), len(points), time.Since(began).Round(time.Second), missed, len(failed))
	if missed > len(points)/4 {
		t.Errorf("%d of %d points were not met: the effects are not the same from one run to the next", missed, len(points))
	}
	if len(failed) > 0 {
		t.Errorf("failed:\n%s", strings.Join(failed, "\n"))
	}
}

// crash makes an operator die at a point during an action, and has another one finish it.
func (w *faulty) crash(t *testing.T, p point, want map[string]string, finished func(*v1alpha1.OnecloudCluster) bool, act func(*testing.T)) (wrong []string, met bool) {
	t.Helper()
	began, _ := passes(t)
	first := w.start(t, &p)
	defer first.stop(t)
	act(t)
	if !w.metOrFinished(t, first, began, finished) {
		return nil, false
	}
	first.stop(t)
	before := w.secrets(t)
	began, _ = passes(t)
	second := w.start(t, nil)
	defer second.stop(t)
	w.metOrFinished(t, second, began, finished)
	after := w.secrets(t)
	for name, old := range before {
		if now, there := after[name]; there && now != old {
			wrong = append(wrong, "another "+name)
		}
	}
	if want == nil {
		return wrong, true
	}
	return append(wrong, differences(want, w.state(t))...), true
}

// metOrFinished waits until the operator has died, or has finished without reaching its point.
func (w *faulty) metOrFinished(t *testing.T, o *operator, since float64, finished func(*v1alpha1.OnecloudCluster) bool) bool {
	t.Helper()
	deadline := time.Now().Add(env.Patience)
	for calm, last := 0, -1.0; calm < 3; {
		select {
		case <-o.killed:
			return true
		case <-time.After(15 * time.Millisecond):
		}
		ended, busy := passes(t)
		calm++
		if ended <= since || busy || ended != last || !finished(w.In(t).TryCloud()) {
			calm = 0
		}
		last = ended
		if time.Now().After(deadline) {
			t.Fatalf("neither killed nor finished:\n%s\n%s", env.States(w.In(t).TryCloud()), o.tail(12))
		}
	}
	return o.isDead()
}
