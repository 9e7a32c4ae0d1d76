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
	s := f.snapshot(c)
	if _, _, err := c.EnsureService(t.Context(), s, "etcd", "etcd"); err != nil {
		t.Fatal(err)
	}
	register := func(pem string) (bool, error) {
		id, stored, err := c.EnsureCertificate(t.Context(), "etcd", Certificate{PEM: pem, KeyPEM: "key of " + pem, CAPEM: "ca"})
		if err != nil {
			return false, err
		}
		set, err := c.EnsureEndpoint(t.Context(), s, Endpoint{
			ServiceID: "etcd", RegionID: "region0", Interface: "internal", URL: "https://etcd:2379", Enabled: true, CertificateID: id,
		})
		return stored || set, err
	}
	steps := []struct {
		pem     string
		changed bool
		names   []string
	}{
		{"one", true, []string{"etcd-7692c3ad"}},
		{"one", false, []string{"etcd-7692c3ad"}},
		{"two", true, []string{"etcd-7692c3ad", "etcd-3fc4ccfe"}},
		{"two", true, []string{"etcd-3fc4ccfe"}},
		{"two", false, []string{"etcd-3fc4ccfe"}},
	}
	for i, step := range steps {
		changed, err := register(step.pem)
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
