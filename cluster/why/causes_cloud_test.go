// SPDX-License-Identifier: Apache-2.0

package why

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExpiredCertificateFirst: what the services and the operator report after their certificate has expired is not the cause.
func TestExpiredCertificateFirst(t *testing.T) {
	const says = `Post "https://default-keystone:30500/v3/auth/tokens": tls: failed to verify certificate: x509: certificate has expired or is not yet valid`
	for _, c := range []struct {
		name    string
		change  func(*Snapshot)
		explain bool
	}{
		{"an option", func(s *Snapshot) { s.logs("default-region", "[fatal] Unknown optional argument no-such-option") }, false},
		{"a crash", func(s *Snapshot) { s.logs("default-region", "bye") }, false},
		{"a log", func(s *Snapshot) { s.logs("default-region", says, "[fatal] parse options") }, true},
		{"the operator", func(s *Snapshot) { s.effect("region", "account/region: "+says) }, true},
	} {
		s := healthy(t)
		s.Cloud.Status.Certificates.NotAfter = metav1.NewTime(s.Time.Add(-time.Hour))
		c.change(s)
		for _, name := range []string{"", "region"} {
			r, _ := Diagnose(s, name)
			if (name == "" || c.explain) && (r.Cause == nil || r.Cause.ID != "cloud-certificates") || c.explain && len(r.Others) > 0 {
				t.Errorf("%s, %q: %+v, not explained %+v", c.name, name, r.Cause, r.Others)
			}
		}
	}
}
