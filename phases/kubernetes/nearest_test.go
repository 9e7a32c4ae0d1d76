// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// apiServerOf returns an API server whose certificate a CA has signed; it answers every request with a status.
func apiServerOf(t *testing.T, ca pki.Pair, status int) *httptest.Server {
	t.Helper()
	now := time.Now()
	pair, err := pki.Issue(ca, pki.Request{CommonName: "kube-apiserver", Names: []string{"127.0.0.1"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		Usage: pki.Server})
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that trust another CA
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// A control-plane node uses its own API server while the endpoint is silent or is another machine's, but never one signed by another CA, or one that is not
// ready.
func TestNearestAPI(t *testing.T) {
	now := time.Now()
	authority := func(name string) pki.Pair {
		ca, err := pki.NewCA(now.Add(-time.Hour), name, nil)
		require.NoError(t, err)
		return ca
	}
	ca, foreign := authority("kubernetes"), authority("kubernetes")
	closed := apiServerOf(t, ca, http.StatusOK)
	closed.Close()
	stopped := apiServerOf(t, ca, http.StatusOK)
	stopped.Close()
	for name, c := range map[string]struct {
		endpoint, own *httptest.Server
		near, works   bool // near: its own server is used because the endpoint does not answer
	}{
		"the endpoint answers":              {apiServerOf(t, ca, http.StatusOK), apiServerOf(t, ca, http.StatusOK), false, true},
		"the endpoint is not ready":         {apiServerOf(t, ca, http.StatusInternalServerError), apiServerOf(t, ca, http.StatusOK), false, true},
		"no machine has the address":        {closed, apiServerOf(t, ca, http.StatusOK), true, true},
		"another machine has it":            {apiServerOf(t, foreign, http.StatusOK), apiServerOf(t, ca, http.StatusOK), true, true},
		"the certificate has expired":       {closed, apiServerOf(t, ca, http.StatusUnauthorized), true, true},
		"the own one is not ready":          {closed, apiServerOf(t, ca, http.StatusInternalServerError), false, false},
		"the own one is of another cluster": {closed, apiServerOf(t, foreign, http.StatusOK), false, false},
		"none answers":                      {closed, stopped, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
			require.NoError(t, err)
			at := c.own.Listener.Addr().String()
			write(t, h, manifest("kube-apiserver"), fmt.Sprintf(`{"metadata":{"annotations":{"kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint":%q}}}`, at))
			write(t, h, AdminKubeconfig, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],
"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],"current-context":"c","users":[{"name":"u","user":{"token":"x"}}]}`, c.endpoint.URL, base64.StdEncoding.EncodeToString(ca.CertPEM())))
			why := AskNearest(t.Context(), h)
			now, err := h.REST(t.Context())
			if err != nil || (why != "") != c.near || strings.HasSuffix(now.Host, at) != c.near || now.BearerToken != "x" {
				t.Errorf("%q asks %s, %v", why, now.Host, err)
			}
			h.Reopen()
			AskOwn(t.Context(), h)
			if now, err = h.REST(t.Context()); err != nil || strings.HasSuffix(now.Host, at) != c.works {
				t.Errorf("before the endpoint is given up, it asks %s, %v", now.Host, err)
			}
		})
	}
	if _, why := NearestAPI(t.Context(), &host.Host{Files: host.Files{Root: t.TempDir()}}, &rest.Config{Host: closed.URL}); why != "" {
		t.Errorf("a machine that is no control-plane node: %s", why)
	}
}
