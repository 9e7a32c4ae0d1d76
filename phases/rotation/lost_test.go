// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

// A rotation without a record can be ended: --finish and --revert say how, instead of sending the user in circles with OCA-4409.
func TestLostRecord(t *testing.T) {
	h := controlPlane(t, "key")
	write := func(name, text string) {
		t.Helper()
		file := h.Files.Path("/etc/kubernetes/" + name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	two := func() string {
		t.Helper()
		var out string
		for range 2 {
			ca, err := pki.NewCA(time.Now(), "kubernetes", nil)
			require.NoError(t, err)
			out += string(ca.CertPEM())
		}
		return out
	}
	says := func(when, what, remedy string) {
		t.Helper()
		n := &Rotation{Host: h}
		for _, err := range []error{n.Finishable(), n.Reversible()} {
			if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4415" || f[0].What != what || !strings.Contains(f[0].Remedy, remedy) {
				t.Errorf("%s: %+v", when, f)
			}
		}
	}
	write("kubelet.conf", "x")
	says("no rotation", "No rotation of the certificate authorities is underway", "ocadm certs rotate-ca --dry-run")
	write("pki/ca.crt", two())
	says("two authorities", "The record of the rotation of the certificate authorities is lost", "start a new rotation, which drops the authority that does not sign: ocadm certs rotate-ca, then")
	write("pki/etcd/ca.crt", two())
	says("two of etcd, too", "The record of the rotation of the certificate authorities is lost", ": ocadm certs rotate-ca --etcd, then")
}
