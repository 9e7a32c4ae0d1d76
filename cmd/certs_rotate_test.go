// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// A rotation that was killed while it restarted the only API server continues as soon as that answers; a command that only looks does not wait.
func TestRotationWaitsForTheAPIServer(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		code, reason := http.StatusServiceUnavailable, "ServiceUnavailable"
		if asked.Add(1) > 2 {
			code, reason = http.StatusForbidden, "Forbidden"
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}))
	defer s.Close()
	files := host.Files{Root: t.TempDir()}
	require.NoError(t, files.WriteFile("/etc/kubernetes/manifests/kube-apiserver.yaml", []byte("{}"), 0o600))
	require.NoError(t, files.WriteFile(kubernetes.AdminKubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: c\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\n", s.URL), 0o600))
	for _, c := range []struct {
		look         bool
		code, prints string
	}{
		{true, "OCA-4203", ""},
		{false, "OCA-4205", "waiting for the API server: "},
	} {
		asked.Store(0)
		var out strings.Builder
		_, err := (&app{Streams: Streams{Out: &out, Err: &out}}).beginRotation(t.Context(), &host.Host{Files: files}, c.look)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != c.code || !strings.HasPrefix(out.String(), c.prints) || c.prints == "" && out.Len() > 0 {
			t.Errorf("only looking %t: %v, %q", c.look, err, out.String())
		}
	}
}
