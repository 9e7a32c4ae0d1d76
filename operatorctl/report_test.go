// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The pass that sees the last component on the new release says so: there may be no other pass before the next audit.
func TestUpgradeEndsInThePassThatSeesItsEnd(t *testing.T) {
	cr := newCloud()
	cr.Status.Version, cr.Status.Phase = "v4.0.0", v1alpha1.PhaseUpgrading
	b := newBench(t, interceptor.Funcs{}, cr)
	p := &pass{r: b.r, m: b.r.memoryOf(cloudKey), cr: b.cloud(), log: b.r.log, now: b.clock, byName: map[string]*part{}}
	p.cluster.Version = "v4.0.4"
	for _, c := range b.r.catalog {
		p.byName[c.Name] = &part{Resolved: component.Resolved{Component: c, Why: "disabled in spec"}}
	}
	if err := p.report(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := b.cloud().Status; s.Version != "v4.0.4" || s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("version %s, phase %s", s.Version, s.Phase)
	}
}

// Messages are cut before they are redacted; a cut in the middle of a secret must not leave its beginning.
func TestRedactedSecretThatWasCut(t *testing.T) {
	p := &pass{creds: component.Credentials{"a": "abcdefghijklmnopqrstuvwx"}}
	for in, want := range map[string]string{
		"dsn root:abcdefghijklmnopqrstuvwx@db": "dsn root:***@db",
		"dsn root:abcdefghijklm…":              "dsn root:***…",
		"dsn root:abcdefghijklmnopqrstuvw…; b": "dsn root:***…; b",
		"an alphabet…":                         "an alphabet…",
	} {
		if got := p.redact(in); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}
