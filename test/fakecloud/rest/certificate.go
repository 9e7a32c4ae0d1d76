// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"
)

// Owner holds the names that a certificate must contain. The real services do not check: they start with any certificate, and no client verifies it.
type Owner struct {
	Cluster, Namespace, Component string
}

// Names returns the DNS names that a certificate of the component needs; "*" stands for an unknown part.
func (o Owner) Names() []string {
	if o.Component == "" {
		return nil
	}
	service, namespace := cmp.Or(o.Cluster, "*")+"-"+o.Component, cmp.Or(o.Namespace, "*")
	return []string{service, service + "." + namespace, service + "." + namespace + ".svc"}
}

// FindOwner derives cluster and namespace from the host of auth_url (<cluster>-keystone[.namespace[.svc]]), or from the pod's name
// (<cluster>-<component>-...) and the search list of resolv.conf. STANDIN_CLUSTER and STANDIN_NAMESPACE override both.
func FindOwner(component, authURL, hostname, resolvConf string) Owner {
	o := Owner{Cluster: os.Getenv("STANDIN_CLUSTER"), Namespace: os.Getenv("STANDIN_NAMESPACE"), Component: component}
	if u, err := url.Parse(authURL); err == nil && net.ParseIP(u.Hostname()) == nil {
		host := strings.Split(u.Hostname(), ".")
		cluster, found := strings.CutSuffix(host[0], "-keystone")
		if found && o.Cluster == "" {
			o.Cluster = cluster
		}
		if found && len(host) > 1 && o.Namespace == "" {
			o.Namespace = host[1]
		}
	}
	if cluster, _, found := strings.Cut(hostname, "-"+component+"-"); found && o.Cluster == "" {
		o.Cluster = cluster
	}
	if m := regexp.MustCompile(`(?m)^search\s+([a-z0-9-]+)\.svc\.`).FindStringSubmatch(resolvConf); m != nil && o.Namespace == "" {
		o.Namespace = m[1]
	}
	return o
}

// LoadTLS reads a service's certificate and key and checks them against the CAs and the names of the owner. It also checks that the temporary
// directory is writable, which the real services need for these files.
func LoadTLS(certFile, keyFile, caFile string, owner Owner) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("loading certificate: %w", err)
	}
	leaf := pair.Leaf
	missing := slices.DeleteFunc(owner.Names(), func(name string) bool { return covers(leaf.DNSNames, name) })
	if len(missing) > 0 {
		return nil, fmt.Errorf("certificate %s does not name %s; it names %s (the real service starts all the same)",
			certFile, strings.Join(missing, ", "), strings.Join(leaf.DNSNames, ", "))
	}
	roots, err := Authorities(caFile)
	if err != nil {
		return nil, err
	}
	if roots != nil {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots}); err != nil {
			return nil, fmt.Errorf("verifying certificate %s against %s: %w", certFile, caFile, err)
		}
		file, err := os.CreateTemp("", "fakecloud-ca-*")
		if err != nil {
			return nil, fmt.Errorf("fail to open tempfile for ca cerfile: %w", err)
		}
		if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
			return nil, fmt.Errorf("removing temporary file: %w", err)
		}
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// Authorities reads a file of CA certificates. Without a file name it returns nil.
func Authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	return certutil.NewPool(file)
}

func covers(names []string, want string) bool {
	pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(want), `\*`, `[a-z0-9-]+`) + "$")
	return slices.ContainsFunc(names, pattern.MatchString)
}
