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

const (
	// ReasonImmutable means that a field must change that the API server does not let change.
	ReasonImmutable = "ImmutableField"
	// ReasonConflict means that another client keeps reverting the object.
	ReasonConflict = "FieldConflict"
	// ReasonAltered means that the API server itself changes what is applied.
	ReasonAltered = "ChangedOnAdmission"
	// ReasonAutoscaled means that an autoscaler sets the replicas.
	ReasonAutoscaled = "Autoscaled"
	// ReasonTerminating means that the object is being deleted.
	ReasonTerminating = "Terminating"
	// ReasonRefused means that the API server rejected the object.
	ReasonRefused = "NotApplied"
)

// Refusal is the error of an object that was not applied. It is always used as a pointer.
type Refusal struct {
	Reason string
	// Until is when it is retried if nothing changes; zero if only a change helps.
	Until time.Time
	Err   error
}

func (r *Refusal) Error() string { return r.Err.Error() }
func (r *Refusal) Unwrap() error { return r.Err }

// cause classifies an error of the API server: it determines the delay of the next attempt.
type cause int

const (
	// transient: the API server or the connection to it; soon over.
	transient cause = iota
	// external: the cause lies elsewhere, and often goes away: a quota, a webhook, a permission.
	external
	// terminal: the object itself is wrong; the same request fails again.
	terminal
)

// delays is how long to wait before the same request: first, then twice as long each time, up to last.
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
		return external // a port or an address that another Service has, or that the API server has not released yet
	case strings.Contains(err.Error(), " denied request: "), strings.Contains(err.Error(), " denied the request"):
		return external // a policy (by default as "invalid") or a webhook (Kyverno's: as "bad request") that its owner may change
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		return terminal
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		return external
	}
	return transient
}

// hold delays the next attempt of the same request. Another hash is another request, and so is another state of the live object if that is what was
// rejected.
type hold struct {
	hash, version string
	cause         cause
	delay         time.Duration
	refusal       *Refusal
}

// standing returns the refusal that still applies to a request, nil if there is none.
func (h *hold) standing(hash, version string, now time.Time) *Refusal {
	if h == nil || h.hash != hash || h.cause == terminal && h.version != version || !now.Before(h.refusal.Until) {
		return nil
	}
	return h.refusal
}

// holdAfter returns the hold after an error. before is the previous one, nil if there was none.
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
