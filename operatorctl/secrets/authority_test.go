// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

var b0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// next performs the next step of a CA.
func next(data map[string][]byte, now time.Time, served bool) (authority, error) {
	s, a, err := nextStep(data, now, served)
	if err != nil {
		return a, err
	}
	return a.take(s, now, pki.NewKey)
}

// A CA is rotated without breaking trust: both CAs are trusted, then the new one signs, then the old one is dropped. Each step waits for the pods.
func TestCAIsExchangedInSteps(t *testing.T) {
	now := b0
	a, err := next(nil, now, false)
	require.NoError(t, err)
	first := a.pair.Cert
	step := func(served bool) []*x509.Certificate {
		t.Helper()
		if a, err = next(a.data, now, served); err != nil {
			t.Fatal(err)
		}
		trusted, err := pki.ParseCerts(a.trust)
		if err != nil || !trusted[0].Equal(a.pair.Cert) {
			t.Fatalf("the first that is trusted does not sign: %v", err)
		}
		return trusted
	}
	if trusted := step(true); len(trusted) != 1 || a.rotation != "" || !a.next().Equal(first.NotBefore.Add(first.NotAfter.Sub(first.NotBefore)/3*2)) {
		t.Fatalf("at rest: %d trusted, %q, next %s", len(trusted), a.rotation, a.next())
	}
	now = a.next()
	if trusted := step(true); len(trusted) != 2 || !a.pair.Cert.Equal(first) || a.rotation == "" {
		t.Fatal("at two thirds of its life the next CA is not trusted beside it")
	}
	both := step(false)
	if len(both) != 2 || !a.pair.Cert.Equal(first) {
		t.Fatal("the new CA signs while there are pods that do not trust it")
	}
	if trusted := step(true); len(trusted) != 2 || !a.pair.Cert.Equal(both[1]) || !trusted[1].Equal(first) {
		t.Fatal("the new CA does not sign, or the old one is not trusted beside it")
	}
	if trusted := step(false); len(trusted) != 2 {
		t.Fatal("the old CA is dropped while there are pods with its certificates")
	}
	if trusted := step(true); len(trusted) != 1 || !a.pair.Cert.Equal(both[1]) || a.rotation != "" || len(a.data) != 2 {
		t.Fatalf("in the end: %d trusted, %d keys, %q", len(trusted), len(a.data), a.rotation)
	}
}

// If pods never follow, the CA is replaced before it expires, and dropped once it has expired.
func TestCAGivesWayInTime(t *testing.T) {
	now := b0
	a, err := next(nil, now, false)
	require.NoError(t, err)
	first := a.pair.Cert
	for _, c := range []struct {
		at      time.Time
		signs   bool
		trusted int
	}{
		{a.next(), true, 2}, {first.NotAfter.Add(-lastCall - time.Hour), true, 2}, {first.NotAfter.Add(-lastCall), false, 2},
		{first.NotAfter.Add(-time.Hour), false, 2}, {first.NotAfter, false, 1},
	} {
		if a, err = next(a.data, c.at, false); err != nil {
			t.Fatal(err)
		}
		trusted, _ := pki.ParseCerts(a.trust)
		if a.pair.Cert.Equal(first) != c.signs || len(trusted) != c.trusted {
			t.Errorf("at %s: the first CA signs: %t, %d are trusted", c.at, a.pair.Cert.Equal(first), len(trusted))
		}
	}
	// The operator did not run for years.
	old, err := next(nil, b0, false)
	require.NoError(t, err)
	if a, err = next(old.data, old.pair.Cert.NotAfter.Add(time.Hour), false); err != nil || a.pair.Cert.Equal(old.pair.Cert) {
		t.Errorf("a CA that has ended still signs: %v", err)
	}
}

// The content of the Secret is not reformatted: that would restart every pod of an adopted cloud.
func TestCAIsKeptToTheByte(t *testing.T) {
	a, err := next(nil, b0, false)
	require.NoError(t, err)
	a.data[keyCACert] = append([]byte("# the CA of the cloud\n"), a.data[keyCACert]...)
	kept, err := next(a.data, b0, true)
	if err != nil || !bytes.Equal(kept.data[keyCACert], a.data[keyCACert]) || !bytes.Equal(kept.data[keyCAKey], a.data[keyCAKey]) {
		t.Errorf("the CA was rewritten: %v", err)
	}
}
