// SPDX-License-Identifier: Apache-2.0

// Package certreport is what is known of the certificates of a control-plane node: when each ends, when it is renewed, and why it is not. A Job on the node
// writes it, the operator keeps it, and ocadm why reads it.
package certreport

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ConfigMap has what is known of each node, in the namespace of a cloud. Its keys are the names of the nodes.
const ConfigMap = "ocadm-node-certificates"

const (
	// Ahead is how long before its end a certificate is renewed, unless that is more than a third of its lifetime.
	Ahead = 30 * 24 * time.Hour
	// part of its lifetime is left when a certificate that lasts shorter is renewed.
	part = 3
)

// RenewAt is when a certificate is renewed.
func RenewAt(notBefore, notAfter time.Time) time.Time {
	return notAfter.Add(-min(Ahead, notAfter.Sub(notBefore)/part))
}

// Certificate is one of a node.
type Certificate struct {
	Name    string    `json:"name"`
	Ends    time.Time `json:"ends"`
	RenewAt time.Time `json:"renewAt"`
	// Unable is why it cannot be renewed on the node.
	Unable string `json:"unable,omitempty"`
}

// Report is what a Job has found on a node.
type Report struct {
	Time         time.Time     `json:"time"`
	Certificates []Certificate `json:"certificates"`
	// Problem is why the last look or renewal failed. The certificates are those seen before.
	Problem string `json:"problem,omitempty"`
}

// Parse reads a report.
func Parse(text string) (Report, error) {
	var r Report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("reading a report on certificates: %w", err)
	}
	return r, nil
}

// All reads the reports of all nodes. One that is damaged is left out: the next look writes it anew.
func All(data map[string]string) map[string]Report {
	out := map[string]Report{}
	for node, text := range data {
		if r, err := Parse(text); err == nil {
			out[node] = r
		}
	}
	return out
}

// Due are the certificates that are to be renewed by now, and can be.
func (r Report) Due(now time.Time) []Certificate {
	return slices.DeleteFunc(slices.Clone(r.Certificates), func(c Certificate) bool { return c.Unable != "" || now.Before(c.RenewAt) })
}

// Unable are the certificates that are to be renewed by now, and cannot be.
func (r Report) Unable(now time.Time) []Certificate {
	return slices.DeleteFunc(slices.Clone(r.Certificates), func(c Certificate) bool { return c.Unable == "" || now.Before(c.RenewAt) })
}

// Next is the certificate that ends first; it is empty if there is none.
func (r Report) Next() Certificate {
	if len(r.Certificates) == 0 {
		return Certificate{}
	}
	return slices.MinFunc(r.Certificates, func(a, b Certificate) int { return cmp.Or(a.Ends.Compare(b.Ends), cmp.Compare(a.Name, b.Name)) })
}

// RenewAt is when the first certificate that can be renewed is; zero if there is none.
func (r Report) RenewAt() (at time.Time) {
	for _, c := range r.Certificates {
		if c.Unable == "" && (at.IsZero() || c.RenewAt.Before(at)) {
			at = c.RenewAt
		}
	}
	return at
}

// Names of certificates, in one line.
func Names(all []Certificate) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}
