// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/integration/harness"
)

// operator is the operator of a test.
type operator struct {
	stop func()
	log  harness.Log
}

// Launch holds the settings of an operator before it starts.
type Launch struct {
	Config  *rest.Config
	Options operatorctl.Options
}

// settle is how long a wave of an operation must serve in a test.
const settle = 100 * time.Millisecond

// StartOperator runs the operator as its service account, so that a missing permission is an error.
func (e *Env) StartOperator(changes ...func(*Launch)) {
	e.Helper()
	e.operator.log = harness.Log{}
	l := &Launch{Config: e.Cluster.ServiceAccount(Namespace, "onecloud-operator"), Options: operatorctl.Options{
		Namespaces: []string{Namespace}, Lease: Namespace, Grace: Patience,
		Options:    effects.Options{Transport: e.toServices, Dial: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, OnStatement: e.Counters.Statement},
		Operations: operation.Settings{Settle: settle},
		Log:        slog.New(slog.NewTextHandler(&e.operator.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}
	if e.Pods != nil {
		l.Options.Dial = e.Pods.Dial
	}
	for _, change := range changes {
		change(l)
	}
	l.Config.UserAgent = "ocadm-operator"
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.Context()))
	done := make(chan error, 1)
	go func() { done <- operatorctl.Run(ctx, l.Config, l.Options) }()
	e.operator.stop = func() {
		cancel()
		slow := time.AfterFunc(2*time.Second, func() { // its limit outside tests
			var stacks bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			e.Logf("the operator takes its time to end:\n%s", stacks.String())
		})
		defer slow.Stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) { // it may not have begun yet
			e.Errorf("the operator ended: %v", err)
		}
	}
}

// toServices returns the operator's transport to the services.
func (e *Env) toServices(next http.RoundTripper) http.RoundTripper {
	if e.Services != nil {
		next = e.Services.Transport()
	}
	return e.Counters.Transport(next)
}

// StopOperator stops the operator gracefully.
func (e *Env) StopOperator() {
	if e.operator.stop != nil {
		e.operator.stop()
		e.operator.stop = nil
	}
}

// Said returns the operator's log since its start.
func (e *Env) Said() string { return e.operator.log.String() }

// Passes returns the number of finished reconciles of this process's operators and reports whether one is running.
func (e *Env) Passes() (ended float64, busy bool) {
	e.Helper()
	ended, busy, err := harness.Passes()
	e.Must(err)
	return ended, busy
}

// UntilQuiet waits until a reconcile has ended after since and no other follows. No event reports that nothing will happen.
func (e *Env) UntilQuiet(since float64) {
	e.Helper()
	looks, every := 5, 15*time.Millisecond
	if e.workloads != Instant { // programs and controllers act in their own time
		looks, every = 10, 50*time.Millisecond
	}
	UntilQuiet(e, since, looks, every, e.Passes)
}

// UntilQuiet is Env.UntilQuiet for an operator whose reconciles are counted elsewhere.
func UntilQuiet(t T, since float64, looks int, every time.Duration, passes func() (ended float64, busy bool)) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for last, calm := -1.0, 0; calm < looks; time.Sleep(every) {
		ended, busy := passes()
		calm++
		if ended <= since || busy || ended != last {
			calm = 0
		}
		last = ended
		if time.Now().After(deadline) {
			t.Fatalf("the operator does not come to rest: %v reconciles, busy %v", ended-since, busy)
		}
	}
}

// Rest waits until the operator has nothing left to do.
func (e *Env) Rest() {
	e.Helper()
	ended, _ := e.Passes()
	e.UntilQuiet(ended - 1)
}

// Work holds the operator's requests in a span of time.
type Work struct {
	Kubernetes []harness.Request
	// Statements are the verbs of SQL statements, Others the requests to services.
	Statements, Others []string
}

// Count returns the operator's requests while do runs, without watches and leases.
func (e *Env) Count(do func()) Work {
	e.Helper()
	return e.CountBy(harness.Filter{}, do)
}

// CountBy is Count with another filter.
func (e *Env) CountBy(f harness.Filter, do func()) Work {
	e.Helper()
	f.User = OperatorUser
	began := e.Counters.Now()
	requests, err := e.Cluster.Count(e.Context(), f, func() error { do(); return nil })
	e.Must(err)
	statements, others := e.Counters.Since(began)
	return Work{requests, statements, others}
}

// Requests returns the requests of a user since a mark.
func (e *Env) Requests(since harness.Mark, f harness.Filter) []harness.Request {
	e.Helper()
	requests, err := e.Cluster.Requests(since, e.Mark(), f)
	e.Must(err)
	return requests
}

// Mark returns the current end of the audit log.
func (e *Env) Mark() harness.Mark {
	e.Helper()
	m, err := e.Cluster.Mark(e.Context())
	e.Must(err)
	return m
}

// Changes returns the requests that change something other than events, statuses and reviews of permissions.
func (w Work) Changes() []harness.Request {
	return lists.Filter(w.Kubernetes, func(q harness.Request) bool {
		reports := q.Resource == "events" || q.Resource == "selfsubjectaccessreviews" || q.Subresource == "status"
		return !reports && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, q.Verb)
	})
}

// Writes returns the Changes as text, with the status code of refused ones.
func (w Work) Writes() []string {
	return lists.Map(w.Changes(), func(q harness.Request) string {
		line := fmt.Sprintf("%s %s/%s", q.Verb, q.Resource, q.Name)
		if q.Code >= http.StatusBadRequest {
			line += fmt.Sprintf(" refused: %d", q.Code)
		}
		return line
	})
}

// StatusPatches returns the requests that write a status.
func (w Work) StatusPatches() []harness.Request {
	return lists.Filter(w.Kubernetes, func(q harness.Request) bool { return q.Subresource == "status" })
}

// Asked returns the requests to Kubernetes without watches and without events, which the recorder writes asynchronously.
func (w Work) Asked() []harness.Request {
	return lists.Filter(w.Kubernetes, func(q harness.Request) bool { return q.Resource != "events" && q.Verb != "watch" })
}

// Refused returns the requests that the API server refused.
func (w Work) Refused() []harness.Request {
	return lists.Filter(w.Kubernetes, func(q harness.Request) bool { return q.Code == 401 || q.Code == 403 })
}

// Outside returns all requests to databases and services.
func (w Work) Outside() []string { return slices.Concat(w.Statements, w.Others) }

// Identity returns the requests to the identity service.
func (w Work) Identity() []string {
	return lists.Filter(w.Others, func(o string) bool { return strings.Contains(o, "-keystone/") })
}

var identifier = regexp.MustCompile("[0-9a-f]{32}")

// Tally counts equal elements, the most frequent first: "3 get secrets, 1 list pods". It ignores differences in identifiers.
func Tally[E any](all []E, what func(E) string) string {
	n := map[string]int{}
	for _, one := range all {
		n[identifier.ReplaceAllString(what(one), "ID")]++
	}
	return harness.Tally(n)
}

// Verb returns the request as "get secrets".
func Verb(q harness.Request) string {
	return strings.TrimSuffix(q.Verb+" "+q.Resource+"/"+q.Subresource, "/")
}

// String returns a one-line summary.
func (w Work) String() string {
	service := func(o string) string {
		_, rest, _ := strings.Cut(o, " ")
		host, _, _ := strings.Cut(rest, "/")
		return host
	}
	return fmt.Sprintf("Kubernetes %d (%s); SQL %d; services %d (%s)", len(w.Kubernetes), Tally(w.Kubernetes, Verb), len(w.Statements), len(w.Others), Tally(w.Others, service))
}
