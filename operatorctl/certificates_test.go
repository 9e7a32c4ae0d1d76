// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/pki"
)

func certsSecret(t *testing.T, made time.Time) *corev1.Secret {
	t.Helper()
	ca, err := pki.NewCA(made, "onecloud")
	if err != nil {
		t.Fatal(err)
	}
	data, err := encodePair(ca, keyCACert, keyCAKey)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-certs"}, Data: data}
}

// The cache holds what bears the operator's label, and may be behind. A CA is too dear to be replaced because of that.
func TestCAThatTheCacheDoesNotSeeIsKept(t *testing.T) {
	old := certsSecret(t, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ca := bytes.Clone(old.Data[keyCACert])
	b := newBench(t, interceptor.Funcs{}, newCloud(), old)
	b.reconcile()
	now := &corev1.Secret{}
	b.get(now, old.Name)
	if !bytes.Equal(now.Data[keyCACert], ca) {
		t.Fatal("the CA was replaced")
	}
	if len(now.Data[keyServiceCert]) == 0 {
		t.Fatal("no service certificate was issued")
	}
}

// Near the end of the CA a new leaf would live no longer than the old one: issuing it would only roll every pod, ever more often.
func TestLeafIsNotRenewedWhereTheCAEndsAsEarly(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud(), certsSecret(t, b0.Add(-pki.CALifetime+90*24*time.Hour)))
	leaf := func() []byte {
		s := &corev1.Secret{}
		b.get(s, "default-certs")
		return s.Data[keyServiceCert]
	}
	b.reconcile()
	first := leaf()
	for _, days := range []int{70, 85, 89} {
		b.clock = b0.Add(time.Duration(days) * 24 * time.Hour)
		if res := b.reconcile(); res.RequeueAfter < 100*time.Millisecond {
			t.Errorf("%d days later: the next pass comes after %s", days, res.RequeueAfter)
		}
		if !bytes.Equal(leaf(), first) {
			t.Fatalf("%d days later: renewed", days)
		}
	}
	b.clock = b0.Add(91 * 24 * time.Hour)
	if _, err := b.r.Reconcile(t.Context(), request()); err == nil || !strings.Contains(err.Error(), "default-certs") {
		t.Fatalf("a CA that has ended is not reported: %v", err)
	}
}
