// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/test/integration/harness"
)

// work is what the operator asked of everybody in some span of time.
type work struct {
	kubernetes         []harness.Request
	statements, others []string
}

// count runs something and tells what the operator did meanwhile.
func (r *rig) count(do func()) work {
	r.t.Helper()
	began := r.counters.Now()
	requests, err := r.cluster.Count(r.t.Context(), harness.Filter{User: operatorUser}, func() error { do(); return nil })
	if err != nil {
		r.t.Fatal(err)
	}
	statements, others := r.counters.Since(began)
	return work{requests, statements, others}
}

// writes are the requests to Kubernetes that change something, without what only tells: events and the status of the cloud.
func (w work) writes() []string {
	var out []string
	for _, q := range w.kubernetes {
		tells := q.Resource == "events" || q.Resource == "selfsubjectaccessreviews" || q.Resource == "onecloudclusters" && q.Subresource == "status"
		if !tells && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, q.Verb) {
			out = append(out, fmt.Sprintf("%s %s/%s", q.Verb, q.Resource, q.Name))
		}
	}
	return out
}

// outside is everything asked of databases and services.
func (w work) outside() []string { return slices.Concat(w.statements, w.others) }

// identity is how many requests the identity service had.
func (w work) identity() int {
	n := 0
	for _, o := range w.others {
		_, rest, _ := strings.Cut(o, " ")
		if host, _, _ := strings.Cut(rest, "/"); strings.Contains(host, "-keystone") {
			n++
		}
	}
	return n
}

// refused are the requests that the API server forbade.
func (w work) refused() []string {
	var out []string
	for _, q := range w.kubernetes {
		if q.Code == 401 || q.Code == 403 {
			out = append(out, q.String())
		}
	}
	return out
}

// summary is a line for people.
func (w work) summary() string {
	kinds := map[string]int{}
	for _, q := range w.kubernetes {
		what := q.Verb + " " + q.Resource
		if q.Subresource != "" {
			what += "/" + q.Subresource
		}
		kinds[what]++
	}
	services := map[string]int{}
	for _, o := range w.others {
		_, rest, _ := strings.Cut(o, " ")
		host, _, _ := strings.Cut(rest, "/")
		services[host]++
	}
	return fmt.Sprintf("Kubernetes %d (%s); SQL %d; services %d (%s)", len(w.kubernetes), harness.Tally(kinds), len(w.statements), len(w.others), harness.Tally(services))
}
