// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

func TestExpiry(t *testing.T) {
	for _, c := range []struct {
		lasts time.Duration
		code  string
		exit  int
	}{{-time.Hour, "OCA-4301", 43}, {10 * day, "OCA-4401", 44}, {90 * day, "", 0}, {373 * day, "OCA-4301", 43}} {
		h := controlPlaneEnding(t, c.lasts)
		list, err := Certificates(h, time.Now(), 30*day)
		if err != nil || len(list) != 6 { // two leaves, the kubelet's, three CAs
			t.Fatalf("%d certificates, %v", len(list), err)
		}
		err = Expiry(list, "node1")
		if got := finding.Of(err); c.code == "" && err != nil || c.code != "" && (len(got) != 1 || got[0].Code != c.code) || finding.ExitStatus(err) != c.exit {
			t.Errorf("lasts %s: %v, status %d", c.lasts, err, finding.ExitStatus(err))
		}
	}
}

// A CA is not renewed: the next command is the one that replaces it.
func TestExpiryOfAuthority(t *testing.T) {
	for state, want := range map[string]string{CertificateSoon: "certs rotate-ca", CertificateExpired: "create the cluster again"} {
		list := []Certificate{{Kind: kindControlPlane, State: state}, {Kind: kindAuthority, State: state}}
		if got := finding.Of(Expiry(list, "node1")); len(got) != 1 || !strings.Contains(got[0].Remedy, want) {
			t.Errorf("%s: %+v", state, got)
		}
		if got := finding.Of(Expiry(list[:1], "node1")); len(got) != 1 || !strings.HasPrefix(got[0].Remedy, "ocadm certs renew") {
			t.Errorf("%s, without an authority: %+v", state, got)
		}
	}
}
