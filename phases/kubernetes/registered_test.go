// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// An init that is repeated without the flags of the first one renders the same configuration. Flags that it has take precedence.
func TestKeepOfTheFirstInit(t *testing.T) {
	for name, pods := range map[string]string{"one family": "10.40.0.0/16", "both": "10.40.0.0/16,fd00:40::/56"} {
		h := fakeHost(t, nil)
		first := testConfig()
		first.Cluster.PodNetworkCIDR, first.Cluster.NodeCIDRMaskSize = pods, 26
		first.Cluster.FeatureGates, first.Cluster.CertificateValidity = "NodeLocalCRISocket=true", 48*time.Hour
		first.Node.ConntrackMaxPerCore = new(int32)
		raw, err := RenderInit(first)
		require.NoError(t, err)
		write(t, h, ConfigFile, string(raw))
		require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindPhase, Name: storeConfiguration().key(), Op: host.Found}))
		repeated := testConfig()
		repeated.Cluster.PodNetworkCIDR = pods
		EarlierConfig(h).Keep(repeated)
		if again, err := RenderInit(repeated); err != nil || string(again) != string(raw) {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(string(raw), string(again)))
		}
		other := testConfig()
		other.Cluster.NodeCIDRMaskSize, other.Cluster.FeatureGates, other.Cluster.CertificateValidity = 25, "NodeLocalCRISocket=false", time.Hour
		other.Given = []string{"cluster.nodeCIDRMaskSize"}
		EarlierConfig(h).Keep(other)
		if is := other.Cluster; is.NodeCIDRMaskSize != 25 || is.FeatureGates != "NodeLocalCRISocket=false" || is.CertificateValidity != time.Hour {
			t.Errorf("%s: %+v", name, is)
		}
	}
}
