// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/internal/pki"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c *Cluster) writeCredentials() error {
	now := time.Now()
	ca, err := pki.NewCA(now, "integration", nil)
	if err != nil {
		return err
	}
	server, err := pki.Issue(ca, pki.Request{
		CommonName: "kube-apiserver", NotBefore: now, Names: append(pki.ServiceNames("kubernetes", "default"), "localhost", "127.0.0.1", "10.96.0.1"),
	})
	if err != nil {
		return err
	}
	serverKey, err := server.KeyPEM()
	if err != nil {
		return err
	}
	accounts, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	c.ca = ca.CertPEM()
	for name, data := range map[string][]byte{
		"ca.crt": c.ca, "apiserver.crt": server.CertPEM(), "apiserver.key": serverKey, "sa.key": accounts,
		"tokens.csv":        fmt.Appendf(nil, "%s,%s,%s,system:masters\n", c.token, Admin, Admin),
		"audit-policy.yaml": []byte(auditPolicy),
	} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), data, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return c.WriteKubeconfig(c.Kubeconfig, Admin)
}

// Config returns a user's configuration for the API server, without client-side limits. Users other than Admin are impersonated, so they have exactly
// the permissions that RBAC gives to their names and groups. The audit log names the user as RequestUser.
func (c *Cluster) Config(user string, groups ...string) *rest.Config {
	config := &rest.Config{
		Host: c.URL, BearerToken: c.token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}, QPS: -1,
		UserAgent: user,
	}
	if user != Admin {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	}
	return config
}

// ServiceAccount is Config for a service account.
func (c *Cluster) ServiceAccount(namespace, name string) *rest.Config {
	config := c.Config("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
	config.UserAgent = name
	return config
}

// WriteKubeconfig writes Config to a file.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	as := c.Config(user, groups...).Impersonate
	return c.WriteLogin(path, clientcmdapi.AuthInfo{Token: c.token, Impersonate: as.UserName, ImpersonateGroups: as.Groups})
}

// WriteLogin writes a kubeconfig with another login.
func (c *Cluster) WriteLogin(path string, login clientcmdapi.AuthInfo) error {
	const name = "integration"
	file := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.URL, CertificateAuthorityData: c.ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: &login},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(file, path); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}
