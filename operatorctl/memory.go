// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/operatorctl/reconcile"
)

// restAfter is how long after the last reconcile the operator counts as idle.
const restAfter = 20 * time.Second

// With few clouds, the default GC percentage costs least. With many, it wastes memory: creating 20 clouds at once took at most 153 MiB with
// largeRatio, 199 MiB without it, and the same time.
const (
	largeHeap  = 32 << 20
	largeRatio = 30
)

// releaseMemory returns memory to the system whenever the operator becomes idle. Creating many clouds needs several times as much as running them,
// and the runtime would keep it for long: an idle operator allocates nothing, so nothing triggers a collection.
func releaseMemory(ctx context.Context, r *reconcile.Reconciler) error {
	tick := time.NewTicker(restAfter / 4)
	defer tick.Stop()
	var done time.Time
	usual, chosen := 100, os.Getenv("GOGC") != ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			last := r.LastReconcile()
			if last.Equal(done) {
				continue
			}
			if now.Sub(last) > restAfter {
				r.Rest(ctx)
				admission.Release()
				debug.FreeOSMemory()
				done = last
			}
			ratio := 100
			if liveHeap() > largeHeap {
				ratio = largeRatio
			}
			if ratio != usual && !chosen {
				debug.SetGCPercent(ratio)
				usual = ratio
			}
		}
	}
}

// liveHeap returns the size of the heap after the last collection, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}
