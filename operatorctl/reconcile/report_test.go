// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The pass that sees the last component on the new release says so: there may be no other pass before the next audit.
func TestUpgradeEndsInThePassThatSeesItsEnd(t *testing.T) {
	cr := newCloud()
	cr.Status.Version, cr.Status.Phase = "v4.0.0", v1alpha1.PhaseUpgrading
	table, err := newCatalogue("", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &Desired{catalog: table, Cluster: component.Cluster{Version: "v4.0.4"}}
	for _, c := range table.components {
		d.Components = append(d.Components, &target{Resolved: component.Resolved{Component: c, DisabledReason: "disabled in spec"}})
	}
	s, _, _ := report(State{Cloud: cr, Done: nothingDone()}, d)
	if s.Version != "v4.0.4" || s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("version %s, phase %s", s.Version, s.Phase)
	}
}

// Messages are cut before they are redacted; a cut in the middle of a secret must not leave its beginning.
func TestRedactedSecretThatWasCut(t *testing.T) {
	secrets := component.Credentials{"a": "abcdefghijklmnopqrstuvwx"}
	for in, want := range map[string]string{
		"dsn root:abcdefghijklmnopqrstuvwx@db": "dsn root:***@db",
		"dsn root:abcdefghijklm…":              "dsn root:***…",
		"dsn root:abcdefghijklmnopqrstuvw…; b": "dsn root:***…; b",
		"an alphabet…":                         "an alphabet…",
	} {
		if got := redact(in, secrets); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}
