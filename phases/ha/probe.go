// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// askEvery is the interval between requests, and so the precision of a measured outage.
	askEvery = 250 * time.Millisecond
	// askTimeout is generous: a late answer from a busy machine is not an outage.
	askTimeout = 5 * time.Second
	// asksAtOnce limits the number of unanswered requests.
	asksAtOnce = 40
)

// ask is one request of a client.
type ask struct {
	begun, ended time.Time
	ok           bool
}

// outage returns the longest time from the start of a failed request to the answer of the next successful one. A request that hangs until its timeout
// does not extend the outage once a later one was answered: it still waits for a server that is gone.
func outage(asks []ask) time.Duration {
	var longest time.Duration
	var since, last time.Time
	for _, a := range slices.SortedFunc(slices.Values(asks), func(a, b ask) int { return a.begun.Compare(b.begun) }) {
		switch {
		case !a.ok && since.IsZero():
			since, last = a.begun, a.ended
		case !a.ok:
			last = a.ended
		case !since.IsZero():
			longest = max(longest, a.ended.Sub(since))
			since = time.Time{}
		}
	}
	if !since.IsZero() {
		longest = max(longest, last.Sub(since))
	}
	return longest
}

// asking sends requests until stop is called, which returns their results. Each request uses its own connection, like that of a new client.
func asking(ctx context.Context, request func(ctx context.Context, n int) bool) (stop func() []ask) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var mu sync.Mutex
	var asks []ask
	slots := make(chan struct{}, asksAtOnce)
	all.Go(func() {
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			select {
			case <-ctx.Done():
				return
			case slots <- struct{}{}:
			}
			all.Go(func() {
				defer func() { <-slots }()
				one, end := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
				defer end()
				a := ask{begun: time.Now()}
				a.ok = request(one, n)
				a.ended = time.Now()
				mu.Lock()
				defer mu.Unlock()
				asks = append(asks, a)
			})
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() []ask {
		cancel()
		all.Wait()
		return asks
	}
}

// writer writes one key after the other into a ConfigMap through the endpoint, and records the acknowledged ones.
type writer struct {
	via  *http.Client
	url  string
	mu   sync.Mutex
	keys []string
}

func newWriter(cfg *rest.Config, endpoint string) (*writer, error) {
	c := rest.CopyConfig(cfg)
	c.Host = "https://" + endpoint
	secured, err := rest.TLSConfigFor(c)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return &writer{via: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: secured}},
		url: c.Host + "/api/v1/namespaces/" + namespace + "/configmaps/" + name}, nil
}

func (w *writer) write(ctx context.Context, n int) bool {
	key := fmt.Sprintf("k%d", n)
	if !answered(ctx, w.via, http.MethodPatch, w.url, fmt.Sprintf(`{"data":{%q:""}}`, key)) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, key)
	return true
}

// lost returns the number of acknowledged keys that are missing in data.
func (w *writer) lost(data map[string]string) (n int) {
	for _, k := range w.keys {
		if _, there := data[k]; !there {
			n++
		}
	}
	return n
}

// console requests the page of a cloud's console, as a browser does.
type console struct {
	via *http.Client
	url string
}

func newConsole(address string) *console {
	return &console{url: "https://" + net.JoinHostPort(strings.Trim(address, "[]"), "443") + "/",
		via: &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} //nolint:gosec // measures only whether it answers, and sends nothing
}

func (c *console) ask(ctx context.Context, _ int) bool {
	return answered(ctx, c.via, http.MethodGet, c.url, "")
}

// answers asks once, with a longer timeout: a busy machine is slow.
func (c *console) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	return c.ask(ctx, 0)
}

// answered reports whether the response to a request is 200.
func answered(ctx context.Context, via *http.Client, method, url, body string) bool {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return false
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := via.Do(req)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // it has been read
	return err == nil && resp.StatusCode == http.StatusOK
}
