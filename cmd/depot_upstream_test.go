// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/test/require"
)

// The depot uses the proxies of containerd's unit and the node's credentials, and reads both again for each image.
func TestRegistriesOfTheDepot(t *testing.T) {
	dir := t.TempDir()
	u := upstreamFlags{credentials: filepath.Join(dir, "registry.json"), proxyFile: filepath.Join(dir, "proxy.env")}
	proxy := func(address string) string {
		t.Helper()
		c, err := u.registries()
		require.NoError(t, err)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		p, err := c.Proxy(r)
		if err != nil || p == nil {
			return ""
		}
		return p.String()
	}
	if got := proxy("https://r.example/v2/"); got != "" {
		t.Errorf("without a file the proxy is %s", got)
	}
	write := func(file, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(u.proxyFile, "HTTP_PROXY=\"http://a:p\\$w@proxy:3128\"\nHTTPS_PROXY=\"http://secure:3128\"\nNO_PROXY=\"10.0.0.0/8,.svc\"\n")
	for address, want := range map[string]string{
		"http://r.example/v2/": "http://a:p$w@proxy:3128", "https://r.example/v2/": "http://secure:3128", "https://10.1.2.3:5000/v2/": "", "https://x.svc/v2/": "",
	} {
		if got := proxy(address); got != want {
			t.Errorf("%s goes through %q, want %q", address, got, want)
		}
	}
	write(u.credentials, `{"auths":{"r.example":{"auth":"YTpjYW5hcnk="}}}`)
	c, err := u.registries()
	if err != nil || c.Credentials["r.example"].Password != "canary" {
		t.Errorf("%v, %v", c.Credentials, err)
	}
	write(u.credentials, "canary")
	if _, err := u.registries(); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), u.credentials) {
		t.Errorf("damaged credentials: %v", err)
	}
}

// The depots in containerd's files are not registries.
func TestDepotsAreNotAsked(t *testing.T) {
	u := upstreamFlags{except: []string{"registry.k8s.io"}}
	c, err := u.registries()
	require.NoError(t, err)
	if list, err := c.Endpoints("registry.k8s.io"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func TestDepotTable(t *testing.T) {
	var out page
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	depotTable(&out, depot.Status{Directory: "/d", Roots: []depot.RootStatus{{Name: "pulled-a-1", Image: "r.example/a:v1", Since: since, Images: 1, Complete: true}, {Name: "bundle-1"}},
		Wanted: []depot.Want{{Image: "r.example/b:v1"}, {Image: "r.example/c:v1", Why: "one\ntwo"}}})
	text := out.String()
	for _, want := range []string{"r.example/a:v1   2026-01-02T03:04:05Z", "bundle-1", "to be copied:", "r.example/b:v1  soon", "r.example/c:v1  one; two", "/d uses"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from\n%s", want, text)
		}
	}
	if strings.Contains(text, "pulled-a") {
		t.Error(text)
	}
	if got := expiry(since, since.Add(-time.Hour)) + ", " + expiry(since, since.Add(time.Hour)); got != "2026-01-02T03:04:05Z (1h0m0s), expired 2026-01-02T03:04:05Z" {
		t.Errorf("of a token: %s", got)
	}
}
