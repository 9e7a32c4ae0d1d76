// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/url"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/policy"
)

// setups: what the operator makes in the services' own APIs is there, once, and people's changes stay.
func (r *rig) setups() {
	id, snapshot := r.identity()
	etcd := []string{"internal=https://default-etcd-client:2379", "public=https://127.0.0.1:30379"}
	if have := r.endpoints("etcd"); !slices.Equal(have, etcd) {
		r.t.Errorf("endpoints of etcd: %q, want %q", have, etcd)
	}
	certificates := identity.Kind{Plural: "servicecertificates", Singular: "servicecertificate"}
	stored, err := id.Records("https://default-keystone.onecloud.svc:30357/v3").List(r.t.Context(), certificates, url.Values{})
	if err != nil || len(stored) != 1 {
		r.t.Fatalf("certificates for etcd's clients: %v, %v", stored, err)
	}
	for _, e := range snapshot.Endpoints("etcd") {
		if e.CertificateID != stored[0]["id"] {
			r.t.Errorf("the %s endpoint of etcd has certificate %q", e.Interface, e.CertificateID)
		}
	}
	r.standardPolicies(id)
	for what, want := range map[string]struct {
		base, kind string
		names      []string
	}{
		"proxy agents": {"https://default-cloudproxy.onecloud.svc:30882", "proxy_agent", []string{"proxyagent0"}},
		"templates": {"https://default-devtool.onecloud.svc:30997", "devtool_template",
			[]string{"install-nginx-on-centos", "install-telegraf-on-centos", "ping-host"}},
		"scripts":   {"https://default-devtool.onecloud.svc:30997", "script", []string{"monitor agent"}},
		"playbooks": {"https://default-ansibleserver.onecloud.svc:30890", "ansibleplaybookreference", []string{"monitor agent"}},
		"alerts": {"https://default-monitor.onecloud.svc:30093", "commonalert", []string{
			"bond_slave.status", "cloudaccount_balance.balance", "cpu.usage_active", "disk.inodes_used_percent>=80%", "disk.used_percent>=80%",
			"host_raid.adapter", "mem.available", "process.total", "process.zombies", "smart_device.exit_status", "system.host_reboot",
			"system.load1_pcore", "system.uptime"}},
	} {
		if have := r.names(id, want.base, want.kind); !slices.Equal(have, want.names) {
			r.t.Errorf("%s:\n%q\nwant\n%q", what, have, want.names)
		}
	}
}

// standardPolicies: every standard policy and role is there, with its rules, and roles have their policies.
func (r *rig) standardPolicies(id *identity.Client) {
	const base = "https://default-keystone.onecloud.svc:30357/v3"
	table, err := policy.Standard()
	if err != nil {
		r.t.Fatal(err)
	}
	list := func(plural, singular string) []map[string]any {
		r.t.Helper()
		all, err := id.Records(base).List(r.t.Context(), identity.Kind{Plural: plural, Singular: singular}, url.Values{"scope": {"system"}})
		if err != nil {
			r.t.Fatal(err)
		}
		return all
	}
	have := map[string]map[string]any{}
	for _, p := range list("policies", "policy") {
		have[p["name"].(string)] = p
	}
	for _, want := range table.Policies {
		if p := have[want.Name]; p == nil || p["scope"] != want.Scope || !reflect.DeepEqual(p["blob"], want.Rules) || p["enabled"] != true {
			r.t.Errorf("policy %s: %v", want.Name, p)
		}
	}
	if roles := list("roles", "role"); len(have) != len(table.Policies) || len(roles) != len(table.Roles) {
		r.t.Errorf("%d policies, %d roles", len(have), len(roles))
	}
	if bindings := list("rolepolicies", "rolepolicy"); len(bindings) != table.Grants() {
		r.t.Errorf("the roles have %d policies, want %d", len(bindings), table.Grants())
	}
}

// names of the records of a kind, sorted; doubles are seen.
func (r *rig) names(id *identity.Client, base, kind string) []string {
	r.t.Helper()
	list, err := id.Records(base).List(r.t.Context(), identity.Kind{Plural: kind + "s", Singular: kind}, url.Values{})
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, x := range list {
		name, _ := x["name"].(string)
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// asked: the object store and the monitoring stack are asked for when the spec wants them, with the secrets that the services have, too.
func (r *rig) asked() {
	r.edit(r.cloud(), `{"spec":{"minio":{"enable":true},"monitorStack":{"disable":false}}}`)
	r.untilReady()
	for name, state := range r.installed() {
		if enabled, _ := state["enabled"].(bool); enabled != (name != "thanos") {
			r.t.Errorf("%s: %v", name, state)
		}
	}
	if dbs := r.databases(); !slices.Contains(dbs, "grafana") {
		r.t.Errorf("no database for Grafana: %q", dbs)
	}
	host := &corev1.Secret{}
	r.get(host, "default-host-config")
	if !strings.Contains(string(host.Data["common.conf"]), "s3_secret_key: "+string(r.credentials()["minio.secret-key"])) {
		r.t.Error("the hosts do not know the object store's key")
	}
	r.edit(r.cloud(), `{"spec":{"minio":{"enable":false},"monitorStack":{"disable":true}}}`)
	r.untilReady()
}

// installed is what kubeserver says of what it can install.
func (r *rig) installed() map[string]map[string]any {
	r.t.Helper()
	id, _ := r.identity()
	var out map[string]map[string]any
	err := id.Records("https://default-kubeserver.onecloud.svc:30442/api").Read(r.t.Context(),
		identity.Kind{Plural: "kubeclusters", Singular: "kubecluster"}, "system-default", "components-status", &out)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}
