// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestTunnelEnds(t *testing.T) {
	const routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n" +
		"eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n" +
		"cni0\t0000280A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n" +
		"flannel.1\t0002280A\t0002280A\t0003\t0\t0\t0\t00FFFFFF\n" +
		"flannel.1\t0001280A\t0001280A\t0003\t0\t0\t0\t00FFFFFF\n" +
		"flannel.1\t0001280A\tno\n"
	files := host.Files{Root: t.TempDir()}
	if got := tunnelEnds(files); len(got) != 0 {
		t.Errorf("without routes: %v", got)
	}
	require.NoError(t, files.WriteFile("/proc/net/route", []byte(routes), 0o644))
	if got := tunnelEnds(files); !slices.Equal(got, []string{"10.40.1.0", "10.40.2.0"}) {
		t.Errorf("%v", got)
	}
}

// Any answer means that packets go both ways. A server that never answers is behind a network that drops large packets.
func TestThrough(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_ = closed.Close()
	for name, c := range map[string]struct{ address, want string }{
		"a kubelet":        {server.Listener.Addr().String(), ""},
		"a refusal":        {closed.Addr().String(), ""},
		"no large packets": {silent.Addr().String(), "no certificate in 4s"},
	} {
		if got := through(t.Context(), c.address); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A join warns about the nodes that it cannot reach, but not about those that answer. It waits for flannel's routes, but not for another pod network.
func TestUnreached(t *testing.T) {
	h, err := host.Fake(t.Context(), t.TempDir(), &config.Config{}, &host.Recorder{})
	require.NoError(t, err)
	put := func(name, text string) {
		t.Helper()
		require.NoError(t, h.Files.WriteFile(name, []byte(text), 0o644))
	}
	put("/etc/cni/net.d/10-calico.conflist", "{}")
	if !otherCNI(h.Files) {
		t.Error("it waits for flannel, which is not there")
	}
	put("/var/log/pods/kube-flannel_kube-flannel-ds-x7k2p_1/install/0.log", "") // the other network is podman's
	if otherCNI(h.Files) {
		t.Error("it does not wait for flannel, which starts")
	}
	// 127.0.0.1 refuses; 127.0.0.2 accepts and stays silent, as if behind a network that drops large packets.
	silent, err := net.Listen("tcp", "127.0.0.2:10250")
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	route := func(gateway string) string {
		return "flannel.1\t" + gateway + "\t" + gateway + "\t0003\t0\t0\t0\t00FFFFFF\n"
	}
	waited := false
	if err := Unreached(t.Context(), h, func(string) {
		waited = true
		put("/proc/net/route", route("0100007F"))
	}); err != nil || !waited {
		t.Errorf("with a node that answers: %v, waited %v", err, waited)
	}
	put("/proc/net/route", route("0100007F")+route("0200007F"))
	f := finding.Of(Unreached(t.Context(), h, func(string) { t.Error("it waits although there are routes") }))
	if len(f) != 1 || f[0].Code != "OCA-5112" || f[0].Severity != finding.Warning || len(f[0].Evidence) != 1 || !strings.Contains(f[0].Evidence[0], "127.0.0.2:10250") {
		t.Errorf("%+v", f)
	}
}
