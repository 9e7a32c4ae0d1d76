// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"maps"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// restAfter is how long no pass must have been made until the operator counts as at rest.
const restAfter = 20 * time.Second

// An operator with few clouds collects garbage when as much has come to its live memory again, which costs least. With many clouds that is
// more than it is worth. Measured while 20 were made at once: 153 MiB at the most instead of 199, in no more time.
const (
	largeHeap  = 32 << 20
	largeRatio = 30
)

// giveBack returns memory to the system each time the operator has come to rest. The installation of many clouds needs several times as
// much as holding them, and without it the runtime would keep that for long: at rest nothing is allocated, so nothing is collected.
func (r *Reconciler) giveBack(ctx context.Context) error {
	tick := time.NewTicker(restAfter / 4)
	defer tick.Stop()
	var done int64
	usual, chosen := 100, os.Getenv("GOGC") != ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			last := r.lastPass.Load()
			if last == done {
				continue
			}
			if now.UnixNano()-last > int64(restAfter) {
				r.forget(ctx)
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

// liveHeap is how much the last collection left, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return sample[0].Value.Uint64()
}

// forget drops what passes keep for the next ones, and answers to writes that the cache has seen.
func (r *Reconciler) forget(ctx context.Context) {
	r.mu.Lock()
	clouds := maps.Clone(r.clouds)
	r.mu.Unlock()
	for key, m := range clouds {
		m.known.Store(nil)
		w := m.written.Load()
		if w == nil {
			continue
		}
		cached := &v1alpha1.OnecloudCluster{}
		if err := r.client.Get(ctx, key, cached, client.UnsafeDisableDeepCopy); err == nil && !engine.Older(cached.ResourceVersion, w.ResourceVersion) {
			m.written.CompareAndSwap(w, nil)
		}
	}
}
