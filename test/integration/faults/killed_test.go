// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
)

// moments returns the effects of a step at which operators die: the first operator at the first number, the next at the second, as far as the step
// has that many. At least one dies in each step. Steps that copy databases have hundreds of effects.
func moments() []int {
	if os.Getenv("OCADM_SWEEP") == "" {
		return []int{1, 30, 90}
	}
	return []int{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377}
}

// killer kills operators within the steps of an operation, one after another.
type killer struct {
	mu sync.Mutex
	// step is the current one, effects the number of effects of the current operator in it.
	step    string
	effects int
	// killed counts the kills in each step.
	killed map[string]int
}

// reports reads the current step.
func (k *killer) reports(body string) {
	var patch struct{ Status struct{ Step string } }
	if json.Unmarshal([]byte(body), &patch) != nil || patch.Status.Step == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.step != patch.Status.Step {
		k.step, k.effects = patch.Status.Step, 0
	}
}

// dies counts an effect. Every second operator of a step dies after its last effect, the others before.
func (k *killer) dies(string) (die, after bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	done := k.killed[k.step]
	k.effects++
	if at := moments(); k.step == "" || done >= len(at) || k.effects < at[done] {
		return false, false
	}
	k.killed[k.step]++
	k.effects = 0
	return true, done%2 == 1
}

// lives starts an operator and waits until it has died or the operation has ended.
func (u *updated) lives(t *testing.T, k *killer, name string) (o *v1alpha1.OnecloudOperation) {
	t.Helper()
	w := &faulty{Env: u.Env}
	operator := w.startOne(t, &operator{dies: k.dies, reports: k.reports}, func(o *operatorctl.Options) { o.Operations.Settle = time.Second })
	defer operator.stop(t)
	o = &v1alpha1.OnecloudOperation{}
	u.Eventually(func() (bool, string) {
		u.Get(o, name)
		return env.Ended(o) || operator.isDead(), fmt.Sprintf("%s: %s\n%s", o.Status.Phase, o.Status.Message, operator.tail(12))
	})
	u.Get(o, name)
	return o
}

// onlyKnownCopies checks that the only databases other than the cloud's are sets of copies that the operation names.
func (u *updated) onlyKnownCopies(t *testing.T, o *v1alpha1.OnecloudOperation) {
	t.Helper()
	out := u.SQL(u.DB, "SHOW DATABASES LIKE 'ocadm%'")
	var prefixes []string
	if d := o.Status.Databases; d != nil {
		for _, c := range append(slices.Clone(d.Replaced), *d.Saved) {
			prefixes = append(prefixes, c.Prefix)
		}
	}
	for _, name := range strings.Fields(out) {
		known := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) || name+"_" == p })
		if strings.HasPrefix(name, "ocadm_") && !known {
			t.Errorf("database %s is left, beside %q", name, prefixes)
		}
	}
}

// TestUpdateOfKilledOperator kills the operator in each step of an update and of its rollback, several times in steps with many effects. A sent
// request may or may not have taken effect, and its response is lost. The next operator continues, and the cloud ends entirely new or entirely old.
func TestUpdateOfKilledOperator(t *testing.T) {
	u := newUpdated(t, []string{"keystone", "region", "glance", "host"})
	u.StopOperator()
	for _, c := range []struct {
		name   string
		broken program.Failure
		want   v1alpha1.OperationPhase
		steps  []string
	}{
		{"there and back", program.AtStart, v1alpha1.OperationReverted, []string{"hold", "save", "release", "wave-identity", "databases-back", "restore-release"}},
		{"there", "", v1alpha1.OperationSucceeded, []string{"hold", "save", "release", "wave-identity", "wave-region", "wave-services", "wave-agents"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := u.in(t)
			u.publish("glance", c.broken)
			defer u.publish("glance", "")
			name, began := strings.ReplaceAll(c.name, " ", "-"), time.Now()
			u.update(name)
			k := &killer{killed: map[string]int{}}
			o := u.lives(t, k, name)
			for !env.Ended(o) {
				o = u.lives(t, k, name)
			}
			var lines []string
			for _, step := range slices.Sorted(maps.Keys(k.killed)) {
				lines = append(lines, fmt.Sprintf("%s %d", step, k.killed[step]))
			}
			t.Logf("%s in %.0f s, killed in: %s", o.Status.Phase, time.Since(began).Seconds(), strings.Join(lines, ", "))
			if o.Status.Phase != c.want {
				t.Errorf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
			}
			for _, step := range c.steps {
				if k.killed[step] == 0 {
					t.Errorf("it was not killed in step %s", step)
				}
			}
			u.StartOperator()
			defer u.StopOperator()
			u.entirely(t, name, o)
			u.onlyKnownCopies(t, o)
		})
	}
}
