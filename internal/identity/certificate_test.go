// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A renewed certificate exists beside the old one until the endpoints refer to it; then the old one is removed.
func TestEnsureCertificateIsReplacedWithoutAGap(t *testing.T) {
	f := newFake(t)
	c := f.client()
	if _, _, err := c.EnsureService(t.Context(), f.snapshot(c), "etcd", "etcd"); err != nil {
		t.Fatal(err)
	}
	register := func(pem string, stop bool) (bool, error) {
		s := f.snapshot(c)
		id, stored, err := c.EnsureCertificate(t.Context(), s, "etcd", Certificate{PEM: pem, KeyPEM: "key of " + pem, CAPEM: "ca"})
		if err != nil || stop {
			return stored, err
		}
		set, err := c.EnsureEndpoint(t.Context(), s, Endpoint{
			ServiceID: "etcd", RegionID: "region0", Interface: "internal", URL: "https://etcd:2379", Enabled: true, CertificateID: id,
		})
		return stored || set, err
	}
	steps := []struct {
		pem string
		// stopped is true if the operator ends before it registers the endpoint.
		stopped, changed bool
		names            []string
	}{
		{"one", false, true, []string{"etcd-7692c3ad"}},
		{"one", false, false, []string{"etcd-7692c3ad"}},
		{"two", true, true, []string{"etcd-7692c3ad", "etcd-3fc4ccfe"}},
		{"two", true, false, []string{"etcd-7692c3ad", "etcd-3fc4ccfe"}},
		{"two", false, true, []string{"etcd-7692c3ad", "etcd-3fc4ccfe"}},
		{"two", false, true, []string{"etcd-3fc4ccfe"}},
		{"two", false, false, []string{"etcd-3fc4ccfe"}},
	}
	for i, step := range steps {
		changed, err := register(step.pem, step.stopped)
		if err != nil {
			t.Fatal(i, err)
		}
		var names []string
		for _, r := range f.tables["servicecertificates"] {
			name, _ := r["name"].(string)
			names = append(names, name)
		}
		if changed != step.changed || !cmp.Equal(names, step.names) {
			t.Errorf("step %d: changed %v, certificates %q", i, changed, names)
		}
	}
}
