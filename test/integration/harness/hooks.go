// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Counters record the requests of an operator in this process to databases and services. Its methods serve as the operator's OnStatement and Transport.
type Counters struct {
	mu         sync.Mutex
	statements []string
	requests   []string
}

// Counted is the state of Counters at a moment.
type Counted struct{ statements, requests int }

// Statement records the verb of an SQL statement.
func (c *Counters) Statement(verb string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements = append(c.statements, verb)
}

// Transport records every request as "GET default-keystone/v3/users": method, first label of the host, path.
func (c *Counters) Transport(next http.RoundTripper) http.RoundTripper {
	return RoundTrip(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.requests = append(c.requests, r.Method+" "+strings.SplitN(r.URL.Host, ".", 2)[0]+r.URL.Path)
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// Now returns the current state.
func (c *Counters) Now() Counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counted{len(c.statements), len(c.requests)}
}

// Since returns what was recorded since a moment.
func (c *Counters) Since(m Counted) (statements, requests []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.statements[m.statements:]), slices.Clone(c.requests[m.requests:])
}

// RoundTrip is a function that implements http.RoundTripper.
type RoundTrip func(*http.Request) (*http.Response, error)

func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Log is the log of an operator in this process. It may be read while it is written.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
