// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/test/require"
)

// The exit status of --fix is that of the cause, unless the cause was repaired wherever it was found.
func TestFixedOnlyIfRepairedEverywhere(t *testing.T) {
	found := func(node string) why.Found {
		return why.Found{Fix: &why.Repair{Action: why.Uncordon, Name: node, Node: node, Command: "kubectl uncordon " + node}}
	}
	one, two, unknown := found("one"), found("two"), why.Found{}
	for name, c := range map[string]struct {
		r    why.Report
		want bool
	}{
		"repaired":                        {why.Report{Cause: &one}, true},
		"no repair":                       {why.Report{Cause: &unknown}, false},
		"only another problem":            {why.Report{Cause: &unknown, Others: []why.Found{one}}, false},
		"skipped on another node":         {why.Report{Cause: &one, Same: []why.Found{two}}, false},
		"no cause, and something repairs": {why.Report{Others: []why.Found{one}}, false},
	} {
		k := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: corev1.NodeSpec{Unschedulable: true}}).Build()
		var out bytes.Buffer
		c.r.Symptom = "node/one"
		got, err := (&app{Streams: Streams{Out: &out, Err: &out}}).fix(t.Context(), &whyFlags{yes: true}, k, c.r)
		require.NoError(t, err)
		if got != c.want {
			t.Errorf("%s: fixed is %v\n%s", name, got, &out)
		}
	}
}
