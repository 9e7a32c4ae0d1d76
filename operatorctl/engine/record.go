// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"
)

// records are what is known of objects beside what the cache shows.
type records struct {
	mu sync.Mutex
	of map[Key]record
}

// get returns the record of an object, an empty one if nothing is known.
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

// deleted drops what is known of an object up to the version that deleted it, but not how often others have deleted it.
func (r *records) deleted(key Key, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, known := r.of[key]; known && !Older(version, one.expected) {
		r.of[key] = record{drift: one.drift}
	}
}

// expected are the versions in a namespace that the cache has not shown yet.
func (r *records) expected(namespace string) map[Key]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[Key]string{}
	for key, one := range r.of {
		if key.Namespace == namespace && one.expected != "" {
			out[key] = one.expected
		}
	}
	return out
}

// record is what is known of an object.
type record struct {
	// expected is the resourceVersion that our last write made, "" once the cache has shown it; until when the cache may lack the object.
	expected string
	until    time.Time
	// clean says for which hash a version was found equal: it saves comparing it again.
	clean seen
	// hold is the last refusal of the API server, drift how often others have changed the object back or deleted it.
	hold  *hold
	drift drift
	// full is the hash of a claim that was not allowed to grow, growAt when that is tried again.
	full   string
	growAt time.Time
}

type seen struct {
	version, hash string
	kept          []Kept
}

// isClean is true if this version of an object was found to hold what is applied under the hash, and what was kept then. A claim that may be asked
// again to grow is not.
func (r record) isClean(version, hash string, now time.Time) (kept []Kept, ok bool) {
	if r.full == hash && r.notToGrow(now) == "" {
		return nil, false
	}
	return r.clean.kept, r.clean.version == version && r.clean.hash == hash && version != ""
}

// notToGrow is under which hash a claim is not asked to grow, because that was refused just now; "" if none. One that is found equal later has grown
// by another hand.
func (r record) notToGrow(now time.Time) string {
	if now.Before(r.growAt) {
		return r.full
	}
	return ""
}

// patience is how long a cache may lack an object that was written. A cache is behind by milliseconds, or for as long as its watch is broken;
// but an object that was made and deleted meanwhile it never shows.
const patience = 30 * time.Second

// Behind is true while the cache does not show what was written in a namespace: what is decided on an older version would be refused, or would
// undo our own write. A watch brings the objects; at until the cache is believed to lack them rightly. An older version is never believed.
func (a *Applier) Behind(ctx context.Context, namespace string) (behind bool, until time.Time, err error) {
	for key, expected := range a.records.expected(namespace) {
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

// Forget drops what is known of an object that a watch has shown to be deleted in a version, but not how often others have deleted it.
// What was written after that version stays expected: a cache lacks an object a moment before its watch reports that, and a reconcile in
// that moment has made the object anew.
func (a *Applier) Forget(key Key, version string) { a.records.deleted(key, version) }
