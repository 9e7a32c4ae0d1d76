// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
)

// point is a moment in the life of an operator: before or after its nth effect of a kind.
type point struct {
	what  string
	nth   int
	after bool
}

func (p point) String() string {
	when := "before"
	if p.after {
		when = "after"
	}
	if p.nth > 1 {
		return fmt.Sprintf("%s %s (%d)", when, p.what, p.nth)
	}
	return when + " " + p.what
}

// operator is a process of the operator, as seen from outside. All its actions pass through here. After it is killed it has no more effects, whatever
// its goroutines still try. A request in flight may or may not have taken effect, and its response is lost.
type operator struct {
	w    *faulty
	kill *point
	// dies, if set, decides for each effect whether the operator dies there, before or after it.
	dies func(effect string) (die, after bool)
	// reports, if set, receives the bodies of its status updates of operations.
	reports func(body string)
	// killed is closed when the operator reaches the point at which it dies.
	killed chan struct{}
	cancel context.CancelFunc
	done   chan error
	log    harness.Log
	fault  fault
	// orderly means that at its point the operator is asked to stop and may finish its current work.
	orderly bool
	// flight counts the requests in flight that have effects.
	flight sync.WaitGroup

	mu      sync.Mutex
	dead    bool
	times   map[string]int
	effects []point
	asked
}

// asked counts the requests by kind.
type asked struct {
	requests, sql, services, logins, dials int
}

func (a asked) minus(b asked) asked {
	return asked{a.requests - b.requests, a.sql - b.sql, a.services - b.services, a.logins - b.logins, a.dials - b.dials}
}

// fault replaces parts of the connections to servers; nil functions do nothing. They are called with the request before it is sent.
type fault struct {
	mu      sync.Mutex
	service func(*http.Request) (*http.Response, error)
	dial    func(context.Context) error
	sql     func(statement string) error
	conns   []net.Conn
	// mangle changes what is sent to the database server; heard receives its responses.
	mangle func(packet []byte) []byte
	heard  func(string)
}

var errKilled = errors.New("the operator was killed")

// breaks replaces the current fault.
func (o *operator) breaks(service func(*http.Request) (*http.Response, error), dial func(context.Context) error, sql func(string) error) {
	o.fault.mu.Lock()
	defer o.fault.mu.Unlock()
	o.fault.service, o.fault.dial, o.fault.sql = service, dial, sql
	for _, c := range o.fault.conns {
		_ = c.Close() // close open connections
	}
	o.fault.conns = nil
}

// heals ends the fault.
func (o *operator) heals() { o.breaks(nil, nil, nil) }

// has returns the number of requests so far.
func (o *operator) has() asked {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// start starts an operator that dies at a point, or never if nil.
func (w *faulty) start(t testing.TB, kill *point, options ...func(*operatorctl.Options)) *operator {
	t.Helper()
	return w.startOne(t, &operator{kill: kill}, options...)
}

func (w *faulty) startOne(t testing.TB, o *operator, options ...func(*operatorctl.Options)) *operator {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	o.w, o.killed, o.cancel, o.done, o.times = w, make(chan struct{}), cancel, make(chan error, 1), map[string]int{}
	config := w.Cluster.ServiceAccount(namespace, "onecloud-operator")
	config.Dial, config.UserAgent = w.dial, "ocadm-operator"
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return o.kubernetes(next) }
	if s := w.streams; s != nil {
		config.ContentType = "application/json"
		config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return o.kubernetes(s.wrap(next)) }
	}
	opts := operatorctl.Options{
		Namespaces: []string{namespace}, Audit: -1, Grace: env.Patience,
		Options: effects.Options{Dial: o.dial, Transport: func(next http.RoundTripper) http.RoundTripper {
			if w.Services != nil {
				next = w.Services.Transport()
			}
			return o.toServices(next)
		}},
		Log: slog.New(slog.NewTextHandler(&o.log, nil)),
	}
	for _, f := range options {
		f(&opts)
	}
	go func() { o.done <- operatorctl.Run(ctx, config, opts) }()
	return o
}

// stop stops the operator gracefully, or cleans up after a killed one.
func (o *operator) stop(t testing.TB) {
	t.Helper()
	o.cancel()
	select {
	case err := <-o.done:
		if err != nil && !o.isDead() {
			t.Errorf("the operator ended: %v", err)
		}
	case <-time.After(env.Patience):
		t.Fatal("the operator does not end")
	}
	o.done <- nil // it may be stopped again
	o.flight.Wait()
}

func (o *operator) isDead() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dead
}

// begin counts an effect that is about to happen. die reports whether the operator dies after it.
func (o *operator) begin(what string) (die bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return false, errKilled
	}
	o.times[what]++
	now := point{what: what, nth: o.times[what]}
	o.effects = append(o.effects, now)
	if o.dies != nil {
		die, after := o.dies(what)
		if die && !after {
			o.dieLocked()
			return false, errKilled
		}
		return die, nil
	}
	if o.kill == nil || o.kill.what != now.what || o.kill.nth != now.nth {
		return false, nil
	}
	if o.orderly {
		o.cancel()
		close(o.killed)
		return false, nil
	}
	if o.kill.after {
		return true, nil
	}
	o.dieLocked()
	return false, errKilled
}

// all returns its effects so far.
func (o *operator) all() []point {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.effects)
}

func (o *operator) die() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.dead {
		o.dieLocked()
	}
}

func (o *operator) dieLocked() {
	o.dead = true
	close(o.killed)
	o.cancel()
}

// do sends a request if the operator is alive.
func (o *operator) do(r *http.Request, effect string, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	die, err := false, error(nil)
	if effect != "" {
		die, err = o.begin(effect)
	} else if o.isDead() {
		err = errKilled
	}
	if err != nil {
		return nil, err
	}
	if effect != "" && !o.orderly {
		// A sent request completes even after the operator was killed: an API server that is interrupted while it creates a Service may keep its port
		// allocated for ten minutes.
		r = r.WithContext(context.WithoutCancel(r.Context()))
		o.flight.Add(1)
		defer o.flight.Done()
	}
	answer, err := next(r)
	if die {
		o.die()
	}
	if err == nil && o.isDead() {
		_ = answer.Body.Close() // the operator is dead
		return nil, errKilled
	}
	return answer, err
}

// kubernetes is the transport to the API server. Events and the lease of leader election do not count as effects.
func (o *operator) kubernetes(next http.RoundTripper) http.RoundTripper {
	return harness.RoundTrip(func(r *http.Request) (*http.Response, error) {
		effect := ""
		path := revisions.ReplaceAllString(strings.Replace(r.URL.Path, "/namespaces/"+namespace, "", 1), "-release-*")
		dry := r.URL.Query().Get("dryRun") != ""
		reports := dry || strings.Contains(path, "/events") || strings.Contains(path, "/leases")
		if r.Method != http.MethodGet && !reports {
			effect = r.Method + " " + path
			if r.URL.Query().Get("fieldManager") == "ocadm-operator-defaults" {
				effect += " (defaults)"
			}
		}
		if o.dies != nil && o.isDead() && r.Method == http.MethodPatch { // what would be retried for minutes is rejected: the operator is dead
			return &http.Response{StatusCode: http.StatusForbidden, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))}, nil
		}
		if o.reports != nil && strings.Contains(path, "/onecloudoperations/") && strings.HasSuffix(path, "/status") {
			o.reports(body(r))
		}
		o.mu.Lock()
		o.requests++
		o.mu.Unlock()
		return o.do(r, effect, next.RoundTrip)
	})
}

// revisions matches the revisions of releases, which keep increasing from one update to the next.
var revisions = regexp.MustCompile(`-release-\d+`)

var ids = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// toServices is the transport to the identity service and the others.
func (o *operator) toServices(next http.RoundTripper) http.RoundTripper {
	return harness.RoundTrip(func(r *http.Request) (*http.Response, error) {
		effect := ""
		if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/auth/tokens") {
			effect = r.Method + " " + r.URL.Hostname() + ids.ReplaceAllString(r.URL.Path, "*") + about(r)
		}
		login := strings.HasSuffix(r.URL.Path, "/auth/tokens") && strings.Contains(body(r), `"sysadmin"`)
		o.mu.Lock()
		o.services++
		if login {
			o.logins++
		}
		o.mu.Unlock()
		return o.do(r, effect, func(r *http.Request) (*http.Response, error) {
			o.fault.mu.Lock()
			broken := o.fault.service
			o.fault.mu.Unlock()
			if broken != nil {
				if answer, err := broken(r); answer != nil || err != nil {
					return answer, err
				}
			}
			return next.RoundTrip(r)
		})
	})
}

// about returns the subject of a request's body: the name in it, or whatever else distinguishes it from others of its kind.
func about(r *http.Request) string {
	var wrapped map[string]map[string]any
	if json.Unmarshal([]byte(body(r)), &wrapped) != nil {
		return ""
	}
	for _, object := range wrapped {
		for _, key := range []string{"name", "url", "id"} {
			if v, ok := object[key].(string); ok {
				return fmt.Sprintf(" %v %s", orEmpty(object["interface"]), v)
			}
		}
	}
	return ""
}

// body returns the body of a request without consuming it.
func body(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	data, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(data))
	if err != nil {
		return ""
	}
	return string(data)
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// tail returns the last lines of the operator's log.
func (o *operator) tail(lines int) string { return child.LastLines(o.log.String(), lines) }
