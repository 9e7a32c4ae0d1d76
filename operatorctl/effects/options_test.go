// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// everything returns the whole catalog with everything enabled.
func everything() (component.Cluster, []string) {
	cluster := component.Cluster{Name: "default", Components: map[string]component.Resolved{}}
	var order []string
	for _, c := range catalog.All() {
		cluster.Components[c.Name] = component.Resolved{Component: c, Enabled: true}
		order = append(order, c.Name)
	}
	return cluster, order
}

func TestOptionsAreStoredWhenTheyChange(t *testing.T) {
	cluster, order := everything()
	region := cluster.Components["region"]
	values := map[string]any{"request_worker_count": int64(8), "port": int64(30888), "admin_user": "x"}
	in := Input{Cluster: cluster, Order: order, Options: map[string]map[string]any{"region": values}}
	first := in.options(region)
	if len(first) != 1 || first[0].Key != "options/region" || first[0].Stage != Before {
		t.Fatalf("%+v", first)
	}
	// Nothing can be stored yet: no client is used.
	if changed, err := first[0].Do(t.Context(), Clients{}); changed || err != nil || len(first[0].Needs) > 0 {
		t.Fatalf("the service is asked before its first start: %v", err)
	}
	values["port"] = int64(1)
	if again := in.options(region); again[0].Hash != first[0].Hash {
		t.Error("an option that is never stored changes the hash")
	}
	// Our value changed: the stored value would override the file.
	values["request_worker_count"] = int64(16)
	in.Recorded = map[string]string{"options/region": first[0].Hash}
	moved := in.options(region)
	if moved[0].Hash == first[0].Hash || !slices.Equal(moved[0].Needs, []string{"keystone"}) {
		t.Error("a changed option is not stored")
	}
	// Chosen before the first start: the ConfigMap existed before the cloud.
	in.Recorded, in.Values = nil, map[string]map[string]any{"region": {"request_worker_count": int64(16)}}
	if chosen := in.options(region); !slices.Equal(chosen[0].Follows, []string{"endpoints/region"}) {
		t.Errorf("%+v", chosen[0].Follows)
	}
}

// What users set is recorded, so that it can be removed from the store once they remove the key.
func TestRemovedOptionsAreNoLongerStored(t *testing.T) {
	cluster, order := everything()
	chosen := func(values map[string]map[string]any) Input {
		return Input{Cluster: cluster, Order: order, Values: values, Options: values, Recorded: map[string]string{"options/region": "x"}}
	}
	removals := func(in Input, component string) (keys []string) {
		for _, e := range in.options(in.Cluster.Components[component]) {
			if strings.HasPrefix(e.Key, "option/") && !e.Note {
				keys = append(keys, e.Key)
			}
		}
		return keys
	}
	set := chosen(map[string]map[string]any{"region": {"default_bandwidth": 2000, "log_level": "debug", "time_zone": "UTC"}})
	recorded := map[string]string{"options/region": "x"}
	for _, e := range set.options(cluster.Components["region"]) {
		recorded[e.Key] = e.Hash
	}
	if _, is := recorded["option/region/default_bandwidth"]; !is || len(removals(set, "region")) > 0 {
		t.Fatalf("recorded %v, removed %v", recorded, removals(set, "region"))
	}
	for name, c := range map[string]struct {
		now     Input
		removed []string
	}{
		"one removed":              {chosen(map[string]map[string]any{"region": {"default_bandwidth": 2000}}), []string{"option/region/time_zone"}},
		"all removed":              {chosen(nil), []string{"option/region/default_bandwidth", "option/region/time_zone"}},
		"another component shares": {chosen(map[string]map[string]any{"glance": {"time_zone": "UTC"}}), []string{"option/region/default_bandwidth"}},
		"the operator has a value": {Input{Options: map[string]map[string]any{"region": {"default_bandwidth": 1}}}, []string{"option/region/time_zone"}},
	} {
		in := c.now
		in.Cluster, in.Order, in.Recorded = cluster, order, recorded
		if got := removals(in, "region"); !slices.Equal(got, c.removed) {
			t.Errorf("%s: removes %v, want %v", name, got, c.removed)
		}
	}
	emptied := Input{Cluster: cluster, Order: order, Emptied: map[string][]string{"region": {"request_worker_count"}}}
	if got := removals(emptied, "region"); !slices.Equal(got, []string{"option/region/request_worker_count"}) {
		t.Errorf("an emptied option: removes %v", got)
	}
	region := cluster.Components["region"]
	region.Problem = "replicas: must be a number"
	broken := Input{Cluster: cluster, Order: order, Recorded: recorded}
	if got := broken.choices(region, "region2"); got != nil {
		t.Errorf("a component whose block cannot be read: %v", got)
	}
}

// The identity service reads its own options when it starts: they are changed before its pods are replaced, once it is reachable at all.
func TestOptionsOfTheIdentityServiceAreStoredBeforeItsPodsRoll(t *testing.T) {
	cluster, order := everything()
	in := Input{
		Cluster: cluster, Order: order, Recorded: map[string]string{"option/keystone/token_expiration_seconds": "x"},
		Values: map[string]map[string]any{"keystone": {"password_expiration_seconds": 60}}, Options: map[string]map[string]any{"keystone": {"password_expiration_seconds": 60}},
	}
	for _, runs := range []bool{false, true} {
		if runs {
			in.Recorded["endpoints/keystone"] = "x"
		}
		asked := 0
		for _, e := range in.options(cluster.Components["keystone"]) {
			if e.Note {
				continue
			}
			asked++
			if e.Stage != After || e.TryFirst != runs || runs == slices.Contains(e.Needs, "keystone") {
				t.Errorf("runs %v: %s is at stage %s, needs %q, is tried first %v", runs, e.Key, e.Stage, e.Needs, e.TryFirst)
			}
		}
		if asked != 2 {
			t.Errorf("runs %v: %d effects change what is stored, want one that sets and one that removes", runs, asked)
		}
	}
}

func TestWhatIsStoredWhere(t *testing.T) {
	cluster, order := everything()
	for _, c := range []struct {
		component, service  string
		options, chosen     map[string]any
		own, shared, owners map[string]any
	}{
		{component: "region", service: "region2", options: map[string]any{"default_mtu": 1, "port_v2": 2, "time_zone": "UTC"}, own: map[string]any{"default_mtu": 1}},
		{component: "region", service: "region2", chosen: map[string]any{"time_zone": "UTC", "log_level": "debug"}, shared: map[string]any{"time_zone": "UTC"}},
		{component: "region", service: "region2", chosen: map[string]any{"metadata_server_ip4s": "x"}, shared: map[string]any{"metadata_server_ip4s": "x"}},
		{component: "keystone", service: "keystone", chosen: map[string]any{"expiration": 60, "key_repository": "/x"}, own: map[string]any{"token_expiration_seconds": 60}},
		{component: "glance", service: "glance", chosen: map[string]any{"bind_port": 1, "scrub_time": 5}, own: map[string]any{"pending_delete_expire_seconds": 5}},
		// The scheduler reads region's record: region's options there are its own.
		{component: "scheduler", service: "region2", options: map[string]any{"request_worker_count": 8, "scheduler_port": 30887}, chosen: map[string]any{"sku_refresh_interval": "1h"},
			owners: map[string]any{"request_worker_count": 16}, own: map[string]any{"scheduler_port": 30887, "sku_refresh_interval": "1h"}},
		{component: "apimap", service: "region2", chosen: map[string]any{"api_list_batch_size": 9}, own: map[string]any{"api_list_batch_size": 9}},
		{component: "baremetal-agent", service: "baremetal", options: map[string]any{"auto_register_baremetal": false, "zone": "z"}, own: map[string]any{"auto_register_baremetal": false}},
		{component: "kubeserver", service: "k8s", options: map[string]any{"https_port": 1, "running_mode": "x"}, own: map[string]any{"https_port": 1}},
		{component: "host", options: map[string]any{"host_cpu_passthrough": true}},
		{component: "lbagent", options: map[string]any{"data_preserve_n": 1}},
		{component: "esxi-agent", options: map[string]any{"image_cache_limit": 1}},
		{component: "onecloud-service-operator", options: map[string]any{"sync_period": 1}},
		{component: "itsm", options: map[string]any{"server.port": 1}},
	} {
		r := cluster.Components[c.component]
		if got := r.OptionsRecord(); got != c.service {
			t.Errorf("%s is stored in %q, want %q", c.component, got, c.service)
		}
		all := maps.Clone(c.options)
		if all == nil {
			all = map[string]any{}
		}
		maps.Copy(all, c.chosen)
		in := Input{
			Cluster: cluster, Order: order, Options: map[string]map[string]any{c.component: all}, Values: map[string]map[string]any{c.component: c.chosen},
		}
		if c.owners != nil {
			in.Options["region"] = c.owners
		}
		if c.service == "" {
			if got := in.options(r); got != nil {
				t.Errorf("%s: %+v", c.component, got)
			}
			continue
		}
		own, shared := in.stored(r)
		if diff := cmp.Diff(orEmpty(c.own), own) + cmp.Diff(orEmpty(c.shared), shared); diff != "" {
			t.Errorf("%s: %s", c.component, diff)
		}
	}
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}
