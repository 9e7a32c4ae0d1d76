// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/rotation"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/snapshotfile"
)

func authority(t *testing.T, name string) string {
	t.Helper()
	ca, err := pki.NewCA(time.Now(), name, nil)
	require.NoError(t, err)
	return string(ca.CertPEM())
}

// Restored data without a record of the machine's present rotation would leave it with two CAs permanently.
func TestKeepsRotation(t *testing.T) {
	before, after, other := authority(t, "kubernetes"), authority(t, "kubernetes"), authority(t, "kubernetes")
	secret := func(old, next string) map[string][]byte {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "ocadm-ca-rotation", Namespace: "kube-system"},
			Data: map[string][]byte{"rotation.json": []byte("{}"), "old-ca": []byte(old), "new-ca": []byte(next)}}
		return map[string][]byte{rotation.StoredAt: stored(t, corev1.SchemeGroupVersion, "Secret", s), "/registry/x": []byte("x")}
	}
	none := map[string][]byte{"/registry/x": []byte("x"), rotation.StoredAt + "-of-someone": []byte("x")}
	for name, c := range map[string]struct {
		files  string
		values map[string][]byte
		forget bool
		fits   bool
	}{
		"no rotation":                  {before, none, false, true},
		"before the rotation":          {before + after, none, false, false},
		"before it, signed by the new": {after + before, none, false, false},
		"before it, and forgotten":     {after + before, none, true, true},
		"during the rotation":          {before + after, secret(before, after), false, true},
		"during it, on the way back":   {before + after, secret(after, before), false, true},
		"during an earlier one":        {after + other, secret(before, after), false, false},
		"encrypted":                    {before + after, map[string][]byte{rotation.StoredAt: []byte("k8s:enc:aescbc:v1:key1:x")}, false, true},
	} {
		h := machine(t)
		write(t, h, "/etc/kubernetes/kubelet.conf", "x")
		write(t, h, "/etc/kubernetes/pki/ca.crt", c.files)
		file := snapshotfile.WriteWith(t, t.TempDir(), time.Now(), 100, c.values)
		info, err := snapshot.Verify(file)
		require.NoError(t, err)
		database(t, h, c.values)
		for _, r := range []*Restore{{File: file, Info: info}, {}} {
			r.Host, r.Member, r.ForgetRotation = h, own(t, h), c.forget
			found := finding.Of(r.KeepsRotation(t.Context()))
			if refused := len(found) == 1 && found[0].Code == "OCA-4158"; refused == c.fits || len(found) > 1 {
				t.Errorf("%s, file %q: %+v", name, r.File, found)
			}
		}
		// The preview may not have seen the member's data, because etcd had the file open.
		_, err = (&Restore{Host: h, Member: own(t, h), ForgetRotation: c.forget}).settle(h.Files.Path("/var/lib/etcd/member/snap/db"), workflow.Discard{})
		if (err == nil) != c.fits {
			t.Errorf("%s: when etcd has stopped: %v", name, err)
		}
	}
}
