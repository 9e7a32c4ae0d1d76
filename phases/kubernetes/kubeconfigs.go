// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// kubeconfig is one of the files that kubeadm writes for a client of the API server.
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
		p.Phases = append(p.Phases, kubeadmPhase{
			name: k.name, short: k.short, args: []string{"init", "phase", "kubeconfig", k.name},
			writes: []string{k.file}, check: k.whole, clear: k.clear, after: []string{},
		}.phase())
	}
	return p
}

func (k kubeconfig) whole(_ context.Context, h *host.Host) (bool, error) {
	return kubeconfigProblem(h, k.file, time.Now()) == "", nil
}

func (k kubeconfig) clear(h *host.Host, r workflow.Reporter, changed bool) error {
	problem := kubeconfigProblem(h, k.file, time.Now())
	if changed && problem == "" {
		problem = "it was made for another configuration"
	}
	if problem == "" || problem == missing {
		return nil
	}
	return removeUnusable(h, r, problem, k.file)
}

// kubeconfigProblem says why a kubeconfig cannot work with the cluster's authority; "" when it can.
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
		return "the cluster's certificate authority is not there"
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

// clientCertificate is the one by which a user of a kubeconfig authenticates, from the kubeconfig or the file that it names.
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

func loadKubeconfig(h *host.Host, file string) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	raw, err := h.Files.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	kc, err := clientcmd.Load(raw)
	if err != nil {
		return nil, nil, err
	}
	current, ok := kc.Contexts[kc.CurrentContext]
	if !ok {
		return nil, nil, errors.New("no current context")
	}
	cluster, user := kc.Clusters[current.Cluster], kc.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return nil, nil, errors.New("the current context names a cluster or a user that is not there")
	}
	return cluster, user, nil
}

func localEndpoint(c *config.Config) string {
	return net.JoinHostPort(advertiseAddress(c), strconv.Itoa(int(bindPort(c))))
}
