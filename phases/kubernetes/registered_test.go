// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"slices"
	"testing"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestRegisteredAs(t *testing.T) {
	h := fakeHost(t, nil)
	if got := RegisteredAs(h); got != (Registered{}) {
		t.Errorf("a fresh machine is %v", got)
	}
	c := config.Default()
	c.Node.Name, c.Node.CRISocket, c.Node.IP, c.Join.Token = "chosen", "unix:///run/crio/crio.sock", "192.0.2.7", "abcdef.0123456789abcdef"
	want := Registered{Name: "chosen", CRISocket: "unix:///run/crio/crio.sock"}
	for _, render := range []func(*config.Config) ([]byte, error){RenderInit, RenderJoin} {
		raw, err := render(&c)
		require.NoError(t, err)
		write(t, h, ConfigFile, string(raw))
		if got := RegisteredAs(h); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// A repeated init uses the names in the first one's certificate, in their order, with or without its flags. Until the first init has stored them, a mistyped
// name can still be corrected.
func TestNamesOfTheFirstInit(t *testing.T) {
	for name, flags := range map[string][]string{"with its flags": {"api.example.org"}, "without them": nil} {
		h := fakeHost(t, nil)
		h.Config.Cluster.VirtualAddress = "10.0.0.100"
		write(t, h, ConfigFile, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\nimageRepository: r.example.org/k8s\napiServer:\n  certSANs: [localhost, 127.0.0.1, 10.0.0.100, api.example.org]\n")
		if names := EarlierConfig(h).Names; names != nil {
			t.Errorf("%s: before they are stored: %v", name, names)
		}
		require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindPhase, Name: storeConfiguration().key(), Op: host.Found}))
		h.Config.Cluster.APIServerCertExtraSANs = append(flags, EarlierConfig(h).Names...)
		if got := EarlierConfig(h).ImageRepository; got != "r.example.org/k8s" {
			t.Errorf("%s: images from %q", name, got)
		}
		if got := certSANs(h.Config); !slices.Equal(got, []string{"localhost", "127.0.0.1", "10.0.0.100", "api.example.org"}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
