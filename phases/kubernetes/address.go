// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
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

// NodeCertificates are the certificates of a control-plane node that hold its address. The endpoint of the cluster is in that of the API server alone.
func NodeCertificates() []string { return slices.Sorted(maps.Keys(addressed())) }

// APIServerCertificate is what clients of the API server see.
const APIServerCertificate = "apiserver"

// CertificatesWithout are those of the certificates of this control-plane node that lack one of the names or addresses.
func CertificatesWithout(h *host.Host, certificates []string, names ...string) ([]string, error) {
	var out []string
	for _, name := range certificates {
		file := pkiDir + "/" + name + ".crt"
		cert, err := readCertificate(h, file)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate: %w", err)
		}
		if lacks(cert, names) {
			out = append(out, file)
		}
	}
	return out, nil
}

func lacks(cert *x509.Certificate, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return cert.VerifyHostname(n) != nil })
}

// AddNames signs those of the certificates anew that lack one of the names or addresses, with the same keys and what they have, and these, too. They last as long
// as renewed ones.
func AddNames(ctx context.Context, h *host.Host, r workflow.Reporter, certificates []string, names ...string) error {
	files, err := CertificatesWithout(h, certificates, names...)
	if err != nil || len(files) == 0 {
		return err
	}
	UseValidity(ctx, h)
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(file, pkiDir+"/"), ".crt")
		if err := signWith(h, file, addressed()[name], names); err != nil {
			return err
		}
		r.Changed("added %s to %s", strings.Join(names, ", "), file)
	}
	return nil
}

// withNames are the names and addresses of a certificate, and others.
func withNames(cert *x509.Certificate, names []string) certutil.AltNames {
	out := certutil.AltNames{DNSNames: slices.Clone(cert.DNSNames), IPs: slices.Clone(cert.IPAddresses)}
	for _, n := range names {
		switch ip := net.ParseIP(n); {
		case cert.VerifyHostname(n) == nil:
		case ip != nil:
			out.IPs = append(out.IPs, ip)
		default:
			out.DNSNames = append(out.DNSNames, n)
		}
	}
	return out
}

// signWith writes a certificate with more names. Its key stays, so that no moment is without a pair that fits.
func signWith(h *host.Host, file, authority string, names []string) error {
	old, err := readCertificate(h, file)
	if err != nil {
		return fmt.Errorf("reading a certificate: %w", err)
	}
	key, err := os.ReadFile(h.Files.Path(strings.TrimSuffix(file, ".crt") + ".key"))
	if err != nil {
		return fmt.Errorf("reading the key of a certificate: %w", err)
	}
	cert, err := signLike(h, old, key, authority, names)
	if err != nil {
		return fmt.Errorf("signing %s: %w", file, err)
	}
	return h.Files.WriteFile(file, cert, 0o644)
}

// signKubeconfig writes a kubeconfig with a new certificate for its key.
func signKubeconfig(h *host.Host, file, authority string) error {
	return editKubeconfig(h, file, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
		old, err := clientCertificate(h, user)
		if err != nil {
			return fmt.Errorf("reading the certificate of %s: %w", file, err)
		}
		if user.ClientCertificateData, err = signLike(h, old, user.ClientKeyData, authority, nil); err != nil {
			return fmt.Errorf("signing %s: %w", file, err)
		}
		return nil
	})
}

// signLike signs a certificate like another one, with its key, for as long as a renewed one, and with more names.
func signLike(h *host.Host, old *x509.Certificate, pem []byte, authority string, names []string) ([]byte, error) {
	ca, caKey, err := certs.LoadCertificateAuthority(h.Files.Path(pkiDir), authority)
	if err != nil {
		return nil, finding.Errorf("OCA-4404", "The key of a certificate authority is not on this machine",
			"ocadm kubeadm certs generate-csr, let the owner of the authority sign, and put the certificates in place", "%w", err)
	}
	private, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return nil, errors.New("reading the key: it cannot sign")
	}
	now := time.Now()
	cert, err := pkiutil.NewSignedCert(&pkiutil.CertConfig{
		Config: certutil.Config{CommonName: old.Subject.CommonName, Organization: old.Subject.Organization, NotBefore: now.Add(-constants.CertificateBackdate),
			AltNames: withNames(old, names), Usages: slices.Clone(old.ExtKeyUsage)},
		NotAfter: now.Add(validity(h)),
	}, key, ca, caKey, false)
	if err != nil {
		return nil, err
	}
	return pkiutil.EncodeCertPEM(cert), nil
}

// Server is where the kubelet of this machine reaches the API server: host and port.
func Server(h *host.Host) (string, error) {
	u, err := serverIn(h, KubeletKubeconfig)
	return u.Host, err
}

// serverIn is the address of the API server in a kubeconfig.
func serverIn(h *host.Host, kubeconfig string) (url.URL, error) {
	cluster, _, err := loadKubeconfig(h, kubeconfig)
	if err != nil {
		return url.URL{}, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	u, err := url.Parse(cluster.Server)
	if err != nil {
		return url.URL{}, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	return *u, nil
}

// NodeClientAt has the kubelet's permissions at another address of the API server.
func NodeClientAt(h *host.Host, server string) (client.WithWatch, error) {
	return clientAt(h, KubeletKubeconfig, "https://"+server)
}

// AdminClient has the permissions of an administrator, with the kubeconfig as it is now.
func AdminClient(h *host.Host) (client.WithWatch, error) { return clientOf(h, AdminKubeconfig) }

// AddressedFiles are the files of kubeadm and the kubelet on this machine that may hold addresses of the control plane or of the node.
func AddressedFiles(h *host.Host) ([]string, error) {
	out := []string{ConfigFile, kubeletFlagsFile, KubeletConfigFile}
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

// AddClusterName adds a name or address to those that kubeadm puts into the certificate of every API server. It reports whether it was lacking; a dry run
// changes nothing.
func AddClusterName(ctx context.Context, h *host.Host, name string, dryRun bool) (bool, error) {
	c, err := AdminClient(h)
	if err != nil {
		return false, err
	}
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, &cm); err != nil {
		return false, fmt.Errorf("reading the settings of kubeadm: %w", err)
	}
	const key = "ClusterConfiguration"
	var all map[string]any // what this program does not know stays
	if err := yaml.Unmarshal([]byte(cm.Data[key]), &all); err != nil {
		return false, fmt.Errorf("reading the settings of kubeadm: %w", err)
	}
	list, _, err := unstructured.NestedStringSlice(all, "apiServer", "certSANs")
	if err != nil || slices.Contains(list, name) || dryRun {
		return err == nil && !slices.Contains(list, name), err
	}
	if err := unstructured.SetNestedStringSlice(all, append(list, name), "apiServer", "certSANs"); err != nil {
		return false, err
	}
	raw, err := yaml.Marshal(all)
	if err != nil {
		return false, fmt.Errorf("writing the settings of kubeadm: %w", err)
	}
	before := cm.DeepCopy()
	cm.Data[key] = string(raw)
	if err := c.Patch(ctx, &cm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(kube.FieldManager)); err != nil {
		return false, fmt.Errorf("writing the settings of kubeadm: %w", err)
	}
	return true, nil
}
