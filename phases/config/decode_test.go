// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

const head = "apiVersion: ocadm.yunion.io/v1\nkind: Configuration\n"

func TestParse(t *testing.T) {
	got, err := config.Parse("f", []byte("---\n"+head+`
cluster: {podNetworkCIDR: 10.1.0.0/16, tokenTTL: 2h, apiserverCertExtraSANs: [a, b]}
node: {bindPort: 7443, conntrackMaxPerCore: 0, enableHostAgent: true, name: }
`))
	require.NoError(t, err)
	want := map[string]any{
		"cluster.podNetworkCIDR": "10.1.0.0/16", "cluster.tokenTTL": 2 * time.Hour, "cluster.apiserverCertExtraSANs": []string{"a", "b"},
		"node.bindPort": 7443, "node.conntrackMaxPerCore": int32(0), "node.enableHostAgent": true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ in, code, want string }{
		"unknown key":      {head + "cluster: {podNetworkCidr: x}", "OCA-0321", "cluster.podNetworkCidr (did you mean podNetworkCIDR?)"},
		"flag as key":      {head + "mysql-host: x", "OCA-0321", "mysql-host (did you mean database.host?)"},
		"wrong place":      {head + "node: {podNetworkCIDR: x}", "OCA-0321", "did you mean cluster.podNetworkCIDR?"},
		"several":          {head + "a: 1\nb: 2", "OCA-0321", "a; b"},
		"number":           {head + "node: {bindPort: many}", "OCA-0320", `node.bindPort: "many" is not a number`},
		"string":           {head + "node: {name: [1]}", "OCA-0320", "not a string"},
		"duration":         {head + "cluster: {tokenTTL: 24}", "OCA-0320", "cluster.tokenTTL: 24 is not a duration"},
		"list":             {head + "node: {labels: a=b}", "OCA-0320", "a list of strings"},
		"section":          {head + "node: x", "OCA-0320", "node is not an object"},
		"head":             {"kind: Other", "OCA-0320", "apiVersion is missing"},
		"empty":            {"", "OCA-0320", "kind is missing"},
		"two documents":    {head + "---\n" + head, "OCA-0322", "more than one document"},
		"repeated key":     {head + "node: {name: a, name: b}", "OCA-0322", "name"},
		"no YAML":          {"\t{", "OCA-0322", ""},
		"kubeadm's config": {"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration", "OCA-0320", "kubeadm.k8s.io/v1beta4, not ocadm.yunion.io/v1"},
	} {
		_, err := config.Parse("f", []byte(c.in))
		l := finding.Of(err)
		if len(l) != 1 || l[0].Code != c.code || !strings.Contains(err.Error(), c.want) || strings.Contains(l[0].Remedy, ">") { // the file is the user's work
			t.Errorf("%s: %v, %v; want %s %q", name, l, err, c.code, c.want)
		}
	}
}

func TestPrintIsAFileThatParsesToTheSame(t *testing.T) {
	c := config.Default()
	out, err := config.Print(&c)
	require.NoError(t, err)
	values, err := config.Parse("printed", out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for key, v := range values {
		def := config.Default()
		if diff := cmp.Diff(config.Text(&def, key), text(v)); diff != "" {
			t.Error(key, diff)
		}
	}
	for _, s := range config.Settings() {
		if !strings.Contains(string(out), s.Usage) {
			t.Errorf("%s is not printed", s.Key)
		}
	}
}

func text(v any) string {
	if d, ok := v.(time.Duration); ok {
		return d.String()
	}
	return fmt.Sprint(v)
}

func FuzzSplitEndpoint(f *testing.F) {
	for _, s := range []string{"", "a", "a:1", "[::1]:2", "::1", "[::1]", "10.0.0.1:6443", "a:b:c", "[a]:1", "fe80::1%eth0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, port, err := config.SplitEndpoint(s, config.DefaultPort)
		if err != nil || s == "" {
			return
		}
		if host == "" || port < 1 || port > 65535 {
			t.Fatalf("%q: %q, %d", s, host, port)
		}
		again, p, err := config.SplitEndpoint(host, port)
		if err != nil || again != host || p != port {
			t.Fatalf("%q → %q is not stable: %q, %d, %v", s, host, again, p, err)
		}
	})
}

func FuzzCIDRs(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "fd00::/8,10.0.0.0/8", "10.0.0.1/8", "/", ","} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := config.CIDRs(s)
		if err != nil {
			return
		}
		for _, p := range list {
			if p.Masked() != p || !p.IsValid() {
				t.Fatalf("%q: %v", s, p)
			}
		}
	})
}

func FuzzLabelAndHostname(f *testing.F) {
	for _, s := range []string{"a=b", "x.y/z=", "=", "a=b=c", "A_b.c=1", "host.example.org"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if key, value, err := config.Label(s); err == nil && (key+"="+value != s || len(value) > 63) {
			t.Fatalf("%q: %q, %q", s, key, value)
		}
		if config.Hostname(s) == nil {
			if _, err := netip.ParseAddr(s); err == nil {
				t.Fatalf("the address %q is a host name", s)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "node: {name: a}"))
	f.Add([]byte("- 1"))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		_, _ = config.Parse("f", raw)
	})
}

// A password that YAML takes for a number is refused without printing it.
func TestParseHidesSecrets(t *testing.T) {
	_, err := config.Parse("f", []byte("apiVersion: "+config.APIVersion+"\nkind: "+config.Kind+"\ndatabase:\n  password: 47110815\n"))
	if err == nil || strings.Contains(err.Error(), "4711") || !strings.Contains(err.Error(), "database.password") {
		t.Errorf("%v", err)
	}
}
