// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// certificate is one of kubeadm's. An empty ca means that it is self-signed.
type certificate struct{ name, short, file, ca string }

func certificates() []certificate {
	return []certificate{
		{name: "ca", short: "Create the cluster's certificate authority", file: "ca"},
		{name: "etcd-ca", short: "Create etcd's certificate authority", file: "etcd/ca"},
		{name: "front-proxy-ca", short: "Create the aggregation layer's certificate authority", file: "front-proxy-ca"},
		{name: "apiserver", short: "Create the API server's serving certificate", file: "apiserver", ca: "ca"},
		{name: "apiserver-kubelet-client", short: "Create the API server's certificate for kubelets", file: "apiserver-kubelet-client", ca: "ca"},
		{name: "front-proxy-client", short: "Create the aggregation layer's client certificate", file: "front-proxy-client", ca: "front-proxy-ca"},
		{name: "etcd-server", short: "Create etcd's serving certificate", file: "etcd/server", ca: "etcd-ca"},
		{name: "etcd-peer", short: "Create etcd's peer certificate", file: "etcd/peer", ca: "etcd-ca"},
		{name: "etcd-healthcheck-client", short: "Create the certificate of etcd's probes", file: "etcd/healthcheck-client", ca: "etcd-ca"},
		{name: "apiserver-etcd-client", short: "Create the API server's certificate for etcd", file: "apiserver-etcd-client", ca: "etcd-ca"},
	}
}

func certsPhase() host.Phase {
	p := host.Phase{
		Name: "certs", Short: "Create the certificates of the control plane",
		Long:  "Creates every certificate and key in " + pkiDir + ". Existing valid files are kept; a certificate authority is never replaced.",
		After: []string{"kubeadm-config"},
	}
	for _, c := range certificates() {
		k := making(kubeadmPhase{name: c.name, short: c.short, args: []string{"init", "phase", "certs", c.name}, after: []string{}}, []certificate{c})
		if c.ca != "" {
			k.after = []string{"certs/" + c.ca}
		}
		p.Phases = append(p.Phases, k.phase())
	}
	keys := serviceAccountKeys()
	p.Phases = append(p.Phases, kubeadmPhase{
		name: "sa", short: "Create the key that signs service account tokens", args: []string{"init", "phase", "certs", "sa"},
		writes: keys, check: filesThere(keys...), after: []string{},
	}.phase())
	return p
}

func (c certificate) path() string { return pkiDir + "/" + c.file }

func (c certificate) files() []string { return []string{c.path() + ".crt", c.path() + ".key"} }

func (c certificate) whole(_ context.Context, h *host.Host) (bool, error) {
	problem, err := c.problem(h, time.Now())
	return err == nil && problem == "", err
}

const missing = "it does not exist"

// problem returns why the certificate cannot be used, "" if it can.
func (c certificate) problem(h *host.Host, now time.Time) (string, error) {
	crt, err := h.Files.ReadFile(c.path() + ".crt")
	key, kerr := h.Files.ReadFile(c.path() + ".key")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing, nil
	case errors.Is(kerr, fs.ErrNotExist):
		return "its key does not exist", nil
	case err != nil || kerr != nil:
		return "", fmt.Errorf("reading a certificate: %w", errors.Join(err, kerr))
	}
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return err.Error(), nil //nolint:nilerr // a broken file is a problem to report, not an error
	}
	ca := pair.Leaf
	if i := slices.IndexFunc(certificates(), func(a certificate) bool { return a.name == c.ca }); i >= 0 {
		raw, err := h.Files.ReadFile(certificates()[i].path() + ".crt")
		if err != nil {
			return "its certificate authority cannot be read", nil //nolint:nilerr // as above
		}
		if ca, err = parseCertificate(raw); err != nil {
			return "its certificate authority is malformed", nil //nolint:nilerr // as above
		}
	}
	return certificateProblem(pair.Leaf, ca, now), nil
}

func certificateProblem(cert, ca *x509.Certificate, now time.Time) string {
	if err := cert.CheckSignatureFrom(ca); err != nil {
		return "it is not signed by its certificate authority"
	}
	if now.Before(cert.NotBefore) {
		return fmt.Sprintf("it is not valid before %s", cert.NotBefore.Format(time.RFC3339))
	}
	if now.After(cert.NotAfter) {
		return fmt.Sprintf("it expired at %s", cert.NotAfter.Format(time.RFC3339))
	}
	return ""
}

// clear removes a certificate that cannot be used or was made for another configuration. It keeps a CA, because every node and client trusts it.
func (c certificate) clear(h *host.Host, r workflow.Reporter, changed bool) error {
	problem, err := c.problem(h, time.Now())
	if changed && problem == "" && c.ca != "" {
		problem = "it was created for a different configuration"
	}
	if err != nil || problem == "" || problem == missing {
		return err
	}
	if c.ca == "" {
		if !h.Files.Exists(c.path() + ".key") {
			return nil // an external CA, which kubeadm supports
		}
		return finding.New("OCA-4030", fmt.Sprintf("The certificate authority %s.crt cannot be used", c.path()), problem,
			"restore it from a backup, or start over with: ocadm reset")
	}
	return removeUnusable(h, r, problem, c.path()+".crt", c.path()+".key")
}

func removeUnusable(h *host.Host, r workflow.Reporter, problem string, names ...string) error {
	for _, f := range names {
		if err := h.Files.Remove(f); err != nil {
			return fmt.Errorf("removing the unusable %s: %w", f, err)
		}
	}
	r.Changed("removed %s: %s", names[0], problem)
	return nil
}

// kubeconfig is a file that kubeadm writes for a client of the API server.
type kubeconfig struct{ name, short, file string }

func kubeconfigs() []kubeconfig {
	return []kubeconfig{
		{name: "admin", short: "Write the administrator's kubeconfig", file: AdminKubeconfig},
		{name: "super-admin", short: "Write the kubeconfig that bypasses authorization", file: kubernetesDir + "/super-admin.conf"},
		{name: "kubelet", short: "Write the kubelet's kubeconfig", file: KubeletKubeconfig},
		{name: "controller-manager", short: "Write the controller manager's kubeconfig", file: kubernetesDir + "/controller-manager.conf"},
		{name: "scheduler", short: "Write the scheduler's kubeconfig", file: kubernetesDir + "/scheduler.conf"},
	}
}

func kubeconfigPhase() host.Phase {
	p := host.Phase{Name: "kubeconfig", Short: "Write the kubeconfig files of the control plane", After: []string{"certs/ca"}}
	for _, k := range kubeconfigs() {
		p.Phases = append(p.Phases, making(kubeadmPhase{name: k.name, short: k.short, args: []string{"init", "phase", "kubeconfig", k.name}, after: []string{}},
			[]kubeconfig{k}).phase())
	}
	return p
}

func (k kubeconfig) files() []string { return []string{k.file} }

func (k kubeconfig) whole(_ context.Context, h *host.Host) (bool, error) {
	return kubeconfigProblem(h, k.file, time.Now()) == "", nil
}

func (k kubeconfig) clear(h *host.Host, r workflow.Reporter, changed bool) error {
	problem := kubeconfigProblem(h, k.file, time.Now())
	if changed && problem == "" {
		problem = "it was created for a different configuration"
	}
	if problem == "" || problem == missing {
		return nil
	}
	return removeUnusable(h, r, problem, k.file)
}

// kubeconfigProblem returns why a kubeconfig cannot work with the cluster's CA, "" if it can.
func kubeconfigProblem(h *host.Host, file string, now time.Time) string {
	cluster, user, err := loadKubeconfig(h, file)
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if err != nil {
		return "it is malformed"
	}
	authority, err := h.Files.ReadFile(pkiDir + "/ca.crt")
	if err != nil {
		return "the cluster's certificate authority does not exist"
	}
	if !bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(authority)) {
		return "it trusts another certificate authority"
	}
	cert, err := clientCertificate(h, user)
	if err != nil {
		return "its client certificate cannot be read"
	}
	ca, err := parseCertificate(authority)
	if err != nil {
		return "the cluster's certificate authority is malformed"
	}
	if p := certificateProblem(cert, ca, now); p != "" {
		return "of its client certificate: " + p
	}
	return ""
}

// clientCertificate returns the certificate of a kubeconfig's user, from the kubeconfig or the file that it names.
func clientCertificate(h *host.Host, user *clientcmdapi.AuthInfo) (*x509.Certificate, error) {
	data := user.ClientCertificateData
	if len(data) == 0 {
		var err error
		if data, err = h.Files.ReadFile(user.ClientCertificate); err != nil {
			return nil, err
		}
	}
	return parseCertificate(data)
}

// loadKubeconfig returns the cluster and user of a kubeconfig's current context.
func loadKubeconfig(h *host.Host, file string) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	_, cluster, user, err := openKubeconfig(h, file)
	return cluster, user, err
}

func openKubeconfig(h *host.Host, file string) (*clientcmdapi.Config, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	raw, err := h.Files.ReadFile(file)
	if err != nil {
		return nil, nil, nil, err
	}
	kc, err := clientcmd.Load(raw)
	if err != nil {
		return nil, nil, nil, err
	}
	current, ok := kc.Contexts[kc.CurrentContext]
	if !ok {
		return nil, nil, nil, errors.New("no current context")
	}
	cluster, user := kc.Clusters[current.Cluster], kc.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, nil, errors.New("the current context names a cluster or a user that does not exist")
	}
	return kc, cluster, user, nil
}

// editKubeconfig changes the cluster and user of a kubeconfig's current context.
func editKubeconfig(h *host.Host, file string, edit func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) error) error {
	kc, cluster, user, err := openKubeconfig(h, file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if err := edit(cluster, user); err != nil {
		return err
	}
	raw, err := clientcmd.Write(*kc)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return h.Files.Replace(file, raw, 0o600)
}
