// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// kubeconfig is one of the files that kubeadm writes for a client of the API server.
type kubeconfig struct {
	name, short, file string
	local             bool // speaks to this node's API server rather than to the endpoint
}

func kubeconfigs() []kubeconfig {
	return []kubeconfig{
		{name: "admin", short: "Write the administrator's kubeconfig", file: AdminKubeconfig},
		{name: "super-admin", short: "Write the kubeconfig that bypasses authorization", file: kubernetesDir + "/super-admin.conf"},
		{name: "kubelet", short: "Write the kubelet's kubeconfig", file: KubeletKubeconfig},
		{name: "controller-manager", short: "Write the controller manager's kubeconfig", file: kubernetesDir + "/controller-manager.conf", local: true},
		{name: "scheduler", short: "Write the scheduler's kubeconfig", file: kubernetesDir + "/scheduler.conf", local: true},
	}
}

func kubeconfigPhase() host.Phase {
	p := host.Phase{Name: "kubeconfig", Short: "Write the kubeconfig files of the control plane", After: []string{"certs/ca"}}
	for _, k := range kubeconfigs() {
		p.Phases = append(p.Phases, kubeadmPhase{
			name: k.name, short: k.short, args: []string{"init", "phase", "kubeconfig", k.name},
			writes: []string{k.file}, check: k.done, prepare: k.clear, after: []string{},
		}.phase())
	}
	return p
}

func (k kubeconfig) done(_ context.Context, h *host.Host) (bool, error) {
	problem, err := k.problem(h, time.Now())
	return err == nil && problem == "", err
}

func (k kubeconfig) clear(_ context.Context, h *host.Host, r workflow.Reporter) error {
	problem, err := k.problem(h, time.Now())
	if err != nil || problem == "" || problem == missing {
		return err
	}
	if err := h.Files.Remove(k.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the unusable %s: %w", k.file, err)
	}
	r.Changed("removed %s: %s", k.file, problem)
	return nil
}

func (k kubeconfig) problem(h *host.Host, now time.Time) (string, error) {
	server := "https://" + controlPlaneEndpoint(h.Config)
	if k.local {
		server = "https://" + localEndpoint(h.Config)
	}
	problem, err := kubeconfigProblem(h, k.file, now)
	if problem != "" || err != nil {
		return problem, err
	}
	cluster, _, _ := loadKubeconfig(h, k.file)
	if cluster.Server != server {
		return fmt.Sprintf("it names the server %s, not %s", cluster.Server, server), nil
	}
	return "", nil
}

// kubeconfigProblem says why a kubeconfig cannot work with the cluster's authority; "" when it can.
func kubeconfigProblem(h *host.Host, file string, now time.Time) (string, error) {
	cluster, user, err := loadKubeconfig(h, file)
	if errors.Is(err, fs.ErrNotExist) {
		return missing, nil
	}
	if err != nil {
		return "it is malformed", nil //nolint:nilerr // a broken file is a problem to tell, not a failure to look
	}
	authority, err := h.Files.ReadFile(pkiDir + "/ca.crt")
	if err != nil {
		return "the cluster's certificate authority is not there", nil //nolint:nilerr // as above
	}
	if !bytes.Equal(bytes.TrimSpace(cluster.CertificateAuthorityData), bytes.TrimSpace(authority)) {
		return "it trusts another certificate authority", nil
	}
	data := user.ClientCertificateData
	if len(data) == 0 && user.ClientCertificate != "" {
		if data, err = h.Files.ReadFile(user.ClientCertificate); err != nil {
			return "its client certificate is not there", nil //nolint:nilerr // as above
		}
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil || len(certs) == 0 {
		return "it holds no client certificate", nil //nolint:nilerr // as above
	}
	ca, err := parseCertificate(authority)
	if err != nil {
		return "the cluster's certificate authority is malformed", nil //nolint:nilerr // as above
	}
	return clientCertificateProblem(certs[0], ca, now), nil
}

func clientCertificateProblem(cert, ca *x509.Certificate, now time.Time) string {
	if p := certificateProblem(cert, ca, nil, now); p != "" {
		return "of its client certificate: " + p
	}
	return ""
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
