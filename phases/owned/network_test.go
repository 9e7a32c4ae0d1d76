// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"errors"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

func TestPodNamespacesOfOthersStay(t *testing.T) {
	const a, b = "cni-0d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5", "cni-1d9d0b7e-3f11-4d63-9bb6-7a7b44c2c2e5"
	h, _ := machine(t, worker, true, "/run/netns/"+a+"=", "/run/netns/"+b+"=", "/run/netns/cni-mine=", "/run/netns/blue=",
		`/var/lib/cni/results/mynet-abc-eth0={"networkName":"mynet","result":{"interfaces":[{"sandbox":"/var/run/netns/`+b+`"}]}}`)
	n, err := NetworkOf(t.Context(), h)
	if d := cmp.Diff([]string{"network name space /run/netns/" + a}, n.List()); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestUnreadablePlacesAreReported(t *testing.T) {
	missing := func(names ...string) func(exec.Command) (exec.Result, error) {
		return func(c exec.Command) (exec.Result, error) {
			for _, n := range names {
				if c.Path == n {
					return exec.Result{ExitCode: -1}, &exec.Error{Argv: []string{c.Path}, Err: &osexec.Error{Name: n, Err: osexec.ErrNotFound}}
				}
			}
			if len(c.Args) > 0 && c.Args[0] == "--version" {
				return exec.Result{Stdout: "iptables v1.8.9 (nf_tables)\n"}, nil
			}
			return exec.Result{}, nil
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(exec.Command) (exec.Result, error)
		legacy string
		want   string // in the cause; "" means no finding
	}{
		{name: "all there", answer: missing()},
		{name: "no nft", answer: missing("nft"), want: "nft list tables"},
		{name: "one iptables for all", answer: missing("iptables-nft-save", "iptables-legacy-save")},
		{name: "no iptables", answer: missing("iptables-nft-save", "iptables-save", "iptables"), want: "iptables-nft-save"},
		{name: "legacy tables and no program for them", answer: missing("iptables-legacy-save"), legacy: "nat\nfilter\n", want: "iptables-legacy-save"},
		{name: "no legacy tables", answer: missing("iptables-legacy-save"), legacy: ""},
		{name: "nft fails", want: "nft list tables", answer: func(c exec.Command) (exec.Result, error) {
			if c.Path == "nft" {
				return exec.Result{ExitCode: 1}, &exec.Error{Argv: []string{"nft"}, ExitCode: 1, Err: errors.New("exit status 1")}
			}
			return exec.Result{}, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, rec := machine(t, worker, true, "/proc/net/ip_tables_names="+tt.legacy)
			rec.Answer = tt.answer
			for what, err := range map[string]error{
				"looking": func() error { _, err := NetworkOf(t.Context(), h); return err }(), "removing": RemoveNetwork(t.Context(), h, &reporter{}),
			} {
				l := finding.Of(err)
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case tt.want != "" && (len(l) != 1 || l[0].Code != CodeCannotLook || !strings.Contains(l[0].Cause, tt.want)):
					t.Errorf("%s: got %v, want a finding that names %s", what, err, tt.want)
				}
			}
		})
	}
}

func TestTablesOfTheNodeGo(t *testing.T) {
	h, rec := machine(t, worker, true)
	rec.Answer = func(c exec.Command) (exec.Result, error) {
		switch c.Path {
		case "nft":
			return exec.Result{Stdout: "table ip kube-proxy\ntable inet filter\ntable ip6 flannel-ipv6\ntable ip kube-proxy2\n"}, nil
		case "iptables-nft-save":
			return exec.Result{Stdout: ourRules}, nil
		}
		return exec.Result{}, nil
	}
	require.NoError(t, RemoveNetwork(t.Context(), h, &reporter{}))
	calls := strings.Join(rec.Calls(), "\n")
	for _, want := range []string{"nft delete table ip kube-proxy\n", "nft delete table ip6 flannel-ipv6", "iptables-nft-restore --noflush"} {
		if !strings.Contains(calls, want) {
			t.Errorf("%q was not run:\n%s", want, calls)
		}
	}
	if strings.Contains(calls, "inet filter") || strings.Contains(calls, "kube-proxy2") || strings.Contains(calls, "legacy") {
		t.Errorf("ran\n%s", calls)
	}
}

// Links of pods that the plugins left are removed before the bridge, unless others use it as well.
func TestLinksOfPodsGo(t *testing.T) {
	const port = "/sys/class/net/cni0/brif/veth1="
	for name, c := range map[string]struct {
		others []string
		links  []string
	}{
		"the node's alone":    {nil, []string{"link veth1", "link cni0"}},
		"others use CNI, too": {[]string{"/var/lib/cni/networks/podman/10.88.0.2=theirs"}, []string{"link cni0"}},
	} {
		h, _ := machine(t, worker, true, append(c.others, port)...)
		n, err := NetworkOf(t.Context(), h)
		links := slices.DeleteFunc(n.List(), func(l string) bool { return !strings.HasPrefix(l, "link ") })
		if err != nil || !slices.Equal(links, c.links) {
			t.Errorf("%s: %q, %v", name, links, err)
		}
		if summary := strings.Join(n.Summary(), "\n"); strings.Contains(summary, "veth1") || strings.Contains(summary, "1 links of pods on cni0") != (len(c.links) > 1) {
			t.Errorf("%s: %s", name, summary)
		}
	}
}

// Of the rules for published ports in a shared nftables table, only those of the node's pods are removed.
func TestPublishedPortsInNFTables(t *testing.T) {
	const rules = `{"nftables": [{"metainfo": {"version": "1.0.6"}}, {"table": {"family": "ip", "name": "cni_hostport", "handle": 1}},
		{"rule": {"family": "ip", "table": "cni_hostport", "chain": "hostports", "handle": 8, "comment": "def", "expr": []}},
		{"rule": {"family": "ip", "table": "cni_hostport", "chain": "hostports", "handle": 9, "comment": "abc", "expr": []}},
		{"rule": {"family": "ip", "table": "cni_hostport", "chain": "prerouting", "handle": 10, "expr": []}}]}`
	pod := `/var/lib/cni/results/cbr0-def-eth0={"containerId":"def","networkName":"cbr0","cniArgs":[["K8S_POD_NAMESPACE","default"]]}`
	theirs := `/var/lib/cni/results/mynet-abc-eth0={"containerId":"abc","networkName":"mynet","cniArgs":[["IgnoreUnknown","1"]]}`
	for _, tt := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"the node alone", []string{pod}, []string{"nft delete table ip cni_hostport"}},
		{"others, too", []string{pod, theirs}, []string{"nft delete rule ip cni_hostport hostports handle 8"}},
		{"only others", []string{theirs}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, rec := machine(t, worker, true, tt.files...)
			rec.Answer = func(c exec.Command) (exec.Result, error) {
				switch strings.Join(append([]string{c.Path}, c.Args...), " ") {
				case "nft list tables":
					return exec.Result{Stdout: "table ip cni_hostport\n"}, nil
				case "nft -j list table ip cni_hostport":
					return exec.Result{Stdout: rules}, nil
				}
				return exec.Result{}, nil
			}
			require.NoError(t, RemoveNetwork(t.Context(), h, &reporter{}))
			var got []string
			for _, c := range rec.Calls() {
				if strings.HasPrefix(c, "nft delete") {
					got = append(got, c)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
