// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// A rotation that was killed while it restarted the only API server continues as soon as that is ready; a command that only looks does not wait.
func TestRotationWaitsForTheAPIServer(t *testing.T) {
	var asked, readyAfter atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ready := asked.Add(1) > readyAfter.Load()
		if r.URL.Path == "/readyz" && ready {
			return
		}
		code, reason := http.StatusServiceUnavailable, "ServiceUnavailable"
		if asked.Load() > 2 { // it starts: neither does it know its administrators
			code, reason = http.StatusForbidden, "Forbidden"
		}
		if ready {
			code, reason = http.StatusUnprocessableEntity, "Invalid"
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}))
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	files := host.Files{Root: t.TempDir()}
	for name, text := range map[string]string{
		"/etc/kubernetes/pki/ca.crt": string(ca),
		"/etc/kubernetes/manifests/kube-apiserver.yaml": fmt.Sprintf("metadata: {annotations: {%s: %q}}", constants.KubeAPIServerAdvertiseAddressEndpointAnnotationKey,
			s.Listener.Addr()),
		kubernetes.AdminKubeconfig: fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"+
			"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\nusers: [{name: u, user: {token: t}}]\n", s.URL, base64.StdEncoding.EncodeToString(ca)),
	} {
		require.NoError(t, files.WriteFile(name, []byte(text), 0o600))
	}
	for _, c := range []struct {
		look         bool
		code, prints string
	}{
		{true, "OCA-4203", ""},
		{false, "OCA-7006", "waiting for the API server: "},
	} {
		asked.Store(0)
		readyAfter.Store(4)
		var out strings.Builder
		_, err := (&app{Streams: Streams{Out: &out, Err: &out}}).beginRotation(t.Context(), &host.Host{Files: files}, c.look)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != c.code || !strings.HasPrefix(out.String(), c.prints) || c.prints == "" && out.Len() > 0 {
			t.Errorf("only looking %t: %v, %q", c.look, err, out.String())
		}
	}
}
