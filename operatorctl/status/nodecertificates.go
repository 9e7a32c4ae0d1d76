// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// overdue is the part of the time from its renewal to its end after which a certificate should have been renewed: by then it was tried several times.
const overdue = 4

// NodeCertificates reports whether the certificates of the control-plane nodes are renewed in time. Where nothing is known of them, there is no such condition.
func NodeCertificates(previous []metav1.Condition, reports map[string]certreport.Report, generation int64, now time.Time) []metav1.Condition {
	if len(reports) == 0 {
		return without(previous, v1alpha1.ConditionNodeCertificates)
	}
	var expired, late, unable, unknown []string
	var next certreport.Certificate
	for _, node := range slices.Sorted(maps.Keys(reports)) {
		r := reports[node]
		for _, c := range r.Certificates {
			switch {
			case !now.Before(c.Ends):
				expired = append(expired, fmt.Sprintf("%s of node %s ended %s", c.Name, node, stamp(c.Ends)))
			case c.Unable == "" && !now.Before(c.RenewAt.Add(c.Ends.Sub(c.RenewAt)/overdue)):
				late = append(late, fmt.Sprintf("%s of node %s ends %s, and was to be renewed %s", c.Name, node, stamp(c.Ends), stamp(c.RenewAt)))
			}
		}
		for _, c := range r.Unable(now) {
			unable = append(unable, fmt.Sprintf("%s of node %s ends %s, and %s", c.Name, node, stamp(c.Ends), c.Unable))
		}
		if r.Problem != "" {
			unknown = append(unknown, fmt.Sprintf("node %s: %s", node, r.Problem))
		}
		if first := r.Next(); next.Name == "" || first.Name != "" && first.Ends.Before(next.Ends) {
			next = first
		}
	}
	is := func(reason string, list []string) []metav1.Condition {
		return with(previous, generation, now, v1alpha1.ConditionNodeCertificates, false, reason, strings.Join(list, "; "))
	}
	switch {
	case len(expired) > 0:
		return is(ReasonCertificatesExpired, expired)
	case len(late) > 0:
		return is(ReasonOverdue, late)
	case len(unable) > 0:
		return is(ReasonNotRenewable, unable)
	case len(unknown) > 0:
		return is(ReasonLookFailed, unknown)
	}
	return with(previous, generation, now, v1alpha1.ConditionNodeCertificates, true, ReasonCertificatesValid, fmt.Sprintf("%s ends first, %s", next.Name, stamp(next.Ends)))
}
