// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The reasons of a Refusal.
const (
	// ReasonImmutable: a field is to change that the API server lets not change.
	ReasonImmutable = "ImmutableField"
	// ReasonConflict: another client changes it back, again and again.
	ReasonConflict = "FieldConflict"
	// ReasonAutoscaled: an autoscaler sets the number of pods.
	ReasonAutoscaled = "Autoscaled"
	// ReasonTerminating: the object is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonRefused: the API server did not take it.
	ReasonRefused = "NotApplied"
)

// Refusal is an object that was not applied, and why. It is a pointer wherever it is an error.
type Refusal struct {
	Reason string
	// Until is when it is tried again if nothing changes; zero where only a change helps.
	Until time.Time
	Err   error
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// cause is what kind of trouble an answer of the API server is: it decides how soon to ask again.
type cause int

const (
	// transient: the API server or the way to it; soon over.
	transient cause = iota
	// external: the way out lies outside, and is often taken: a quota, a webhook, a permission.
	external
	// terminal: the object itself is wrong; asking again the same changes nothing.
	terminal
)

// How soon the same request is made again: after first, then after twice as long each time, at most last.
var delays = map[cause]struct{ first, last time.Duration }{
	transient: {time.Second, time.Minute},
	external:  {5 * time.Second, 5 * time.Minute},
	terminal:  {time.Minute, 30 * time.Minute},
}

func causeOf(err error) cause {
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		return transient
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "already allocated"):
		return external // a port or an address that another Service has, or that the API server has not given back yet
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		return terminal
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		return external
	}
	return transient
}

// hold keeps the same request from being made again before its time. Another hash, or another state of the live object where that
// is what was refused, is another request.
type hold struct {
	hash, version string
	cause         cause
	delay         time.Duration
	refusal       *Refusal
}

// standing returns the refusal that still stands for a request, nil if none does.
func (h *hold) standing(hash, version string, now time.Time) *Refusal {
	if h == nil || h.hash != hash || h.cause == terminal && h.version != version || !now.Before(h.refusal.Until) {
		return nil
	}
	return h.refusal
}

// holdAfter says when to ask again after an error. before is the hold that was there, nil for none.
func holdAfter(before *hold, hash, version string, err error, now time.Time) *hold {
	c := causeOf(err)
	delay := delays[c].first
	if before != nil && before.hash == hash && before.cause == c {
		delay = min(2*before.delay, delays[c].last)
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, time.Duration(seconds)*time.Second)
	}
	r := &Refusal{Reason: ReasonRefused, Until: now.Add(delay), Err: err}
	return &hold{hash: hash, version: version, cause: c, delay: delay, refusal: r}
}
