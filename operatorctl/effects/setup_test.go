// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/operatorctl/component"
)

// What users set for the console lasts: neither the audit nor a new address of the cloud resets it. The address in a restored database does not last.
func TestAddressOfTheConsole(t *testing.T) {
	const own, ours, before = "https://cloud.example.com", "https://10.0.0.1", "https://10.0.0.9"
	for _, c := range []struct {
		name, stored, recorded, chosen, want string
	}{
		{"a new cloud", "", "", "", ours},
		{"an adopted or restored cloud", before, "", "", ours},
		{"the audit", ours, ours, "", ours},
		{"it was lost", "", ours, "", ours},
		{"set in the console", own, ours, "", own},
		{"the cloud has moved", before, before, "", ours},
		{"set in the console, and the cloud has moved", own, before, "", own},
		{"set in a ConfigMap", own, before, own, own},
		{"set in a ConfigMap before an adoption", own, "", own, own},
	} {
		t.Run(c.name, func(t *testing.T) {
			stored := map[string]any{"platform_name": "x"}
			if c.stored != "" {
				stored["api_server"] = c.stored
			}
			s := kubeserver(t, "", false, nil, func(w http.ResponseWriter, r *http.Request) {
				var body struct {
					Service struct{ Config map[string]map[string]any }
				}
				if strings.HasSuffix(r.URL.Path, "/services/common/config") && json.NewDecoder(r.Body).Decode(&body) == nil {
					stored["api_server"] = body.Service.Config["default"]["api_server"]
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"service": map[string]any{"config": map[string]any{"default": stored}}})
			})
			at := func(address string) Input {
				return Input{Cluster: component.Cluster{LoadBalancer: strings.TrimPrefix(address, "https://")}, Values: map[string]map[string]any{"glance": {}}}
			}
			in := at(ours)
			if c.recorded != "" {
				in.Recorded = map[string]string{"setup/common-config": at(c.recorded).setup(component.Resolved{}, "common-config").Hash}
			}
			if c.chosen != "" {
				region := component.Component{Name: "region", Config: &component.Config{}, Account: &component.Account{}, Endpoints: []component.Endpoint{{Service: "compute_v2"}}}
				in.Order = []string{"etcd", "region"}
				in.Cluster.Components = map[string]component.Resolved{"region": {Component: region, Enabled: true}, "etcd": {Component: component.Component{Name: "etcd"}, Enabled: true}}
				in.Values["region"] = map[string]any{"api_server": c.chosen}
				in.Options = in.Values
			}
			events := 0
			changed, err := tasks["common-config"].do(t.Context(), Clients{Identity: s.Identity, Notify: func(Notice) { events++ }}, in)
			if events == 1 != (c.recorded == "" && c.stored != "" && changed) {
				t.Errorf("%d events", events)
			}
			if err != nil || stored["api_server"] != c.want || changed != (c.stored != c.want) {
				t.Errorf("stored %v, want %s; changed %v, %v", stored["api_server"], c.want, changed, err)
			}
		})
	}
}

// In an adopted cloud, that the administrator may log in to the console is a change, so an event reports it.
func TestConsoleLoginIsReported(t *testing.T) {
	allowed, notices := false, []string{}
	s := kubeserver(t, "", false, nil, func(w http.ResponseWriter, r *http.Request) {
		allowed = allowed || r.Method == http.MethodPatch
		_ = json.NewEncoder(w).Encode(map[string]any{"user": map[string]any{"id": "u", "name": "sysadmin", "allow_web_console": allowed}})
	})
	s.Notify = func(n Notice) { notices = append(notices, n.Text) }
	for _, want := range []bool{true, false} {
		if changed, err := consoleLogin(t.Context(), s, Input{}); changed != want || err != nil {
			t.Errorf("changed %v, %v", changed, err)
		}
	}
	if !slices.Equal(notices, []string{"user sysadmin may now log in to the console"}) {
		t.Errorf("events %q", notices)
	}
}
