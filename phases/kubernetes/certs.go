// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// certificate is one of kubeadm's. An empty CA means that it signs itself.
type certificate struct {
	name, short, file, ca string
	names                 func(*config.Config) []string // what it must be good for
}

func certificates() []certificate {
	etcdNames := func(c *config.Config) []string {
		return []string{"localhost", "127.0.0.1", c.Node.Name, advertiseAddress(c)}
	}
	return []certificate{
		{name: "ca", short: "Make the cluster's certificate authority", file: "ca"},
		{name: "etcd-ca", short: "Make etcd's certificate authority", file: "etcd/ca"},
		{name: "front-proxy-ca", short: "Make the aggregation layer's certificate authority", file: "front-proxy-ca"},
		{name: "apiserver", short: "Make the API server's serving certificate", file: "apiserver", ca: "ca", names: apiServerNames},
		{name: "apiserver-kubelet-client", short: "Make the API server's certificate for kubelets", file: "apiserver-kubelet-client", ca: "ca"},
		{name: "front-proxy-client", short: "Make the aggregation layer's client certificate", file: "front-proxy-client", ca: "front-proxy-ca"},
		{name: "etcd-server", short: "Make etcd's serving certificate", file: "etcd/server", ca: "etcd-ca", names: etcdNames},
		{name: "etcd-peer", short: "Make etcd's peer certificate", file: "etcd/peer", ca: "etcd-ca", names: etcdNames},
		{name: "etcd-healthcheck-client", short: "Make the certificate of etcd's probes", file: "etcd/healthcheck-client", ca: "etcd-ca"},
		{name: "apiserver-etcd-client", short: "Make the API server's certificate for etcd", file: "apiserver-etcd-client", ca: "etcd-ca"},
	}
}

func apiServerNames(c *config.Config) []string {
	names := append([]string{"kubernetes", "kubernetes.default.svc." + c.Cluster.ServiceDNSDomain, c.Node.Name, advertiseAddress(c)}, certSANs(c)...)
	if endpoint, _, err := net.SplitHostPort(controlPlaneEndpoint(c)); err == nil {
		names = append(names, endpoint)
	}
	if ip, err := constants.GetAPIServerVirtualIP(c.Cluster.ServiceCIDR); err == nil {
		names = append(names, ip.String())
	}
	return names
}

func certsPhase() host.Phase {
	p := host.Phase{
		Name: "certs", Short: "Make the certificates of the control plane",
		Long:  "Makes every certificate and key in " + pkiDir + ". What is there and good is kept; a certificate authority is never replaced.",
		After: []string{"kubeadm-config"},
	}
	for _, c := range certificates() {
		k := kubeadmPhase{
			name: c.name, short: c.short, args: []string{"init", "phase", "certs", c.name},
			writes:  []string{c.path() + ".crt", c.path() + ".key"},
			check:   c.done,
			prepare: c.clear,
			after:   []string{},
		}
		if c.ca != "" {
			k.after = []string{"certs/" + c.ca}
		}
		p.Phases = append(p.Phases, k.phase())
	}
	p.Phases = append(p.Phases, kubeadmPhase{
		name: "sa", short: "Make the key that signs service account tokens", args: []string{"init", "phase", "certs", "sa"},
		writes: []string{pkiDir + "/sa.key", pkiDir + "/sa.pub"}, check: serviceAccountKeyDone, after: []string{},
	}.phase())
	return p
}

func (c certificate) path() string { return pkiDir + "/" + c.file }

func (c certificate) done(_ context.Context, h *host.Host) (bool, error) {
	problem, err := c.problem(h, time.Now())
	return err == nil && problem == "", err
}

// problem says why the certificate cannot be used; "" when it can.
func (c certificate) problem(h *host.Host, now time.Time) (string, error) {
	cert, problem, err := readCertificate(h, c.path()+".crt")
	if problem != "" || err != nil {
		return problem, err
	}
	key, problem, err := readKey(h, c.path()+".key")
	if problem != "" || err != nil {
		return problem, err
	}
	if p, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !p.Equal(key.Public()) {
		return "its key is another certificate's", nil
	}
	ca := cert
	if c.ca != "" {
		for _, authority := range certificates() {
			if authority.name != c.ca {
				continue
			}
			if ca, problem, err = readCertificate(h, authority.path()+".crt"); problem != "" || err != nil {
				return problem, err
			}
		}
	}
	var names []string
	if c.names != nil {
		names = c.names(h.Config)
	}
	return certificateProblem(cert, ca, names, now), nil
}

func certificateProblem(cert, ca *x509.Certificate, names []string, now time.Time) string {
	if err := cert.CheckSignatureFrom(ca); err != nil {
		return "it is not signed by its certificate authority"
	}
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf("it is only valid from %s on", cert.NotBefore.Format(time.RFC3339))
	}
	if now.After(cert.NotAfter) {
		return fmt.Sprintf("it expired at %s", cert.NotAfter.Format(time.RFC3339))
	}
	for _, n := range names {
		if n != "" && cert.VerifyHostname(n) != nil {
			return fmt.Sprintf("it is not made for %s", n)
		}
	}
	return ""
}

// clear removes a certificate that kubeadm would stumble over. An authority is what every node and client trusts: it stays.
func (c certificate) clear(_ context.Context, h *host.Host, r workflow.Reporter) error {
	problem, err := c.problem(h, time.Now())
	if err != nil || problem == "" || problem == missing {
		return err
	}
	if c.ca == "" {
		if _, err := h.Files.ReadFile(c.path() + ".key"); errors.Is(err, fs.ErrNotExist) {
			return nil // an authority kept elsewhere: kubeadm knows how to live with one
		}
		return finding.Finding{Code: "OCA-4030", Severity: finding.Error,
			What:   fmt.Sprintf("The certificate authority %s.crt cannot be used", c.path()),
			Cause:  problem,
			Remedy: "restore it from a backup, or start anew with: ocadm reset"}
	}
	for _, f := range []string{c.path() + ".crt", c.path() + ".key"} {
		if err := h.Files.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the unusable %s: %w", f, err)
		}
	}
	r.Changed("removed %s.crt and its key: %s", c.path(), problem)
	return nil
}

const missing = "it does not exist"

func readCertificate(h *host.Host, file string) (*x509.Certificate, string, error) {
	raw, err := h.Files.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading a certificate: %w", err)
	}
	certs, err := certutil.ParseCertsPEM(raw)
	if err != nil || len(certs) == 0 {
		return nil, "it holds no certificate", nil //nolint:nilerr // a broken file is a problem to tell, not a failure to look
	}
	return certs[0], "", nil
}

func readKey(h *host.Host, file string) (crypto.Signer, string, error) {
	raw, err := h.Files.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "its key does not exist", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading a private key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(raw)
	if err != nil {
		return nil, "its key file holds no key", nil //nolint:nilerr // as above
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, "its key cannot sign", nil
	}
	return signer, "", nil
}

func serviceAccountKeyDone(_ context.Context, h *host.Host) (bool, error) {
	key, problem, err := readKey(h, pkiDir+"/sa.key")
	if err != nil || problem != "" {
		return false, err
	}
	pub, err := h.Files.ReadFile(pkiDir + "/sa.pub")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, fmt.Errorf("reading the service account key: %w", err)
	}
	keys, err := keyutil.ParsePublicKeysPEM(pub)
	if err != nil || len(keys) == 0 {
		return false, nil //nolint:nilerr // kubeadm writes it anew
	}
	want, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return false, fmt.Errorf("encoding the service account key: %w", err)
	}
	got, err := x509.MarshalPKIXPublicKey(keys[0])
	return err == nil && bytes.Equal(got, want), err
}
