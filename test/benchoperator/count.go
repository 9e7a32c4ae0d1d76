// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/integration/harness"
)

// operatorUser is whom the audit log names for what the operator does.
const operatorUser = "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount

// operator runs in this program, so that what it asks of databases and services can be counted in its own hooks.
type operator struct {
	w      *world
	cancel context.CancelFunc
	done   chan error

	counters harness.Counters
}

func (o *operator) start(ctx context.Context) {
	o.done = make(chan error, 1)
	ctx, o.cancel = context.WithCancel(ctx)
	config := o.w.cluster.ServiceAccount(operatorNamespace, operatorAccount)
	go func() {
		o.done <- operatorctl.Run(ctx, rest.CopyConfig(config), operatorctl.Options{
			Namespace: operatorNamespace, UserAgent: "ocadm-operator", Dial: o.w.front.dial, Audit: -1,
			Transport: o.counters.Transport, OnStatement: o.counters.Statement, Log: slog.New(slog.DiscardHandler),
		})
	}()
}

func (o *operator) stop() error {
	if o.cancel == nil {
		return nil
	}
	o.cancel()
	return <-o.done
}

// work is what the operator asked of everybody in some span of time.
type work struct {
	kubernetes         []harness.Request
	statements, others int
	// identity are those of others that went to the identity service.
	identity int
	// services is a tally of others, sql one of statements.
	services, sql string
}

// count runs something and tells what the operator did meanwhile. Watches are left out unless asked for.
func (o *operator) count(ctx context.Context, f harness.Filter, do func() error) (work, error) {
	began := o.counters.Now()
	f.User = operatorUser
	requests, err := o.w.cluster.Count(ctx, f, do)
	if err != nil {
		return work{}, err
	}
	statements, others := o.counters.Since(began)
	did := work{kubernetes: requests, statements: len(statements), others: len(others), services: tallyOf(others), sql: tallyOf(statements)}
	for _, r := range others {
		if strings.Contains(r, "-keystone/") {
			did.identity++
		}
	}
	return did, nil
}

var changes = []string{"create", "update", "patch", "delete", "deletecollection"}

// writes are the requests that change something, without what only tells: events and status.
func writes(all []harness.Request) []harness.Request {
	return pick(all, func(q harness.Request) bool {
		return q.Resource != "events" && q.Subresource != "status" && slices.Contains(changes, q.Verb)
	})
}

func statusPatches(all []harness.Request) []harness.Request {
	return pick(all, func(q harness.Request) bool { return q.Subresource == "status" })
}

func withoutEvents(all []harness.Request) []harness.Request {
	return pick(all, func(q harness.Request) bool { return q.Resource != "events" })
}

func pick(all []harness.Request, keep func(harness.Request) bool) []harness.Request {
	return slices.DeleteFunc(slices.Clone(all), func(q harness.Request) bool { return !keep(q) })
}

// verbs is a tally such as "3 get secrets, 1 list pods".
func verbs(all []harness.Request) string {
	var out []string
	for _, q := range all {
		out = append(out, q.Verb+" "+q.Resource)
	}
	return tallyOf(out)
}

// tallyOf counts what is the same, most first. Identifiers in paths count as the same.
func tallyOf(all []string) string {
	n := map[string]int{}
	for _, s := range all {
		n[identifier.ReplaceAllString(s, "ID")]++
	}
	return harness.Tally(n)
}

var identifier = regexp.MustCompile("[0-9a-f]{32}")

// passes is how many passes an operator in this program has ended, and whether one is under way.
func passes() (ended float64, busy bool) {
	ended, busy, _ = harness.Passes() // unreadable, it counts as busy
	return ended, busy
}

// untilQuiet waits until at least one pass was made since n, and nothing is left to do. Nothing tells when nothing will happen: it is
// looked at several times.
func untilQuiet(ctx context.Context, look func() (float64, bool), since float64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last, calm := -1.0, 0
	for calm < 8 {
		ended, busy := look()
		if ended > since && !busy && ended == last {
			calm++
		} else {
			calm = 0
		}
		last = ended
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the operator to come to rest: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
