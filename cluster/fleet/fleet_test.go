// SPDX-License-Identifier: Apache-2.0

package fleet

import "testing"

// Common settings of machines count for each of them, unless the machine overrides them. Without any, the digest is that of earlier versions.
func TestDigestOfCommonSettings(t *testing.T) {
	of := func(role string, common map[string]any, own ...string) string {
		n := &node{Fleet: &Fleet{Options: Options{Spec: &Spec{Settings: map[string]any{"node": common}}}}, m: &Machine{Name: "a"}, role: role}
		n.m.Settings.RegistryMirrors = own
		return n.digest()
	}
	a, b := map[string]any{"registryMirrors": []any{"docker.io=https://a.example"}}, map[string]any{"registryMirrors": []any{"docker.io=https://b.example"}}
	for _, role := range []string{roleFirst, roleControlPlane, roleWorker} {
		if of(role, a) == of(role, b) {
			t.Errorf("%s: a changed setting is ignored", role)
		}
	}
	if of(roleWorker, a, "docker.io=https://c.example") != of(roleWorker, b, "docker.io=https://c.example") {
		t.Error("a setting that the worker overrides counts")
	}
	if got := of(roleWorker, nil); got != of(roleWorker, map[string]any{"depot": "none"}) {
		t.Error("a setting that machines do not have counts")
	}
}

// TestEndpoint checks that machines are checked with an endpoint that join accepts.
func TestEndpoint(t *testing.T) {
	for given, want := range map[string]string{
		"": "192.0.2.1:6443", "lb.example.org": "lb.example.org:6443", "192.0.2.9:8443": "192.0.2.9:8443", "fd00::1": "[fd00::1]:6443",
		"[fd00::1]": "[fd00::1]:6443", "[fd00::1]:8443": "[fd00::1]:8443",
	} {
		f := &Fleet{Options: Options{Spec: &Spec{Settings: map[string]any{"cluster": map[string]any{"controlPlaneEndpoint": given}}}}}
		f.nodes = []*node{{Fleet: f, m: &Machine{Address: "192.0.2.1"}}}
		if got := f.endpoint(); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
