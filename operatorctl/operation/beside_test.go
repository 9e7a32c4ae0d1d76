// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
)

func renewal(name string, at int, phase v1alpha1.OperationPhase, control string) *v1alpha1.OnecloudOperation {
	o := op(name, at, phase, control)
	o.Spec.Action = v1alpha1.ActionRenewCertificates
	return o
}

// Actions that do not change the cloud run whatever the cloud's operation does, and delay none. One of each runs at a time.
func TestBeside(t *testing.T) {
	actions := append(Actions(catalog.All()), Action{Name: v1alpha1.ActionRenewCertificates, Beside: true}, Action{Name: "Look", Beside: true})
	look := op("l", 9, "", "")
	look.Spec.Action = "Look"
	machine := op("m", 1, "Running", "")
	machine.Spec.Machine = &v1alpha1.MachineParameters{Name: "m"}
	for name, c := range map[string]struct {
		all     []*v1alpha1.OnecloudOperation
		run     string
		beside  []string
		pending map[string]string
	}{
		"an update that could not be reverted rests": {
			all: []*v1alpha1.OnecloudOperation{updateOp("u", 1, "Paused", "v2"), renewal("r", 2, "Pending", ""), backupOp("b", 3, "", "host")},
			run: "u", beside: []string{"r"}, pending: map[string]string{"b": "waiting for operation u"},
		},
		"an update begins beside a renewal": {
			all: []*v1alpha1.OnecloudOperation{renewal("r", 1, "Running", ""), updateOp("u", 2, "", "v2")},
			run: "u", beside: []string{"r"},
		},
		"each operation of the cloud": {
			all: []*v1alpha1.OnecloudOperation{backupOp("b", 1, "Running", "host"), renewal("r", 2, "", "")},
			run: "b", beside: []string{"r"},
		},
		"machines, too": {
			all: []*v1alpha1.OnecloudOperation{machine, renewal("r", 2, "", "")}, beside: []string{"m", "r"},
		},
		"one renewal after the other": {
			all:    []*v1alpha1.OnecloudOperation{renewal("a", 1, "", ""), renewal("b", 2, "", ""), renewal("r", 3, "Running", "")},
			beside: []string{"r"}, pending: map[string]string{"a": "waiting for operation r", "b": "waiting for operation a"},
		},
		"the first that was asked for": {
			all:    []*v1alpha1.OnecloudOperation{renewal("b", 2, "", ""), renewal("a", 1, "Pending", "")},
			beside: []string{"a"}, pending: map[string]string{"b": "waiting for operation a"},
		},
		"a renewal that someone paused keeps its place": {
			all:    []*v1alpha1.OnecloudOperation{renewal("p", 2, "Paused", "pause"), renewal("a", 1, "", "")},
			beside: []string{"p"}, pending: map[string]string{"a": "waiting for operation p"},
		},
		"paused before it started": {
			all:    []*v1alpha1.OnecloudOperation{renewal("p", 1, "", "pause"), renewal("a", 2, "", "")},
			beside: []string{"a"}, pending: map[string]string{"p": "paused before it started"},
		},
		"only one goes on": {
			all: []*v1alpha1.OnecloudOperation{renewal("a", 1, "Running", ""), renewal("b", 2, "Running", "")}, beside: []string{"a"},
		},
		"another action": {
			all: []*v1alpha1.OnecloudOperation{renewal("r", 1, "Running", ""), look}, beside: []string{"r", "l"},
		},
		"it has ended": {
			all: []*v1alpha1.OnecloudOperation{renewal("r", 1, "Failed", ""), renewal("again", 2, "", "")}, beside: []string{"again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := decide(c.all, &v1alpha1.OnecloudCluster{}, actions, 2)
			run, beside := "", []string(nil)
			if d.run != nil {
				run = d.run.Name
			}
			for _, o := range d.beside {
				beside = append(beside, o.Name)
			}
			if c.pending == nil {
				c.pending = map[string]string{}
			}
			if diff := cmp.Diff(c.run, run) + cmp.Diff(c.beside, beside) + cmp.Diff(c.pending, d.pending); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A renewal runs while an update is paused, which continues afterwards.
func TestRenewalDuringAPausedUpdate(t *testing.T) {
	fx := newFixture(t, func(fx *fixture) []Action {
		return []Action{
			{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("check")}},
			{Name: v1alpha1.ActionRenewCertificates, Beside: true, Steps: []Step{fx.does("renew")}},
		}
	})
	fx.create("rests", func(o *v1alpha1.OnecloudOperation) {
		o.Annotations, o.Status.Phase = map[string]string{v1alpha1.AnnotationControl: v1alpha1.OperationPause}, v1alpha1.OperationPaused
	})
	fx.create("renewal", func(o *v1alpha1.OnecloudOperation) { o.Spec.Action = v1alpha1.ActionRenewCertificates })
	fx.until("renewal", v1alpha1.OperationSucceeded)
	fx.until("rests", v1alpha1.OperationPaused)
	fx.control("rests", "")
	fx.until("rests", v1alpha1.OperationSucceeded)
	fx.wantSaid("renew", "check")
}
