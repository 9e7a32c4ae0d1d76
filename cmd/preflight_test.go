// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// The checks of join look for the node's images in the depot before anything is changed: the operator uses this on machines.
func TestPreflightOfJoinLooksForImages(t *testing.T) {
	platform := &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	image := v1.Descriptor{MediaType: types.OCIManifestSchema1, Size: 1, Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, Platform: platform}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(depot.Root{Images: map[string]v1.Descriptor{"registry.example.org/other:v1": image}})
	}))
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "https://")
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	file := filepath.Join(t.TempDir(), "discovery.conf")
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, file))
	out, err := ocadm(t, "preflight", "join", "--discovery-file", file, "--token", "abcdef.0123456789abcdef", "--depot", address, "--offline",
		"--rootfs", t.TempDir(), "--node-name", "n", "--node-ip", "192.0.2.1")
	i := slices.IndexFunc(finding.Of(err), func(f finding.Finding) bool { return f.Code == "OCA-2102" })
	if i < 0 || !slices.ContainsFunc(finding.Of(err)[i].Evidence, func(l string) bool { return strings.Contains(l, "kube-proxy") }) {
		t.Errorf("%v\n%s", err, out)
	}
}
