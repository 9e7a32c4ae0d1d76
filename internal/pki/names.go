// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"net"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
)

const clusterDomain = "cluster.local"

// ServiceNames returns the names that pods of any namespace may use for a Service.
func ServiceNames(name, namespace string) []string {
	return []string{
		name,
		name + "." + namespace,
		name + "." + namespace + ".svc",
		name + "." + namespace + ".svc." + clusterDomain,
	}
}

// splitNames splits names, which may be user-supplied (such as the address of a load balancer), into the DNS names and IP addresses of a certificate.
func splitNames(names []string) (dns []string, ips []net.IP) {
	for _, n := range unique(names) {
		if ip := net.ParseIP(strings.Trim(n, "[]")); ip != nil {
			ips = append(ips, ip)
			continue
		}
		dns = append(dns, n)
	}
	return dns, ips
}

// Etcd holds the requests for the three certificates of an etcd cluster.
type Etcd struct {
	Server, Peer, Client Request
}

// EtcdRequests returns requests for the certificates of the etcd behind the given Service (headless or not). Members are reachable by any name below
// the Service, on loopback, and by the extra names. The server certificate is also valid for clients: etcd's own gateway connects with it.
func EtcdRequests(service, namespace string, extra []string, notBefore, notAfter time.Time) Etcd {
	names := ServiceNames(service, namespace)
	names = append(names, lists.Map(names[1:], func(n string) string { return "*." + n })...)
	names = append(names, "localhost", "127.0.0.1", "::1")
	r := func(cn string, u Usage, names ...string) Request {
		return Request{CommonName: cn, Names: names, Usage: u, NotBefore: notBefore, NotAfter: notAfter}
	}
	return Etcd{
		Server: r("etcd-server", ServerAndClient, append(names, extra...)...),
		Peer:   r("etcd-peer", ServerAndClient, names...),
		Client: r("etcd-client", Client),
	}
}

func unique(in []string) []string {
	return lists.Unique(lists.Filter(in, func(s string) bool { return s != "" }))
}
