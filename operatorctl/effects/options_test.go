// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"testing"

	"yunion.io/x/ocadm/operatorctl/component"
)

func TestOptionsArePlannedWherePeopleChoseThem(t *testing.T) {
	region := component.Resolved{Enabled: true, Component: component.Component{
		Name: "region", Account: &component.Account{User: "regionadmin"}, Endpoints: []component.Endpoint{{Service: "region2", Type: "compute_v2"}},
	}}
	in := Input{Options: map[string]map[string]any{"region": {"request_worker_count": int64(8), "port": int64(30888), "admin_user": "x"}}}
	if got := in.options(region); got != nil {
		t.Fatalf("planned although nobody changed an option: %+v", got)
	}
	in.Chosen = map[string]bool{"region": true}
	first := in.options(region)
	if len(first) != 1 || first[0].Key != "options/region" || first[0].Stage != Before {
		t.Fatalf("%+v", first)
	}
	in.Options["region"]["port"] = int64(1)
	if again := in.options(region); again[0].Hash != first[0].Hash {
		t.Error("an option that is never stored changes the hash")
	}
	in.Options["region"]["request_worker_count"] = int64(16)
	if again := in.options(region); again[0].Hash == first[0].Hash {
		t.Error("a changed option does not change the hash")
	}
	// Taken back by its owner: what was stored once must follow.
	in.Chosen, in.Recorded = nil, map[string]string{"options/region": "x"}
	if got := in.options(region); len(got) != 1 {
		t.Error("a choice that was taken back stays in the identity service")
	}
}

func TestStored(t *testing.T) {
	for option, want := range map[string]bool{"request_worker_count": true, "port": false, "ssl_keyfile": false, "admin_password": false, "api_server": true} {
		if Stored(option) != want {
			t.Errorf("Stored(%q) = %v", option, !want)
		}
	}
}
