// SPDX-License-Identifier: Apache-2.0

// Package certreport describes the certificates of a control-plane node: when each expires, when it is renewed, and why it cannot be. A Job on the
// node writes the report, the operator keeps it, and ocadm why reads it.
package certreport

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

// ConfigMap holds the reports of all nodes, in the namespace of a cloud. Its keys are node names.
const ConfigMap = "ocadm-node-certificates"

const (
	// Ahead is how long before its expiry a certificate is renewed, unless that is more than a third of its lifetime.
	Ahead = 30 * 24 * time.Hour
	// A certificate with a shorter lifetime is renewed when 1/part of it is left.
	part = 3
)

// RenewAt returns when a certificate is renewed.
func RenewAt(notBefore, notAfter time.Time) time.Time {
	return notAfter.Add(-min(Ahead, notAfter.Sub(notBefore)/part))
}

// Certificate is a certificate of a node.
type Certificate struct {
	Name    string    `json:"name"`
	Ends    time.Time `json:"ends"`
	RenewAt time.Time `json:"renewAt"`
	// Unable explains why it cannot be renewed on the node.
	Unable string `json:"unable,omitempty"`
}

// Report is the result of a Job on a node.
type Report struct {
	Time         time.Time     `json:"time"`
	Certificates []Certificate `json:"certificates"`
	// Problem explains why the last check or renewal failed. The certificates are those of the check before.
	Problem string `json:"problem,omitempty"`
}

// Parse parses a report.
func Parse(text string) (Report, error) {
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("reading a report on certificates: %w", err)
	}
	return r, nil
}

// All parses the reports of all nodes. It skips damaged ones: the next check replaces them.
func All(data map[string]string) map[string]Report {
	out := map[string]Report{}
	for node, text := range data {
		if r, err := Parse(text); err == nil {
			out[node] = r
		}
	}
	return out
}

// Due returns the certificates that are due for renewal and can be renewed.
func (r Report) Due(now time.Time) []Certificate {
	return slices.DeleteFunc(slices.Clone(r.Certificates), func(c Certificate) bool { return c.Unable != "" || now.Before(c.RenewAt) })
}

// Unable returns the certificates that were due for renewal when the report was made but cannot be renewed.
func (r Report) Unable() []Certificate {
	return slices.DeleteFunc(slices.Clone(r.Certificates), func(c Certificate) bool { return c.Unable == "" || r.Time.Before(c.RenewAt) })
}

// LookAt returns when the report should be replaced because its owner may have renewed a certificate by then; zero if there is none.
func (r Report) LookAt() time.Time {
	return firstRenewal(lists.Filter(r.Certificates, func(c Certificate) bool { return c.Unable != "" && r.Time.Before(c.RenewAt) }))
}

// Next returns the certificate that expires first, or an empty one.
func (r Report) Next() Certificate {
	if len(r.Certificates) == 0 {
		return Certificate{}
	}
	return slices.MinFunc(r.Certificates, func(a, b Certificate) int { return cmp.Or(a.Ends.Compare(b.Ends), cmp.Compare(a.Name, b.Name)) })
}

// RenewAt returns when the first renewable certificate is due; zero if there is none.
func (r Report) RenewAt() time.Time {
	return firstRenewal(lists.Filter(r.Certificates, func(c Certificate) bool { return c.Unable == "" }))
}

func firstRenewal(all []Certificate) time.Time {
	return wait.Earliest(lists.Map(all, func(c Certificate) time.Time { return c.RenewAt })...)
}

// Names returns the names of certificates in one line.
func Names(all []Certificate) string {
	return strings.Join(lists.Map(all, func(c Certificate) string { return c.Name }), ", ")
}
