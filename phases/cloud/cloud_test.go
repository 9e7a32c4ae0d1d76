// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"maps"
	"slices"
	"testing"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/phases/config"
)

func TestLoadBalancer(t *testing.T) {
	for name, c := range map[string]struct{ given, endpoint, advertise, want string }{
		"given":         {"vip", "10.0.0.1:6443", "10.0.0.2", "vip"},
		"endpoint":      {"", "10.0.0.1:6443", "10.0.0.2", "10.0.0.1"},
		"bare endpoint": {"", "api.example", "10.0.0.2", "api.example"},
		"IPv6":          {"", "[fd00::1]:6443", "10.0.0.2", "fd00::1"},
		"bare IPv6":     {"", "fd00::1", "", "fd00::1"},
		"address":       {"", "", "10.0.0.2", "10.0.0.2"},
	} {
		var cfg config.Config
		cfg.Cloud.LoadBalancerEndpoint, cfg.Cluster.ControlPlaneEndpoint, cfg.Node.AdvertiseAddress = c.given, c.endpoint, c.advertise
		if got := LoadBalancer(&cfg); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestOptionsNameTheDatabase(t *testing.T) {
	var cfg config.Config
	cfg.Cloud.Namespace, cfg.Addons.Ingress = "onecloud", "traefik"
	want := cluster.Database{Host: "ocadm-mysql.onecloud.svc", Port: 3306, Username: "root", Secret: "ocadm-mysql", SecretKey: "password"}
	if o := Options(&cfg); o.Database != want || o.WebHostPorts {
		t.Errorf("embedded: %+v", o)
	}
	cfg.Database = config.Database{Host: "10.0.0.5", Port: 3307, User: "admin", Password: "Very5ecret"}
	cfg.Addons.Ingress = "none"
	want = cluster.Database{Host: "10.0.0.5", Port: 3307, Username: "admin", Secret: "ocadm-database", SecretKey: "password"}
	if o := Options(&cfg); o.Database != want || !o.WebHostPorts {
		t.Errorf("external: %+v", o)
	}
}

func TestRoles(t *testing.T) {
	var cfg config.Config
	if n := len(Roles(&cfg)); n != 0 {
		t.Errorf("a node without roles has %d", n)
	}
	cfg.Node.AsController, cfg.Node.EnableHostAgent = true, true
	want := map[string]string{"onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "enable"}
	if got := Roles(&cfg); !maps.Equal(got, want) {
		t.Errorf("%v", slices.Sorted(maps.Keys(got)))
	}
}
