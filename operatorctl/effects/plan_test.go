// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"maps"
	"slices"
	"testing"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Every task that a component names exists, and every task belongs to a component.
func TestSetupNamesTasks(t *testing.T) {
	var named []string
	for _, c := range catalog.All() {
		named = append(named, c.Setup...)
	}
	slices.Sort(named)
	if all := slices.Sorted(maps.Keys(tasks)); !slices.Equal(slices.Compact(named), all) {
		t.Errorf("components name the tasks %q; there are %q", named, all)
	}
}

func TestPublicURL(t *testing.T) {
	glance := component.Resolved{
		Component: component.Component{Name: "glance", Service: &component.Service{Ports: []component.Port{{Name: "api", Port: 30292}}}},
		NodePorts: map[string]int32{"api": 30292},
	}
	for address, want := range map[string][2]string{
		"":                  {"https://default-glance:30292/v1", "https://default-web/"},
		"192.0.2.7":         {"https://192.0.2.7:30292/v1", "https://192.0.2.7/"},
		"2001:db8::7":       {"https://[2001:db8::7]:30292/v1", "https://[2001:db8::7]/"},
		"cloud.example.com": {"https://cloud.example.com:30292/v1", "https://cloud.example.com/"},
	} {
		in := Input{Cluster: component.Cluster{Name: "default", LoadBalancer: address}}
		if got := in.url(glance, component.Endpoint{Path: "/v1"}, "public"); got != want[0] {
			t.Errorf("glance at %q: %s, want %s", address, got, want[0])
		}
		if got := "https://" + in.Cluster.PublicHost("web") + "/"; got != want[1] {
			t.Errorf("the console at %q: %s, want %s", address, got, want[1])
		}
	}
}

// An update of the operator gives no address to a cloud created without one; a user who removes the address gets another.
func TestMayChooseAddress(t *testing.T) {
	noted := map[string]string{}
	for _, e := range (Input{Cluster: component.Cluster{LoadBalancer: "192.0.2.7"}}).bootstrap() {
		if e.Note {
			noted[e.Key] = e.Hash
		}
	}
	without := map[string]string{"endpoints/keystone": "1"}
	for _, e := range (Input{}).bootstrap() {
		if e.Note {
			t.Errorf("a cloud without an address notes %s", e.Key)
		}
	}
	noted["endpoints/keystone"] = "1"
	if !MayChooseAddress(nil) || MayChooseAddress(without) || !MayChooseAddress(noted) {
		t.Errorf("a new cloud %v, one without %v, one with an address %v", MayChooseAddress(nil), MayChooseAddress(without), MayChooseAddress(noted))
	}
}

// A service that logs in with another's account exits immediately while there is none.
func TestServicesWaitForTheAccountTheyLogInWith(t *testing.T) {
	cluster := component.Cluster{Components: map[string]component.Resolved{}}
	add := func(enabled bool, c component.Component) {
		cluster.Components[c.Name] = component.Resolved{Component: c, Enabled: enabled}
	}
	add(true, component.Component{Name: "host", Account: &component.Account{User: "hostadmin"}, Config: &component.Config{}})
	add(true, component.Component{Name: "host-deployer", Config: &component.Config{Of: "host"}})
	add(true, component.Component{Name: "scheduler", Config: &component.Config{AccountOf: "region"}})
	add(false, component.Component{Name: "region", Account: &component.Account{User: "regionadmin"}, Config: &component.Config{}})
	follows := map[string][]string{}
	for _, e := range Plan(Input{Cluster: cluster, Order: []string{"host", "host-deployer", "scheduler", "region"}}) {
		if e.Stage == Before {
			follows[e.Component] = append(follows[e.Component], e.Follows...)
		}
	}
	if got := follows["host-deployer"]; !slices.Equal(got, []string{"account/host"}) {
		t.Errorf("host-deployer follows %q", got)
	}
	if len(follows["host"])+len(follows["scheduler"]) > 0 {
		t.Errorf("an account of its own, or of a disabled component, is waited for: %q", follows)
	}
}

// A renewed certificate for etcd is in the identity service before the pods start that read it there. On a new cloud, and while etcd was off,
// no service finds an etcd that does not serve yet.
func TestCertificateIsStoredBeforePodsReadIt(t *testing.T) {
	all := catalog.All()
	etcd := component.Resolved{Component: all[slices.IndexFunc(all, func(c component.Component) bool { return c.Name == "etcd" })], Enabled: true}
	off := Input{Recorded: map[string]string{"endpoints/etcd": "1"}}.retired(etcd)[0].Hash
	for recorded, want := range map[string]struct {
		of    string
		needs []string
	}{"": {"etcd", []string{"keystone", "etcd"}}, off: {"etcd", []string{"keystone", "etcd"}}, "1": {"keystone", []string{"keystone"}}} {
		e := Input{Recorded: map[string]string{"endpoints/etcd": recorded}}.endpoints(etcd)
		if e.Key != "endpoints/etcd" || e.Stage != After || e.Component != want.of || !slices.Equal(e.Needs, want.needs) {
			t.Errorf("recorded %q: %s of %s at %s, needs %q", recorded, e.Key, e.Component, e.Stage, e.Needs)
		}
	}
}
