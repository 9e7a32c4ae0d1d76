// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"crypto"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// addressed are the certificates of a control-plane node that hold its address.
func addressed() map[string]string {
	return map[string]string{
		"apiserver":   constants.CACertAndKeyBaseName,
		"etcd/server": constants.EtcdCACertAndKeyBaseName,
		"etcd/peer":   constants.EtcdCACertAndKeyBaseName,
	}
}

// CertificatesWithout are the certificates of this control-plane node that do not hold an address and should, sorted.
func CertificatesWithout(h *host.Host, address netip.Addr) ([]string, error) {
	var out []string
	for name := range addressed() {
		file := pkiDir + "/" + name + ".crt"
		cert, err := readCertificate(h, file)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		if !slices.ContainsFunc(cert.IPAddresses, net.IP(address.AsSlice()).Equal) {
			out = append(out, file)
		}
	}
	slices.Sort(out)
	return out, nil
}

// AddAddress signs the certificates of this control-plane node that lack an address anew, with the same keys and names and that address, too.
func AddAddress(h *host.Host, r workflow.Reporter, address netip.Addr) error {
	files, err := CertificatesWithout(h, address)
	if err != nil {
		return err
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, pkiDir+"/"), ".crt")
		if err := signWith(h, file, addressed()[name], address); err != nil {
			return err
		}
		r.Changed("added %s to %s", address, file)
	}
	return nil
}

// signWith writes a certificate with one address more. Its key stays, so that no moment is without a pair that fits.
func signWith(h *host.Host, file, authority string, address netip.Addr) error {
	old, err := readCertificate(h, file)
	if err != nil {
		return fmt.Errorf("reading a certificate: %w", err)
	}
	ca, caKey, err := certs.LoadCertificateAuthority(h.Files.Path(pkiDir), authority)
	if err != nil {
		return finding.Errorf("OCA-4404", "The key of a certificate authority is not on this machine",
			"ocadm kubeadm certs generate-csr, let the owner of the authority sign, and put the certificates in place", "%w", err)
	}
	raw, err := os.ReadFile(h.Files.Path(strings.TrimSuffix(file, ".crt") + ".key"))
	if err != nil {
		return fmt.Errorf("reading the key of a certificate: %w", err)
	}
	private, err := keyutil.ParsePrivateKeyPEM(raw)
	if err != nil {
		return fmt.Errorf("reading the key of a certificate: %w", err)
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return fmt.Errorf("reading the key of %s: it cannot sign", file)
	}
	now := time.Now()
	cert, err := pkiutil.NewSignedCert(&pkiutil.CertConfig{
		Config: certutil.Config{CommonName: old.Subject.CommonName, Organization: old.Subject.Organization, NotBefore: now.Add(-constants.CertificateBackdate),
			AltNames: certutil.AltNames{DNSNames: old.DNSNames, IPs: append(slices.Clone(old.IPAddresses), address.AsSlice())}, Usages: slices.Clone(old.ExtKeyUsage)},
		NotAfter: now.Add(constants.CertificateValidityPeriod),
	}, key, ca, caKey, false)
	if err != nil {
		return fmt.Errorf("signing %s: %w", file, err)
	}
	return h.Files.WriteFile(file, pkiutil.EncodeCertPEM(cert), 0o644)
}

// Server is where the kubelet of this machine reaches the API server: host and port.
func Server(h *host.Host) (string, error) {
	cluster, _, err := loadKubeconfig(h, KubeletKubeconfig)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", KubeletKubeconfig, err)
	}
	u, err := url.Parse(cluster.Server)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", KubeletKubeconfig, err)
	}
	return u.Host, nil
}

// NodeClientAt has the kubelet's rights at another address of the API server.
func NodeClientAt(h *host.Host, server string) (client.WithWatch, error) {
	return clientAt(h, KubeletKubeconfig, "https://"+server)
}

// AdminClient has the rights of an administrator, with the kubeconfig as it is now.
func AdminClient(h *host.Host) (client.WithWatch, error) { return clientOf(h, AdminKubeconfig) }

// AddressedFiles are the files of kubeadm and the kubelet on this machine that may hold addresses of the control plane or of the node.
func AddressedFiles(h *host.Host) ([]string, error) {
	out := []string{ConfigFile, kubeletFlagsFile, kubeletConfigFile}
	for _, pattern := range []string{kubernetesDir + "/*.conf", manifestsDir + "/*.yaml", stoppedDir + "/*.yaml"} {
		files, err := h.Files.Glob(pattern)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	return out, nil
}

// NodeAddress is the address that the kubelet of this machine registers; it is invalid if the kubelet chooses by itself.
func NodeAddress(h *host.Host) netip.Addr {
	_, rest, _ := strings.Cut(h.Files.Text(kubeletFlagsFile), "--node-ip=")
	at, _, _ := strings.Cut(rest, " ")
	address, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(at), `"`))
	if err != nil {
		return netip.Addr{}
	}
	return address
}
