// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Counters keep what an operator in this process asks of databases and services: its OnStatement and Transport are methods of theirs.
type Counters struct {
	mu         sync.Mutex
	statements []string
	requests   []string
}

// Counted is how much Counters had at a moment.
type Counted struct{ statements, requests int }

// Statement notes an SQL statement by its verb.
func (c *Counters) Statement(verb string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements = append(c.statements, verb)
}

// Transport notes every request as "GET default-keystone/v3/users": method, first label of the host, path.
func (c *Counters) Transport(next http.RoundTripper) http.RoundTripper {
	return RoundTrip(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.requests = append(c.requests, r.Method+" "+strings.SplitN(r.URL.Host, ".", 2)[0]+r.URL.Path)
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

// Now is how much there is.
func (c *Counters) Now() Counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Counted{len(c.statements), len(c.requests)}
}

// Since is what was asked after a moment.
func (c *Counters) Since(m Counted) (statements, requests []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.statements[m.statements:]), slices.Clone(c.requests[m.requests:])
}

// RoundTrip is a function as an http.RoundTripper.
type RoundTrip func(*http.Request) (*http.Response, error)

func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Log is what an operator in this process says; it may be read while it is written.
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
