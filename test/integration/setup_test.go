// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// setups checks that what the operator creates in the services' own APIs exists, once, and that users' changes stay.
func (e *cloudTest) setups() {
	id, snapshot := e.identity()
	etcd := []string{"internal=https://default-etcd-client:2379", "public=https://127.0.0.1:30379"}
	if have := e.endpoints("etcd"); !slices.Equal(have, etcd) {
		e.Errorf("endpoints of etcd: %q, want %q", have, etcd)
	}
	certificates := identity.Kind{Plural: "servicecertificates", Singular: "servicecertificate"}
	stored, err := id.Records("https://default-keystone.onecloud.svc:30357/v3").List(e.Context(), certificates, url.Values{})
	if err != nil || len(stored) != 1 {
		e.Fatalf("certificates for etcd's clients: %v, %v", stored, err)
	}
	for _, p := range snapshot.Endpoints("etcd") {
		if p.CertificateID != stored[0]["id"] {
			e.Errorf("the %s endpoint of etcd has certificate %q", p.Interface, p.CertificateID)
		}
	}
	e.standardPolicies(id)
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
		if have := e.names(id, want.base, want.kind); !slices.Equal(have, want.names) {
			e.Errorf("%s:\n%q\nwant\n%q", what, have, want.names)
		}
	}
}

// standardPolicies checks that every standard policy and role exists, with its rules, and that roles have their policies.
func (e *cloudTest) standardPolicies(id *identity.Client) {
	const base = "https://default-keystone.onecloud.svc:30357/v3"
	table, err := policy.Standard()
	require.NoError(e, err)
	list := func(plural, singular string) []map[string]any {
		e.Helper()
		all, err := id.Records(base).List(e.Context(), identity.Kind{Plural: plural, Singular: singular}, url.Values{"scope": {"system"}})
		require.NoError(e, err)
		return all
	}
	have := map[string]map[string]any{}
	for _, p := range list("policies", "policy") {
		have[p["name"].(string)] = p
	}
	for _, want := range table.Policies {
		if p := have[want.Name]; p == nil || p["scope"] != want.Scope || !reflect.DeepEqual(p["blob"], want.Rules) || p["enabled"] != true {
			e.Errorf("policy %s: %v", want.Name, p)
		}
	}
	if roles := list("roles", "role"); len(have) != len(table.Policies) || len(roles) != len(table.Roles) {
		e.Errorf("%d policies, %d roles", len(have), len(roles))
	}
	if bindings := list("rolepolicies", "rolepolicy"); len(bindings) != table.Grants() {
		e.Errorf("the roles have %d policies, want %d", len(bindings), table.Grants())
	}
}

// names returns the sorted names of the records of a kind, including duplicates.
func (e *cloudTest) names(id *identity.Client, base, kind string) []string {
	e.Helper()
	list, err := id.Records(base).List(e.Context(), identity.Kind{Plural: kind + "s", Singular: kind}, url.Values{})
	require.NoError(e, err)
	var out []string
	for _, x := range list {
		name, _ := x["name"].(string)
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// TestKubeserverInstallsWhatTheSpecRequests checks that the object store and the monitoring stack are requested, with the same secrets that the services have.
func TestKubeserverInstallsWhatTheSpecRequests(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "region", "kubeserver", "monitor-stack", "minio", "host")
	e.Edit(`{"spec":{"minio":{"enable":true},"monitorStack":{"disable":false}}}`)
	e.UntilReady()
	for name, state := range e.installed() {
		if enabled, _ := state["enabled"].(bool); enabled != (name != "thanos") {
			e.Errorf("%s: %v", name, state)
		}
	}
	if dbs := e.databases(); !slices.Contains(dbs, "grafana") {
		e.Errorf("no database for Grafana: %q", dbs)
	}
	host := &corev1.Secret{}
	e.Get(host, "default-host-config")
	if !strings.Contains(string(host.Data["common.conf"]), "s3_secret_key: "+string(e.Credentials()["minio.secret-key"])) {
		e.Error("the hosts do not know the object store's key")
	}
	e.Edit(`{"spec":{"minio":{"enable":false},"monitorStack":{"disable":true}}}`)
	e.UntilReady()
}

// installed returns the components that kubeserver can install.
func (e *cloudTest) installed() map[string]map[string]any {
	e.Helper()
	id, _ := e.identity()
	var out map[string]map[string]any
	err := id.Records("https://default-kubeserver.onecloud.svc:30442/api").Read(e.Context(),
		identity.Kind{Plural: "kubeclusters", Singular: "kubecluster"}, "system-default", "components-status", &out)
	require.NoError(e, err)
	return out
}
