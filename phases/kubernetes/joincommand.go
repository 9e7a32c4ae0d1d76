// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/registry"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// joinTokenMargin is the remaining life with which a token is reused rather than replaced by a new one.
const joinTokenMargin = 10 * time.Minute

// JoinRoles describes what a joining node does for the cloud. It becomes part of the printed command, so that the command is complete.
type JoinRoles struct {
	// Host makes it a compute node, Controller one that runs the cloud's services.
	Host, Controller bool
	// CertificateKey, from UploadAuthorities, makes it a control-plane node; it is a secret.
	CertificateKey string
}

func (r JoinRoles) flags() string {
	out := ""
	if r.Host {
		out += " --enable-host-agent"
	}
	if r.Controller {
		out += " --as-onecloud-controller"
	}
	if r.CertificateKey != "" {
		out += " --control-plane --certificate-key " + r.CertificateKey
	}
	return out
}

// JoinCommand returns the command that joins a worker to this node's cluster. It reuses a token that is still valid for a while, or creates one. The result is a
// secret.
func JoinCommand(ctx context.Context, h *host.Host, roles JoinRoles) (string, error) {
	c, err := h.Kube(ctx)
	if err != nil {
		return "", err
	}
	tokens, err := ListTokens(ctx, c)
	if err != nil {
		return "", err
	}
	now := time.Now()
	t, ok := usableToken(tokens, now.Add(joinTokenMargin))
	if !ok {
		if t, err = CreateToken(ctx, c, TokenOptions{Description: "made for a join command"}, now); err != nil {
			return "", err
		}
	}
	return JoinCommandFor(ctx, h, t.String(), roles)
}

// JoinCommandFor returns the command that joins a worker with the given token.
func JoinCommandFor(ctx context.Context, h *host.Host, token string, roles JoinRoles) (string, error) {
	hash, err := CAHash(ctx, h)
	if err != nil {
		return "", err
	}
	endpoint, err := Endpoint(ctx, h)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("ocadm join %s --token %s --discovery-token-ca-cert-hash %s%s%s", endpoint, token, hash, roles.flags(), ofCluster(ctx, h)+offline(h)), nil
}

// DownloadCommand returns a command for machines without ocadm: it downloads ocadm from the depot and then runs the join command. curl does not know the server, so
// it first downloads the certificate of the cluster's CA, which is public, and continues only if that has the digest in the command. curl reads the token from
// standard input; in the join command it is an argument, as usual. A temporary name keeps an interrupted download from being run. It needs sh, curl, coreutils and
// sed.
func DownloadCommand(ctx context.Context, h *host.Host, token, join string) (string, error) {
	certs, err := authority(ctx, h)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	endpoint, err := Endpoint(ctx, h)
	if err != nil {
		return "", err
	}
	address, _, err := config.SplitEndpoint(endpoint, config.DefaultPort)
	if err != nil {
		return "", err
	}
	const program = "/usr/local/bin/ocadm"
	const part = program + ".new" // a running program cannot be written to, only replaced
	const curl = "curl -f --noproxy '*' --retry 3 "
	depot := "https://" + net.JoinHostPort(address, strconv.Itoa(config.DepotPort))
	return fmt.Sprintf(`d=$(mktemp -d) && `+curl+`-sSk -o "$d/ca.crt" %[1]s/ca.crt && echo "%[2]x  $d/ca.crt" | sha256sum -c && `+
		`printf 'Authorization: Bearer %[3]s' | `+curl+`--cacert "$d/ca.crt" -H @- -o `+part+
		` "%[1]s/v1/files/linux/$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')`+program+`" && rm -r "$d" && `+
		`chmod 0755 `+part+` && mv -f `+part+` `+program+` && /usr/local/bin/%[4]s`, depot, sha256.Sum256(pki.EncodeCerts(certs...)), token, join), nil
}

// Offline reports whether init or join made this machine a node with --offline: its containerd uses the depot instead of registries.
func Offline(h *host.Host) bool {
	const hosts = registry.HostsDir + "/_default/hosts.toml"
	return h.Ledger.Has(host.KindFile, hosts) && strings.Contains("\n"+h.Files.Text(hosts), "\nserver = ")
}

// offline returns the flag for workers of a cluster whose first node was installed with it.
func offline(h *host.Host) string {
	if h.Config.Run.Kubeconfig == "" && Offline(h) {
		return " --offline"
	}
	return ""
}

// ofCluster returns the flags that give a worker the cluster's image source and version of Kubernetes. It returns "" if join defaults to them, or if the cluster
// does not answer.
func ofCluster(ctx context.Context, h *host.Host) string {
	c, err := h.Kube(ctx)
	if err != nil {
		return ""
	}
	flags := ""
	all, err := ClusterImageRepository(ctx, h, c)
	if err == nil && all != "" {
		flags = " --image-repository " + all
	}
	k, err := liveClusterConfiguration(ctx, c)
	if err != nil {
		return flags
	}
	if k.ImageRepository != "" && k.ImageRepository != all && (all != "" || k.ImageRepository != config.DefaultKubernetesImageRepository) {
		flags += " --kubernetes-image-repository " + k.ImageRepository
	}
	if k.KubernetesVersion != "" && k.KubernetesVersion != config.Default().Cluster.KubernetesVersion {
		flags += " --kubernetes-version " + k.KubernetesVersion
	}
	return flags
}

// ClusterImageRepository returns the repository of all images of a cluster, as stored by init; "" without --image-repository.
func ClusterImageRepository(ctx context.Context, h *host.Host, c client.Client) (string, error) {
	s, err := host.StoredSettings(ctx, h, c)
	return s.ImageRepository, err
}

// CAHash returns the pin of the cluster's CA, the argument of --discovery-token-ca-cert-hash. The cluster is that of the given kubeconfig, else this machine's.
func CAHash(ctx context.Context, h *host.Host) (string, error) {
	certs, err := authority(ctx, h)
	if err != nil {
		return "", fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	return pubkeypin.Hash(certs[0]), nil
}

func authority(ctx context.Context, h *host.Host) ([]*x509.Certificate, error) {
	if h.Config.Run.Kubeconfig == "" {
		raw, err := h.Files.ReadFile(pkiDir + "/ca.crt")
		if err != nil {
			return nil, err
		}
		return pki.ParseCerts(raw)
	}
	c, err := h.REST(ctx)
	if err != nil {
		return nil, err
	}
	c = rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(c); err != nil {
		return nil, err
	}
	return pki.ParseCerts(c.CAData)
}

// Endpoint returns the cluster's control plane endpoint, host:port, from the cluster if it answers, else from the administrator's kubeconfig.
func Endpoint(ctx context.Context, h *host.Host) (string, error) {
	if c, err := h.Kube(ctx); err == nil {
		if k, err := liveClusterConfiguration(ctx, c); err == nil && k.ControlPlaneEndpoint != "" {
			return k.ControlPlaneEndpoint, nil
		}
	}
	raw, err := h.Files.ReadFile(cmp.Or(h.Config.Run.Kubeconfig, AdminKubeconfig))
	if err != nil {
		return "", fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	kc, err := clientcmd.Load(raw)
	if err != nil {
		return "", fmt.Errorf("parsing the administrator's kubeconfig: %w", err)
	}
	if server := serverOf(kc); server != "" {
		return server, nil
	}
	return "", errors.New("the administrator's kubeconfig names no server")
}

// serverOf returns the API server that a kubeconfig names, host:port, or "".
func serverOf(kc *clientcmdapi.Config) string {
	for _, cluster := range kc.Clusters {
		if u, err := url.Parse(cluster.Server); err == nil && u.Host != "" {
			return u.Host
		}
	}
	return ""
}

// PublishedEndpoint returns the endpoint that the cluster publishes, host:port, or "" if this client cannot read it.
func PublishedEndpoint(ctx context.Context, c client.Reader) string {
	if k, err := liveClusterConfiguration(ctx, c); err == nil && k.ControlPlaneEndpoint != "" {
		return k.ControlPlaneEndpoint
	}
	_, kc, err := clusterInfoOf(ctx, c)
	if err != nil {
		return ""
	}
	return serverOf(kc)
}

func liveClusterConfiguration(ctx context.Context, c client.Reader) (*kubeadmv1beta4.ClusterConfiguration, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, &cm); err != nil {
		return nil, err
	}
	var k kubeadmv1beta4.ClusterConfiguration
	if err := yaml.Unmarshal([]byte(cm.Data["ClusterConfiguration"]), &k); err != nil {
		return nil, fmt.Errorf("parsing ConfigMap kube-system/kubeadm-config: %w", err)
	}
	return &k, nil
}

// parseCertificate returns the first certificate of a PEM file.
func parseCertificate(raw []byte) (*x509.Certificate, error) {
	certs, err := certutil.ParseCertsPEM(raw)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

// ErrOtherAuthority reports a server whose certificate was not signed by the pinned CA.
var ErrOtherAuthority = errors.New("it has a different certificate authority")

// Pin returns the hash of a certificate's key as in the join command: "sha256:" and 64 digits.
func Pin(cert *x509.Certificate) string { return pubkeypin.Hash(cert) }

// PinnedTLS configures a client of a server at host that sends its CA together with its own certificate: the CA is trusted because of its pin.
func PinnedTLS(pin, host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies with the pinned CA
		VerifyConnection: func(c tls.ConnectionState) error {
			i := slices.IndexFunc(c.PeerCertificates, func(cert *x509.Certificate) bool {
				return cert.IsCA && strings.EqualFold(pubkeypin.Hash(cert), pin)
			})
			if i < 0 {
				return fmt.Errorf("verifying the server %s: %w", host, ErrOtherAuthority)
			}
			roots, between := x509.NewCertPool(), x509.NewCertPool()
			roots.AddCert(c.PeerCertificates[i])
			for _, cert := range c.PeerCertificates[1:] {
				between.AddCert(cert)
			}
			_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host})
			return err
		}}
}
