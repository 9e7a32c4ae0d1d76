// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca, err := pki.NewCA(time.Now(), "kubernetes", key)
	require.NoError(t, err)
	return ca.CertPEM()
}

// A host that is another node, or of another cluster, is not reset. Missing information does not count.
func TestIdentity(t *testing.T) {
	ours, older, theirs := certificate(t), certificate(t), certificate(t)
	both := slices.Concat(older, ours)
	for name, c := range map[string]struct {
		is        identity
		authority []byte
		says      string
	}{
		"the machine":                 {identity{"w", ours}, ours, ""},
		"nothing":                     {identity{}, ours, ""},
		"another node":                {identity{"cp", ours}, ours, "is node cp"},
		"another cluster":             {identity{"w", theirs}, ours, "another cluster"},
		"while authorities change":    {identity{"w", both}, ours, ""},
		"the cluster has changed one": {identity{"w", older}, both, ""},
		"ours is not known":           {identity{"w", theirs}, nil, ""},
		"no certificate":              {identity{"w", []byte("x")}, ours, ""},
	} {
		err := c.is.of("w", c.authority)
		if l := finding.Of(err); c.says == "" && err != nil || c.says != "" && (len(l) != 1 || l[0].Code != codeOtherNode || !strings.Contains(l[0].What, c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAuthority(t *testing.T) {
	cfg := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca")}}
	if got := Authority(cfg); got != nil {
		t.Errorf("of a kubeconfig: %s", got)
	}
	if cfg.BearerTokenFile = "/token"; string(Authority(cfg)) != "ca" {
		t.Error("a pod knows it")
	}
}
