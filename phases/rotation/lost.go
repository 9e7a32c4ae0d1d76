// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"crypto/x509"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Secret is the Secret with the record of a rotation, and StoredAt its key in etcd.
const (
	Secret   = metav1.NamespaceSystem + "/" + secretName
	StoredAt = "/registry/secrets/" + Secret
)

// IsOf reports whether the data of a Secret is the record of this machine's present rotation: it contains all CAs that the machine trusts.
func IsOf(h *host.Host, data map[string][]byte) bool {
	_, m, err := fromData(data)
	if err != nil {
		return false
	}
	trusted, err := certutil.ParseCertsPEM([]byte(h.Files.Text(kubernetes.ClusterAuthorityFile)))
	if err != nil {
		return false
	}
	recorded, err := certutil.ParseCertsPEM(m.bundle(Trust, kubernetes.ClusterAuthority))
	return err == nil && !slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return !slices.ContainsFunc(recorded, c.Equal) })
}

// NotUnderway returns the finding for a cluster without a record of a rotation. If the cluster's files are in a rotation nevertheless, the record was
// lost, and with it the key that does not sign. A new rotation needs only the CA that signs: its own pair replaces the two.
func NotUnderway(h *host.Host) error {
	if !kubernetes.Rotating(h) {
		return finding.New("OCA-4415", "No rotation of the certificate authorities is underway", "the cluster has no Secret "+Secret,
			"ocadm certs rotate-ca --dry-run shows what a rotation would do")
	}
	begin := "ocadm certs rotate-ca"
	if kubernetes.RotatingEtcd(h) {
		begin += " --etcd"
	}
	return finding.New("OCA-4415", "The record of the rotation of the certificate authorities is lost",
		"this machine trusts two authorities, and the cluster has no Secret "+Secret+": etcd was restored from a time before it, or the Secret was deleted",
		"compare sha256sum /etc/kubernetes/pki/ca.key on all control-plane nodes; if it is the same, start a new rotation, which drops the authority that does not sign: "+begin+
			", then ocadm certs rotate-ca --finish; if not, first see ocadm explain OCA-4415")
}
