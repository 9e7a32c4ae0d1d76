// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// Member holds the credentials with which this machine authenticates to its cluster and verifies it.
type Member struct {
	TLS *tls.Config
	// Token is a bootstrap token, "" if the machine has a certificate.
	Token string
	// Networks are those of the cluster, empty if it does not answer.
	Networks Networking
}

// MemberOf returns the Member of a node from its certificate, and that of a joining machine from its token or discovery file.
func MemberOf(ctx context.Context, h *host.Host) (Member, error) {
	if cert, err := tls.LoadX509KeyPair(h.Files.Path(kubeletClientPEM), h.Files.Path(kubeletClientPEM)); err == nil {
		ca, err := h.Files.ReadFile(pkiDir + "/ca.crt")
		if err != nil {
			return Member{}, fmt.Errorf("reading the cluster's certificate authority: %w", err)
		}
		m := Member{TLS: pinned(ca)}
		m.TLS.Certificates = []tls.Certificate{cert}
		return m.withNetworks(ctx, h.Config), nil
	}
	if h.Config.Join.DiscoveryFile == "" {
		d, err := Discover(ctx, h.Config)
		return Member{TLS: pinned(d.CA), Token: h.Config.Join.Token, Networks: networksOf(d.Cluster)}, err
	}
	f, err := readDiscoveryFile(ctx, h.Config.Join.DiscoveryFile)
	if err != nil {
		return Member{}, err
	}
	m, err := f.member(h.Config.Join.Token)
	if err != nil {
		return Member{}, badDiscoveryFile(h.Config.Join.DiscoveryFile, err)
	}
	return m.withNetworks(ctx, h.Config), nil
}

func networksOf(c kubeadmv1beta4.ClusterConfiguration) Networking {
	return Networking{PodSubnet: c.Networking.PodSubnet, ServiceSubnet: c.Networking.ServiceSubnet, DNSDomain: c.Networking.DNSDomain}
}

func (m Member) withNetworks(ctx context.Context, c *config.Config) Member {
	k, err := clusterConfigurationFrom(ctx, withPort(cmp.Or(c.Join.Endpoint, c.Cluster.ControlPlaneEndpoint)), m.TLS, m.Token)
	if err == nil {
		m.Networks = networksOf(k)
	}
	return m
}

// discoveryFile is a kubeconfig with the cluster's address and CA. Everything else in it is optional.
type discoveryFile struct {
	cluster *clientcmdapi.Cluster
	user    *clientcmdapi.AuthInfo
}

// DiscoveredEndpoint returns the control plane's address, host:port, from a discovery file: a path or an https URL.
func DiscoveredEndpoint(ctx context.Context, file string) (string, error) {
	f, err := readDiscoveryFile(ctx, file)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(f.cluster.Server)
	if err != nil || u.Host == "" {
		return "", badDiscoveryFile(file, fmt.Errorf("its server %q is not a URL", f.cluster.Server))
	}
	return withPort(u.Host), nil
}

func readDiscoveryFile(ctx context.Context, file string) (f discoveryFile, err error) {
	var kc *clientcmdapi.Config
	if strings.HasPrefix(file, "https://") { // like kubeadm
		var raw []byte
		if raw, err = (fetch.Fetcher{Attempts: 1, Stall: discoveryTimeout}).Document(ctx, file, maxAnswer); err == nil {
			kc, err = clientcmd.Load(raw)
		}
	} else if kc, err = clientcmd.LoadFromFile(file); err == nil {
		err = clientcmd.ResolveLocalPaths(kc)
	}
	if err != nil {
		return f, badDiscoveryFile(file, err)
	}
	if current := kc.Contexts[kc.CurrentContext]; current != nil {
		f.cluster, f.user = kc.Clusters[current.Cluster], kc.AuthInfos[current.AuthInfo]
	}
	if f.cluster == nil && len(kc.Clusters) == 1 { // the kubeconfig of cluster-info has no context
		for _, c := range kc.Clusters {
			f.cluster = c
		}
	}
	if f.cluster == nil {
		return f, badDiscoveryFile(file, errors.New("it does not name a cluster"))
	}
	return f, nil
}

// beside resolves a path in a kubeconfig relative to that file.
func beside(file, name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// member uses the credentials in the file, else the token.
func (f discoveryFile) member(token string) (Member, error) {
	c := rest.TLSClientConfig{CAFile: f.cluster.CertificateAuthority, CAData: f.cluster.CertificateAuthorityData}
	if f.user != nil {
		c.CertFile, c.CertData = f.user.ClientCertificate, f.user.ClientCertificateData
		c.KeyFile, c.KeyData = f.user.ClientKey, f.user.ClientKeyData
	}
	files := rest.Config{TLSClientConfig: c}
	if err := rest.LoadTLSFiles(&files); err != nil {
		return Member{}, err
	}
	m := Member{TLS: &tls.Config{MinVersion: tls.VersionTLS12}, Token: token}
	if len(files.CAData) > 0 {
		m.TLS = pinned(files.CAData)
	}
	if f.user == nil {
		return m, nil
	}
	if len(files.CertData) > 0 {
		pair, err := tls.X509KeyPair(files.CertData, files.KeyData)
		if err != nil {
			return m, errors.New("its client certificate cannot be used") // the cause may quote a secret
		}
		m.TLS.Certificates, m.Token = []tls.Certificate{pair}, ""
	} else {
		m.Token = cmp.Or(token, f.user.Token)
	}
	return m, nil
}

func badDiscoveryFile(file string, err error) error {
	return finding.Errorf("OCA-0305", "The discovery file "+file+" cannot be used",
		"give a kubeconfig with the cluster's address and certificate authority, such as: kubectl -n kube-public get configmap cluster-info -o jsonpath={.data.kubeconfig}", "%w", err)
}
