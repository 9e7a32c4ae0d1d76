// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"time"

	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// late is the fraction of a certificate's lifetime, 1/12, that is left when its owner should have renewed it. A kubelet does so with 10 to 30 % left.
	late = 12
	// authorityAhead is how long before the end of a CA a warning is due.
	authorityAhead = 365 * 24 * time.Hour
)

// ReportCertificates returns the report for the operator on the certificates of this control-plane node.
func ReportCertificates(h *host.Host, now time.Time) (certreport.Report, error) {
	list, err := Certificates(h, now, 0)
	return certreport.Report{Time: now.UTC().Truncate(time.Second), Certificates: lists.Map(list, reported)}, err
}

// reported returns when a certificate is renewed, and if it cannot be, why. It is pure.
func reported(c Certificate) certreport.Certificate {
	out := certreport.Certificate{Name: c.Name, Ends: c.NotAfter, RenewAt: certreport.RenewAt(c.notBefore, c.NotAfter).UTC()}
	if c.early() {
		out.RenewAt = time.Time{}
	}
	lifetime := c.NotAfter.Sub(c.notBefore)
	switch {
	case c.State == CertificateDamaged && c.Kind == kindKubelet:
		out.Unable = "it cannot be read, and the operator does not restart kubelets: ocadm certs renew, on the node"
	case c.Kind == kindAuthority:
		out.RenewAt, out.Unable = c.NotAfter.Add(-min(authorityAhead, lifetime/late)), "it is an authority"
	case c.External:
		out.Unable = "the key of its authority is not on the node"
	case c.File == kubeletClientPEM:
		out.RenewAt, out.Unable = c.NotAfter.Add(-lifetime/late), "its kubelet has not renewed it"
	case c.Kind == kindDepot:
		out.RenewAt, out.Unable = c.NotAfter.Add(-lifetime/late), "the depot has not renewed it"
	}
	return out
}
