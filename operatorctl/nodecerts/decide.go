// SPDX-License-Identifier: Apache-2.0

// Package nodecerts renews the certificates of the control-plane nodes. A Job on each node reads when they expire. An operation lets a Job renew them on
// one node after the other, in time or when a user requests it. docs/decisions/0071.
package nodecerts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/operation"
)

const (
	// lookEvery is the maximum age of a report: a user may also renew or replace certificates.
	lookEvery = 12 * time.Hour
	// pauseMost is the longest delay before a failed renewal is retried.
	pauseMost = time.Hour
	// patienceParts is the number of retries before a certificate expires.
	patienceParts = 6
)

type seen struct {
	now   time.Time
	cloud *v1alpha1.OnecloudCluster
	// nodes are the control-plane nodes, ready those that are Ready.
	nodes, ready []string
	reports      map[string]certreport.Report
	// looks are the Jobs that read certificates, by node.
	looks      map[string]*batchv1.Job
	operations []*v1alpha1.OnecloudOperation
}

// decision is the result of decide: what to do now, and when to decide again.
type decision struct {
	// look lists nodes that get a Job, read those whose Job has ended, forget those that are gone.
	look, read, forget []string
	renew              *v1alpha1.OnecloudOperation
	next               time.Duration
}

// decide returns what to do now. It is pure.
func decide(s seen) decision {
	var d decision
	soonest := func(at time.Time) {
		if left := max(at.Sub(s.now), time.Second); d.next == 0 || left < d.next {
			d.next = left
		}
	}
	for _, node := range s.nodes {
		r, known := s.reports[node]
		switch look := s.looks[node]; {
		case look != nil:
			if complete, failed := operation.Ended(look); complete || failed != "" && r.Problem != failed {
				d.read = append(d.read, node)
			}
		case !slices.Contains(s.ready, node): // its kubelet's next report triggers the next pass
		case !known || r.Problem != "" || !recent(r, s.now):
			d.look = append(d.look, node)
		default:
			soonest(expires(r))
		}
	}
	d.forget = lists.Filter(slices.Sorted(maps.Keys(s.reports)), func(node string) bool { return !slices.Contains(s.nodes, node) })
	var at time.Time
	if d.renew, at = renewal(s); !at.IsZero() {
		soonest(at)
	}
	return d
}

// expires returns when a report is too old.
func expires(r certreport.Report) time.Time {
	return wait.Earliest(r.Time.Add(lookEvery), r.LookAt())
}

// recent reports whether a report is new enough. One from the future is not: a clock was ahead, perhaps by years.
func recent(r certreport.Report, now time.Time) bool {
	return now.Before(expires(r)) && r.Time.Sub(now) < lookEvery
}

// renewal returns the operation for the certificates that are due, nil if there are none, or else when the next one may be created.
func renewal(s seen) (*v1alpha1.OnecloudOperation, time.Time) {
	var due []certreport.Certificate
	var next time.Time
	for _, node := range s.ready {
		r := s.reports[node]
		due = append(due, r.Due(s.now)...)
		if at := r.RenewAt(); !at.IsZero() && at.After(s.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if len(due) == 0 {
		return nil, next
	}
	first := slices.MinFunc(due, func(a, b certreport.Certificate) int {
		return cmp.Or(a.RenewAt.Compare(b.RenewAt), cmp.Compare(a.Name, b.Name))
	})
	pause := pauseMost // of a damaged certificate, which has no times, too
	if !first.Ends.IsZero() {
		pause = min(pauseMost, first.Ends.Sub(first.RenewAt)/patienceParts)
	}
	number, prefix := 0, fmt.Sprintf("%s-renewcertificates-%d-", s.cloud.Name, first.RenewAt.Unix())
	for _, o := range s.operations {
		switch {
		case o.Spec.Action != v1alpha1.ActionRenewCertificates:
		case !o.Status.Phase.Final():
			return nil, time.Time{}
		case o.Status.End.Sub(s.now) > pauseMost: // the clock of an earlier leader was ahead, which must not put off a renewal
		case s.now.Before(o.Status.End.Add(pause)):
			return nil, o.Status.End.Add(pause)
		}
		if n, err := strconv.Atoi(strings.TrimPrefix(o.Name, prefix)); err == nil { // old operations are deleted, so a count would repeat
			number = max(number, n+1)
		}
	}
	// The same state gives the same name, so a stale cache creates no second operation.
	name := prefix + strconv.Itoa(number)
	return &v1alpha1.OnecloudOperation{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.cloud.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelOperationCloud: s.cloud.Name}},
		Spec:       v1alpha1.OnecloudOperationSpec{Cloud: s.cloud.Name, Action: v1alpha1.ActionRenewCertificates, Requester: "the expiry of " + first.Name},
	}, time.Time{}
}
