// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/kubernetes"
)

// discovery is the API server's description of its kinds.
var discovery = map[string]string{
	"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis":   `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"/api/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node","namespaced":false,"verbs":["get","patch"]}]}`,
}

// The label starts the host agent: a node that would be cut off is not labelled, and the consequences are reported first.
func TestLabel(t *testing.T) {
	m := newMachine(t)
	have, patches := "{}", []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if kinds, asked := discovery[r.URL.Path]; asked {
			_, _ = io.WriteString(w, kinds)
			return
		}
		if r.Method == http.MethodPatch {
			raw, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			patches = append(patches, string(raw))
		}
		fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"node2","labels":%s}}`, have)
	}))
	t.Cleanup(server.Close)
	m.put(t, kubernetes.KubeletKubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"+
		"clusters: [{name: c, cluster: {server: '"+server.URL+"'}}]\n", 0o600)
	m.Facts.Interfaces[0].Leased = []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	if err := LabelPhase().Run(t.Context(), m.Host, m); code(err) != CodeNetworkRisk || len(patches) > 0 {
		t.Errorf("labelled a node that is cut off: %v, %q", err, patches)
	}
	m.Config.Run.Force = true
	m.must(t, LabelPhase())
	if len(patches) != 1 || patches[0] != `{"metadata":{"labels":{"onecloud.yunion.io/host":"enable"}}}` {
		t.Errorf("patches %q", patches)
	}
	if said := strings.Join(m.said, "\n"); !strings.Contains(said, "creates the bridge br0") {
		t.Errorf("says %q", said)
	}
	m.Config.Node.EnableHostAgent = false
	if got := StillHost(t.Context(), m.Host); got != "" {
		t.Errorf("a node that never was one: %q", got)
	}
	have = `{"onecloud.yunion.io/host":"enable"}`
	if got := StillHost(t.Context(), m.Host); !strings.HasSuffix(got, ": ocadm node disable-host-agent "+m.Config.Node.Name) {
		t.Errorf("a compute node that joins without the flag: %q", got)
	}
	m.Config.Node.EnableHostAgent = true
	if got := StillHost(t.Context(), m.Host); got != "" {
		t.Errorf("a compute node that joins with the flag: %q", got)
	}
	if ran, err := m.run(t, LabelPhase()); err != nil || len(ran) > 0 {
		t.Errorf("a second run does %v, %v", ran, err)
	}
}
