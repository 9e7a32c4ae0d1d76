// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"runtime/debug"
	"time"
)

// restAfter is how long no pass must have been made until the operator counts as at rest.
const restAfter = 20 * time.Second

// giveBack returns memory to the system each time the operator has come to rest. The installation of many clouds needs several times as
// much as holding them, and without it the runtime would keep that for long: at rest nothing is allocated, so nothing is collected.
func (r *Reconciler) giveBack(ctx context.Context) error {
	tick := time.NewTicker(restAfter / 2)
	defer tick.Stop()
	var done int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			if last := r.lastPass.Load(); last != done && now.UnixNano()-last > int64(restAfter) {
				r.forgetKnown()
				debug.FreeOSMemory()
				done = last
			}
		}
	}
}

// forgetKnown drops what passes keep for the next ones.
func (r *Reconciler) forgetKnown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.clouds {
		m.known.Store(nil)
	}
}
