// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// CertificateFile is the certificate of the depot and its key. Package owned removes it.
const CertificateFile = pkiDir + "/ocadm-depot/serving.pem"

func certificatePhase() host.Phase {
	return host.Phase{
		Name: "certificate", Short: "Issue the certificate of the depot", AnyRelease: true,
		Run: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			if err := h.Files.Mkdir(path.Dir(CertificateFile), 0o700); err != nil {
				return err
			}
			why, err := issuer(h).Renew(time.Now())
			if why != "" {
				r.Changed("issued %s: %s", CertificateFile, why)
			}
			return err
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		todo := []string{"issue " + CertificateFile}
		if !h.Files.Exists(authority) {
			return todo, nil
		}
		good, err := issuer(h).Good(time.Now())
		if good {
			return nil, err
		}
		return todo, err
	})
}

func issuer(h *host.Host) depot.Issuer {
	return depot.Issuer{CACert: h.Files.Path(authority), CAKey: h.Files.Path(authorityKey), File: h.Files.Path(CertificateFile), Names: certificateNames(h)}
}

// certificateNames are the names and addresses by which nodes reach this depot: those of the configuration and, because a later run may not be
// given all of them again, those of the API server's certificate. What only the API server has, its service, is left out.
func certificateNames(h *host.Host) []string {
	c := h.Config
	list := append([]string{c.Node.Name}, strings.Split(c.Node.IP+","+c.Node.AdvertiseAddress, ",")...)
	if endpoint, _, err := config.SplitEndpoint(c.Cluster.ControlPlaneEndpoint, config.DefaultPort); err == nil {
		list = append(list, endpoint)
	}
	if endpoint, _, err := config.SplitEndpoint(c.Join.Endpoint, config.DefaultPort); err == nil {
		list = append(list, endpoint)
	}
	list = append(list, c.Cluster.APIServerCertExtraSANs...)
	if certs, err := pki.ParseCerts([]byte(h.Files.Text(pkiDir + "/apiserver.crt"))); err == nil {
		services := strings.Split(kubernetes.EarlierConfig(h).Networking.ServiceSubnet, ",")
		for _, name := range certs[0].DNSNames {
			if name != "kubernetes" && !strings.HasPrefix(name, "kubernetes.default") {
				list = append(list, name)
			}
		}
		for _, ip := range certs[0].IPAddresses {
			if !within(ip.String(), services) {
				list = append(list, ip.String())
			}
		}
	}
	list = slices.DeleteFunc(list, func(n string) bool { return n == "" })
	slices.Sort(list)
	return slices.Compact(list)
}

func within(address string, networks []string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(networks, func(n string) bool {
		p, err := netip.ParsePrefix(n)
		return err == nil && p.Contains(ip)
	})
}
