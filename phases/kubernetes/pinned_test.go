// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

// A server is trusted only if it proves that the pinned CA signed its certificate for its address.
func TestPinnedTLS(t *testing.T) {
	now := time.Now()
	authority := func() pki.Pair {
		ca, err := pki.NewCA(now, "ca", nil)
		require.NoError(t, err)
		return ca
	}
	ours, theirs := authority(), authority()
	leaf := func(ca pki.Pair, address string, begin time.Time) pki.Pair {
		p, err := pki.Issue(ca, pki.Request{CommonName: "x", Names: []string{address}, Usage: pki.Server, NotBefore: begin, Small: true})
		require.NoError(t, err)
		return p
	}
	const here = "127.0.0.1"
	for name, tt := range map[string]struct {
		leaf  pki.Pair
		shown []pki.Pair // after the leaf
		pin   string
		says  string // "" if it is trusted
	}{
		"the pinned authority":              {leaf(ours, here, now), []pki.Pair{ours}, Pin(ours.Cert), ""},
		"in capitals":                       {leaf(ours, here, now), []pki.Pair{ours}, strings.ToUpper(Pin(ours.Cert)), ""},
		"another authority":                 {leaf(theirs, here, now), []pki.Pair{theirs}, Pin(ours.Cert), ErrOtherAuthority.Error()},
		"only shown, not the signer":        {leaf(theirs, here, now), []pki.Pair{ours}, Pin(ours.Cert), "unknown authority"},
		"both shown, signed by the other":   {leaf(theirs, here, now), []pki.Pair{theirs, ours}, Pin(ours.Cert), "unknown authority"},
		"the authority is not shown":        {leaf(ours, here, now), nil, Pin(ours.Cert), ErrOtherAuthority.Error()},
		"the pin of the certificate itself": {leaf(ours, here, now), []pki.Pair{ours}, Pin(leaf(ours, here, now).Cert), ErrOtherAuthority.Error()},
		"another address":                   {leaf(ours, "127.0.0.2", now), []pki.Pair{ours}, Pin(ours.Cert), "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			chain := tls.Certificate{Certificate: [][]byte{tt.leaf.Cert.Raw}, PrivateKey: tt.leaf.Key}
			for _, p := range tt.shown {
				chain.Certificate = append(chain.Certificate, p.Cert.Raw)
			}
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.TLS = &tls.Config{Certificates: []tls.Certificate{chain}}
			s.StartTLS()
			t.Cleanup(s.Close)
			c, err := (&tls.Dialer{Config: PinnedTLS(tt.pin, here)}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
			if err == nil {
				_ = c.Close()
			}
			switch {
			case tt.says == "" && err != nil, tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("%v, want %q", err, tt.says)
			case errors.Is(err, ErrOtherAuthority) != (tt.says == ErrOtherAuthority.Error()):
				t.Errorf("the error is %v", err)
			}
		})
	}
}
