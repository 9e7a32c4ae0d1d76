// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"strings"
	"sync"
	"time"
)

// records holds what the applier knows of objects beyond the cache.
type records struct {
	mu sync.Mutex
	of map[Key]record
}

// get returns the record of an object, an empty one if there is none.
func (r *records) get(key Key) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[key]
}

func (r *records) update(key Key, change func(*record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[key]
	change(&one)
	r.of[key] = one
}

func (r *records) drop(key Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, key)
}

// deleted drops the record of an object up to the version that deleted it, but not the number of times that others deleted it.
func (r *records) deleted(key Key, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, known := r.of[key]; known && !Older(version, one.expected) {
		r.of[key] = record{drift: one.drift}
	}
}

// expected returns the versions of a cloud's objects that the cache does not show yet.
func (r *records) expected(namespace, cloud string) map[Key]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[Key]string{}
	for key, one := range r.of {
		if one.expected != "" && key.Namespace == namespace && strings.HasPrefix(key.Name, cloud+"-") {
			out[key] = one.expected
		}
	}
	return out
}

// record holds what the applier knows of an object.
type record struct {
	// expected is the resourceVersion of our last write, "" once the cache shows it. The cache may lack the object until the time in until.
	expected string
	until    time.Time
	// clean is the version last found equal, with its hash: it need not be compared again.
	clean seen
	// hold is the last error of the API server, drift counts how often others reverted or deleted the object.
	hold  *hold
	drift drift
	// altered is what the API server made of our last write, nil if it is what we sent.
	altered *alteration
	// full is the hash of a claim whose resize was rejected, growAt the time of the next attempt.
	full   string
	growAt time.Time
}

type seen struct {
	version, hash string
	kept          []Kept
}

// isClean reports whether this version of an object was found to match what is applied under the hash, and which fields were kept. A claim whose
// resize may be retried is not clean.
func (r record) isClean(version, hash string, now time.Time) (kept []Kept, ok bool) {
	if r.full == hash && r.notToGrow(now) == "" {
		return nil, false
	}
	return r.clean.kept, r.clean.version == version && r.clean.hash == hash && version != ""
}

// notToGrow returns the hash under which a claim must not be resized, because that was just rejected; "" if there is none. A claim that is equal
// later was resized by another client.
func (r record) notToGrow(now time.Time) string {
	if now.Before(r.growAt) {
		return r.full
	}
	return ""
}

// patience is how long a cache may lack a written object. A cache lags by milliseconds, or as long as its watch is broken; but it never shows an
// object that was created and deleted in between.
const patience = 30 * time.Second

// Behind reports whether the cache lacks writes to a cloud's objects, whose names begin with that of the cloud: decisions on older versions would be
// rejected, or would undo our own write. A watch brings the objects; from until on, an object that the cache lacks counts as deleted. An older version
// is never accepted.
func (a *Applier) Behind(ctx context.Context, namespace, cloud string) (behind bool, until time.Time, err error) {
	for key, expected := range a.records.expected(namespace, cloud) {
		o, err := a.cached(ctx, key)
		if err != nil {
			return false, until, err
		}
		a.records.update(key, func(r *record) {
			switch {
			case r.expected != expected: // it was written again
				behind = true
			case o != nil && !Older(o.GetResourceVersion(), expected), o == nil && !a.Now().Before(r.until):
				r.expected = ""
			default:
				if behind = true; o != nil {
					r.until = a.Now().Add(patience)
				}
				if until.IsZero() || r.until.Before(until) {
					until = r.until
				}
			}
		})
	}
	return behind, until, nil
}

// Forget drops the record of an object that a watch showed to be deleted in a version, but not the number of times that others deleted it. Later
// writes stay expected: a cache lacks an object a moment before its watch reports that, and a reconcile in that moment has recreated it.
func (a *Applier) Forget(key Key, version string) { a.records.deleted(key, version) }
