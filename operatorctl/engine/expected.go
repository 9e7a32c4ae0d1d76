// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"
)

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
