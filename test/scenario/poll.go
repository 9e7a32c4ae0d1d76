// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Poll is a request that a client sends to the cloud repeatedly.
type Poll struct {
	Name, Method, URL string
	// Body is sent as JSON.
	Body string
	// Kept uses one connection for all requests; otherwise each has its own.
	Kept bool
	// Every is the interval between requests; 0 means pollInterval.
	Every time.Duration
	// Pool holds the CAs of the server; nil means the cloud's CA.
	Pool *x509.CertPool
}

// Polled is the result of a Poll.
type Polled struct {
	Name string
	// Sent counts all requests, Failed those without a 200 response.
	Sent, Failed int
	// Outage is the longest time from a failed request to the next successful one.
	Outage time.Duration
	// Slowest is the longest response time.
	Slowest time.Duration
	// Failures holds the time since the beginning and the error of the first hundred failures.
	Failures []string
}

func (p Polled) String() string {
	return fmt.Sprintf("%s: %d requests, %d failed, longest outage %.2f s, slowest answer %.2f s", p.Name, p.Sent, p.Failed, p.Outage.Seconds(), p.Slowest.Seconds())
}

const (
	pollInterval = 50 * time.Millisecond
	// pollTimeout is long: a late response from a busy machine is not a failure, and its response time is printed.
	pollTimeout = 60 * time.Second
	// pollsAtOnce limits the unanswered requests, to avoid overloading a busy machine.
	pollsAtOnce  = 40
	failuresKept = 100
)

// Poll sends the requests twenty times a second until do returns, and returns the results.
func (sc *Scenario) Poll(ctx context.Context, polls []Poll, do func() error) ([]Polled, error) {
	pool, err := sc.CA(ctx)
	if err != nil {
		return nil, err
	}
	polling, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	out := make([]Polled, len(polls))
	began := time.Now()
	for i, p := range polls {
		pool := cmp.Or(p.Pool, pool)
		transport := &http.Transport{DisableKeepAlives: !p.Kept, MaxIdleConnsPerHost: 1,
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		running.Go(func() {
			defer transport.CloseIdleConnections()
			out[i] = poll(polling, &http.Client{Timeout: pollTimeout, Transport: transport}, p, began)
		})
	}
	err = do()
	stop()
	running.Wait()
	return out, err
}

func poll(ctx context.Context, via *http.Client, p Poll, began time.Time) Polled {
	out := Polled{Name: p.Name}
	var mu sync.Mutex
	var since time.Time // time of the first failure after a success
	var asking sync.WaitGroup
	slots := make(chan struct{}, pollsAtOnce)
	tick := time.NewTicker(cmp.Or(p.Every, pollInterval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			asking.Wait()
			return out
		case <-tick.C:
		}
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		asking.Go(func() {
			defer func() { <-slots }()
			sent := time.Now()
			err := ask(context.WithoutCancel(ctx), via, p) // cancelling a running request would look like a failure
			took := time.Since(sent)
			mu.Lock()
			defer mu.Unlock()
			out.Sent++
			out.Slowest = max(out.Slowest, took)
			switch {
			case err == nil && !since.IsZero() && sent.After(since):
				out.Outage, since = max(out.Outage, time.Since(since)), time.Time{}
			case err != nil:
				out.Failed++
				if since.IsZero() {
					since = sent
				}
				if len(out.Failures) < failuresKept {
					out.Failures = append(out.Failures, fmt.Sprintf("%s +%.2f s: %v after %.2f s", sent.UTC().Format("15:04:05.00"), sent.Sub(began).Seconds(), err, took.Seconds()))
				}
			}
		})
	}
}

func ask(ctx context.Context, via *http.Client, p Poll) error {
	var body any
	if p.Body != "" {
		body = json.RawMessage(p.Body)
	}
	_, _, err := fetch(ctx, via, p.Method, p.URL, http.Header{}, body)
	return err
}

// Polls returns client requests to the identity service and the API gateway at a node, each with new connections and with a persistent one.
func (sc *Scenario) Polls(ctx context.Context, node int) ([]Poll, error) {
	vars, err := sc.RCAdmin(ctx)
	if err != nil {
		return nil, err
	}
	login := fmt.Sprintf(`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":%q,"password":%q,"domain":{"name":"Default"}}}}}}`,
		vars["OS_USERNAME"], vars["OS_PASSWORD"])
	return []Poll{
		{Name: "keystone", Method: http.MethodPost, URL: sc.url(node, keystonePort, "/v3/auth/tokens"), Body: login},
		{Name: "keystone, connection kept", Method: http.MethodGet, URL: sc.url(node, keystonePort, "/v3"), Kept: true},
		{Name: "apigateway", Method: http.MethodGet, URL: sc.url(node, "30300", "/api/v1/auth/regions")},
		{Name: "apigateway, connection kept", Method: http.MethodGet, URL: sc.url(node, "30300", "/api/v1/auth/regions"), Kept: true},
	}, nil
}
