// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto/tls"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

const discoveryText = `apiVersion: v1
kind: Config
clusters:
- name: ""
  cluster: {server: "https://SERVER", certificate-authority: ca.crt}
`

// A machine with a discovery file finds the control plane, trusts the CA in the file, and uses the file's token or its own. It learns the cluster's
// networks.
func TestMemberByDiscoveryFile(t *testing.T) {
	ca := issue(t, nil, time.Now().Add(time.Hour))
	server := issue(t, &ca, time.Now().Add(time.Hour), "127.0.0.1")
	s := httptest.NewUnstartedServer(controlPlane{authorised: true})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{server.cert.Raw}, PrivateKey: server.key}}}
	s.StartTLS()
	defer s.Close()
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "SERVER", s.Listener.Addr().String())), 0o600))
		return file
	}
	put("ca.crt", ca.pem)
	user := "users: [{name: u, user: {token: abcdef.0123456789abcdef}}]\ncontexts: [{name: x, context: {cluster: \"\", user: u}}]\ncurrent-context: x\n"
	for name, tt := range map[string]struct{ text, token string }{
		"with a token of its own": {discoveryText + user, ""}, "with --token": {discoveryText, "abcdef.0123456789abcdef"},
	} {
		h := fakeHost(t, nil)
		h.Config.Join = config.Join{DiscoveryFile: put("discovery.conf", tt.text), Token: tt.token}
		endpoint, err := DiscoveredEndpoint(t.Context(), h.Config.Join.DiscoveryFile)
		if err != nil || endpoint != s.Listener.Addr().String() {
			t.Fatalf("%s: %s, %v", name, endpoint, err)
		}
		h.Config.Join.Endpoint = endpoint
		m, err := MemberOf(t.Context(), h)
		if want := (Networking{"10.1.0.0/16", "10.2.0.0/16", "example.internal"}); err != nil || m.Networks != want || m.Token != "abcdef.0123456789abcdef" {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	// From a URL, which kubeadm accepts too. This server's certificate is from an unknown CA.
	if _, err := DiscoveredEndpoint(t.Context(), s.URL); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-0305" {
		t.Errorf("by an address: %v", err)
	}
	for name, file := range map[string]string{
		"absent": filepath.Join(dir, "none"), "no kubeconfig": put("text", "{"), "no cluster": put("empty", "kind: Config\n"),
		"no address": put("address", "kind: Config\nclusters: [{name: a, cluster: {server: x}}]\n"),
	} {
		if _, err := DiscoveredEndpoint(t.Context(), file); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-0305" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
