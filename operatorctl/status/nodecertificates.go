// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
)

// The reasons of condition NodeCertificates.
const (
	ReasonCertificatesValid   = "Valid"
	ReasonCertificatesExpired = "Expired"
	ReasonNotRenewable        = "NotRenewable"
	ReasonOverdue             = "Overdue"
	ReasonLookFailed          = "LookFailed"
)

// overdue sets the grace period for renewal: 1/overdue of the time from the renewal date to the expiry. Renewal has been tried several times by then.
const overdue = 4

// NodeCertificates reports whether the certificates of the control-plane nodes are renewed in time. Without reports, the condition is removed.
func (c *Cloud) NodeCertificates(reports map[string]certreport.Report) {
	if len(reports) == 0 {
		c.remove(v1alpha1.ConditionNodeCertificates)
		return
	}
	var expired, late, unable, unknown []string
	var next certreport.Certificate
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		r := reports[node]
		for _, one := range r.Certificates {
			switch {
			case !c.now.Before(one.Ends):
				expired = append(expired, fmt.Sprintf("%s of node %s expired %s", one.Name, node, stamp(one.Ends)))
			case one.Unable == "" && !c.now.Before(one.RenewAt.Add(one.Ends.Sub(one.RenewAt)/overdue)):
				late = append(late, fmt.Sprintf("%s of node %s expires %s; its renewal was due %s", one.Name, node, stamp(one.Ends), stamp(one.RenewAt)))
			}
		}
		for _, one := range r.Unable() {
			unable = append(unable, fmt.Sprintf("%s of node %s expires %s, and %s", one.Name, node, stamp(one.Ends), one.Unable))
		}
		switch {
		case r.Problem != "":
			unknown = append(unknown, fmt.Sprintf("node %s: %s", node, r.Problem))
		case len(r.Certificates) == 0: // damaged, or of another release: nothing would ever be renewed
			unknown = append(unknown, fmt.Sprintf("node %s: the report lists no certificates", node))
		}
		if first := r.Next(); next.Name == "" || first.Name != "" && first.Ends.Before(next.Ends) {
			next = first
		}
	}
	for _, bad := range []struct {
		reason string
		list   []string
	}{{ReasonCertificatesExpired, expired}, {ReasonOverdue, late}, {ReasonNotRenewable, unable}, {ReasonLookFailed, unknown}} {
		if len(bad.list) > 0 {
			c.set(v1alpha1.ConditionNodeCertificates, false, bad.reason, strings.Join(bad.list, "; "))
			return
		}
	}
	c.set(v1alpha1.ConditionNodeCertificates, true, ReasonCertificatesValid, fmt.Sprintf("%s expires first, %s", next.Name, stamp(next.Ends)))
}
