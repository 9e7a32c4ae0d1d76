// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// A cluster may have an older CRD, which accepts what ours rejects. The fake API server validates nothing.
func TestOperatorChecksWhatTheAPIServerShouldHave(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	change := func(patch string) {
		t.Helper()
		require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", patch)(b.api))
		cr := b.cloud()
		cr.Generation++ // the fake client does not count them
		require.NoError(t, b.api.Update(t.Context(), cr))
		b.reconcile()
	}
	degraded := func() string {
		for _, c := range b.cloud().Status.Conditions {
			if c.Type == v1alpha1.ConditionDegraded && c.Reason == status.ReasonInvalid {
				return c.Message
			}
		}
		return ""
	}
	b.reconcile()
	if got := b.cloud().Status.Fixed; got["region"] != "region0" || got["mysql.host"] != "db.example.com" || got["mysql.port"] != "3306" {
		t.Fatalf("%v", got)
	}
	for patch, want := range map[string]string{
		`{"spec":{"region":"other"}}`:             "spec.region: region cannot change",
		`{"spec":{"mysql":{"host":"elsewhere"}}}`: "spec.mysql.host: mysql.host cannot change",
		`{"spec":{"mysql":{"port":3307}}}`:        "spec.mysql.port: mysql.port cannot change",
		`{"spec":{"imageRepository":"http://r"}}`: "spec.imageRepository: omit the scheme",
		`{"spec":{"certSANs":["a b"]}}`:           "spec.certSANs: each entry must be an IP address or a DNS name",
	} {
		change(patch)
		if got := degraded(); !strings.Contains(got, want) {
			t.Errorf("%s: %q", patch, got)
		}
		change(`{"spec":{"region":"region0","mysql":{"host":"db.example.com","port":3306},"imageRepository":null,"certSANs":null}}`)
		if got := degraded(); got != "" {
			t.Fatalf("taken back: %s", got)
		}
	}
	// An error in a block only affects its component.
	change(`{"spec":{"glance":{"replicas":-1},"etcd":{"size":2}}}`)
	if got := degraded(); got != "" {
		t.Errorf("the whole cloud: %s", got)
	}
	for name, want := range map[string]string{"glance": "should be greater than or equal to 0", "etcd": "spec.etcd.size: "} {
		if c := b.component(name); c.State != v1alpha1.Degraded || c.Reason != status.ReasonInvalid || !strings.Contains(c.Message, want) {
			t.Errorf("%+v", c)
		}
	}
	if c := b.component("keystone"); c.State == v1alpha1.Degraded && c.Reason == status.ReasonInvalid {
		t.Errorf("%+v", c)
	}
}

// A corrected cloud that replaces a rejected one ("kubectl replace --force") has the same generation. Nothing else would make the operator look again.
func TestSuccessorOfARejectedCloudIsChecked(t *testing.T) {
	first := newCloud()
	first.Spec.ImageRepository = "http://r.example"
	b := newBench(t, interceptor.Funcs{}, first)
	b.reconcile()
	rejected := b.cloud()
	if rejected.Status.Phase != v1alpha1.PhaseFailed {
		t.Fatalf("it is %s", rejected.Status.Phase)
	}
	rejected.Finalizers = nil
	require.NoError(t, errors.Join(b.api.Update(t.Context(), rejected), b.api.Delete(t.Context(), rejected)))
	next := newCloud()
	next.UID = "the-next-one"
	require.NoError(t, b.api.Create(t.Context(), next))
	b.reconcile()
	if now := b.cloud().Status; now.Phase == v1alpha1.PhaseFailed || len(now.Components) == 0 {
		t.Errorf("it is %s with %d components", now.Phase, len(now.Components))
	}
}
