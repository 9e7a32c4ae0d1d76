// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"os"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

func TestAutoProxyMode(t *testing.T) {
	for _, tt := range []struct{ kernel, earlier, want string }{
		{"6.1.0-28-amd64", "", "nftables"},
		{"5.13.0", "", "nftables"},
		{"5.10.0-30-amd64", "", "iptables"},
		{"4.18.0-553.el8_10.x86_64", "", "iptables"},
		{"6.1.0", "iptables", "iptables"}, // chosen by the first init
		{"5.4.0-200-generic", "nftables", "iptables"},
		{"", "", "nftables"},
	} {
		if got := AutoProxyMode(tt.kernel, tt.earlier); got != tt.want {
			t.Errorf("kernel %q, earlier %q: %s, want %s", tt.kernel, tt.earlier, got, tt.want)
		}
	}
}

// A repeated init reads what init wrote.
func TestEarlierProxyMode(t *testing.T) {
	h := fakeHost(t, nil)
	if got := EarlierConfig(h).ProxyMode; got != "" {
		t.Errorf("without an earlier init: %q", got)
	}
	for _, mode := range []string{"iptables", "nftables"} {
		c := testConfig()
		c.Cluster.ProxyMode = mode
		raw, err := RenderInit(c)
		require.NoError(t, err)
		write(t, h, ConfigFile, string(raw))
		if got := EarlierConfig(h).ProxyMode; got != mode {
			t.Errorf("got %q, want %q", got, mode)
		}
	}
}

func TestProxyModeFits(t *testing.T) {
	for pair, code := range map[[2]string]string{
		{"5.10.0-30-amd64", "nftables"}: "OCA-4112",
		{"5.10.0-30-amd64", "iptables"}: "",
		{"5.10.0-30-amd64", ""}:         "", // unreadable
		{"6.1.0", "nftables"}:           "",
	} {
		got := ""
		if l := finding.Of(ProxyModeFits(pair[0], pair[1])); len(l) > 0 {
			got = l[0].Code
		}
		if got != code {
			t.Errorf("kernel %s, mode %q: %q, want %q", pair[0], pair[1], got, code)
		}
	}
}

// The message is copied from kube-proxy's source (pkg/proxy/nftables/supported.go); the lines around it imitate a CRI log.
func TestFailure(t *testing.T) {
	h := fakeHost(t, nil)
	dir := podLogsDir + "/kube-system_kube-proxy-x7k2p_0b1c/kube-proxy/"
	write(t, h, dir+"0.log", "2026-11-22T07:00:00.1Z stderr F E1122 07:00:00.100000       1 run.go:72] \"command failed\" err=\"older\"\n")
	write(t, h, dir+"2.log", `2026-11-22T07:01:00.1Z stderr F I1122 07:01:00.100000       1 server_linux.go:63] "Using proxy"
2026-11-22T07:01:00.2Z stderr F E1122 07:01:00.200000       1 run.go:72] "command failed" err="kube-proxy in nftables mode requires kernel 5.13 or later"
`)
	line, restarts := Failure(h, "kube-system_kube-proxy-*", "kube-proxy")
	if want := `run.go:72] "command failed" err="kube-proxy in nftables mode requires kernel 5.13 or later"`; line != want || restarts != 2 {
		t.Errorf("got %q after %d restarts, want %q after 2", line, restarts, want)
	}
	// A changed manifest makes another pod, whose count begins anew. The logs of the former one stay for a while.
	former := time.Now().Add(-time.Hour)
	for _, name := range []string{"0.log", "2.log"} {
		require.NoError(t, os.Chtimes(h.Files.Path(dir+name), former, former))
	}
	write(t, h, podLogsDir+"/kube-system_kube-proxy-x7k2p_0a00/kube-proxy/0.log", "2026-11-22T08:00:00.1Z stderr F E1122 08:00:00.100000       1 run.go:72] \"command failed\" err=\"of the new one\"\n")
	if line, restarts := Failure(h, "kube-system_kube-proxy-*", "kube-proxy"); !strings.Contains(line, "of the new one") || restarts != 0 {
		t.Errorf("got %q after %d restarts", line, restarts)
	}
	if line, _ := Failure(h, "kube-system_absent-*", "absent"); line != "" {
		t.Errorf("a container without a log says %q", line)
	}
}
