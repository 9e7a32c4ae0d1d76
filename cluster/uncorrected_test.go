// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

const invalid = `{name: region, state: Degraded, reason: InvalidOption, message: 'ConfigMap default-region: option "x" is not known to region'}`

func TestUncorrected(t *testing.T) {
	for name, c := range map[string]struct {
		components string
		want       bool
	}{
		"all there":                {"[{name: a, state: Available}]", false},
		"the rest is there":        {"[{name: a, state: Available}, {name: b, state: Disabled}, " + invalid + "]", true},
		"something is on its way":  {"[{name: a, state: Progressing}, " + invalid + "]", false},
		"something else is broken": {"[{name: a, state: Degraded, reason: PodsNotRunning}, " + invalid + "]", false}, // it may heal by itself
		"others wait for it":       {"[{name: a, state: Waiting, blockedBy: [b]}, {name: b, state: Waiting, blockedBy: [keystone, region]}, " + invalid + "]", true},
		"others wait for others":   {"[{name: a, state: Waiting, blockedBy: [keystone]}, " + invalid + "]", false},
	} {
		s, err := statusOf(resource(t, head+"}\nspec: {}\nstatus: {observedGeneration: 2, components: "+c.components+"}").Object)
		require.NoError(t, err)
		if got := s.uncorrected(); (len(got) == 1 && got[0].Name == "region") != c.want || len(got) > 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The wait goes on until the operator has seen the latest change, and restarts when something changes.
func TestWaitForAPerson(t *testing.T) { synctest.Test(t, waitsForAPerson) }

func waitsForAPerson(t *testing.T) {
	var ended error
	done := make(chan struct{})
	w := &uncorrected{end: func(err error) { ended = err; close(done) }}
	look := func(seen, components string) bool {
		t.Helper()
		u := resource(t, head+"}\nspec: {}\nstatus: {observedGeneration: "+seen+", components: ["+components+"]}")
		s, err := statusOf(u.Object)
		require.NoError(t, err)
		w.look(u, s)
		return w.timer != nil
	}
	for _, step := range []struct {
		seen, components string
		ends             bool
	}{
		{"1", invalid, false}, {"2", "{name: a, state: Progressing}, " + invalid, false}, {"2", invalid, true},
		{"2", "{name: region, state: Progressing}", false}, {"2", invalid, true},
	} {
		if look(step.seen, step.components) != step.ends {
			t.Errorf("after %+v it is to end: %t", step, !step.ends)
		}
	}
	first := w.timer
	if look("2", invalid); w.timer != first {
		t.Error("the same state begins again")
	}
	if <-done; !errors.Is(ended, errUncorrected) {
		t.Errorf("ended by %v", ended)
	}
}

func TestWhatToCorrect(t *testing.T) {
	s, err := statusOf(resource(t, head+"}\nspec: {}\nstatus: {components: ["+invalid+"]}").Object)
	require.NoError(t, err)
	for key, want := range map[client.ObjectKey]string{
		{Namespace: "onecloud", Name: "default"}: "kubectl -n onecloud edit configmap default-region   # list options: ocadm component options list region\nocadm cluster status --wait",
		{Namespace: "tenant-b", Name: "b"}: "kubectl -n tenant-b edit configmap b-region   # list options: ocadm component options list region --name b --namespace tenant-b\n" +
			"ocadm cluster status --wait --name b --namespace tenant-b",
	} {
		f, ok := errors.AsType[finding.Finding](toCorrect(key, s))
		if !ok || f.Remedy != want || !strings.Contains(f.Cause, `option "x"`) || f.Code != "OCA-7013" {
			t.Errorf("%+v", f)
		}
	}
}
