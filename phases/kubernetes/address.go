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

// addressed returns the certificates of a control-plane node that contain its address.
func addressed() map[string]string {
	return map[string]string{
		"apiserver":   constants.CACertAndKeyBaseName,
		"etcd/server": constants.EtcdCACertAndKeyBaseName,
		"etcd/peer":   constants.EtcdCACertAndKeyBaseName,
	}
}

// NodeCertificates returns the certificates of a control-plane node that contain its address. Only that of the API server contains the cluster's endpoint.
func NodeCertificates() []string { return slices.Sorted(maps.Keys(addressed())) }

// APIServerCertificate is the serving certificate of the API server.
const APIServerCertificate = "apiserver"

// CertificatesWithout returns those of this control-plane node's certificates that lack one of the names or addresses.
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

// AddNames re-signs those of the certificates that lack one of the names or addresses. They keep their keys and existing names, and are valid as long as
// renewed ones.
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

// withNames returns the names and addresses of a certificate plus the given ones.
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

// signWith signs a certificate again, with more names. It keeps the key, so that certificate and key match at every moment.
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
	return h.Files.Replace(file, cert, 0o644)
}

// signKubeconfig replaces the certificate in a kubeconfig with a new one for the same key.
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

// signLike signs a certificate with the key and contents of another one plus more names, valid as long as a renewed one.
func signLike(h *host.Host, old *x509.Certificate, pem []byte, authority string, names []string) ([]byte, error) {
	ca, caKey, err := certs.LoadCertificateAuthority(h.Files.Path(pkiDir), authority)
	if err != nil {
		return nil, finding.Errorf("OCA-4404", "The key of a certificate authority is not on this machine", keyElsewhere, "%w", err)
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

// Server returns the API server that the kubelet of this machine uses, HOST:PORT.
func Server(h *host.Host) (string, error) {
	u, err := serverIn(h, KubeletKubeconfig)
	return u.Host, err
}

// serverIn returns the address of the API server in a kubeconfig.
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

// NodeClientAt returns a client with the kubelet's permissions for the API server at another address.
func NodeClientAt(h *host.Host, server string) (client.WithWatch, error) {
	return clientOf(h, KubeletKubeconfig, "https://"+server)
}

// AdminClient returns a client with administrator permissions, from the current kubeconfig.
func AdminClient(h *host.Host) (client.WithWatch, error) { return clientOf(h, AdminKubeconfig, "") }

// AddressedFiles returns the files of kubeadm and the kubelet on this machine that may contain addresses of the control plane or the node.
func AddressedFiles(h *host.Host) []string {
	return append([]string{ConfigFile, KubeletFlagsFile, KubeletConfigFile}, h.Files.Glob(kubernetesDir+"/*.conf", manifestsDir+"/*.yaml", stoppedDir+"/*.yaml")...)
}

// NodeAddress returns the address that the kubelet of this machine registers; it is invalid if the kubelet chooses one itself.
func NodeAddress(h *host.Host) netip.Addr {
	_, rest, _ := strings.Cut(h.Files.Text(KubeletFlagsFile), "--node-ip=")
	at, _, _ := strings.Cut(rest, " ")
	first, _, _ := strings.Cut(strings.Trim(strings.TrimSpace(at), `"`), ",") // one of each family
	address, err := netip.ParseAddr(first)
	if err != nil {
		return netip.Addr{}
	}
	return address
}

// AddClusterName adds a name or address to those that kubeadm puts into every API server's certificate. It reports whether the name was missing; a dry run
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
	var all map[string]any // unknown fields are kept
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
	if err := c.Patch(ctx, &cm, kube.IfUnchanged(before), client.FieldOwner(kube.FieldManager)); err != nil {
		return false, fmt.Errorf("writing the settings of kubeadm: %w", err)
	}
	return true, nil
}
