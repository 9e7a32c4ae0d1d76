// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
)

type item struct {
	what, address, host string
	fetcher             fetch.Fetcher
	digest              v1.Hash
	// size is 0 if it is not known yet.
	size int64
	// others are asked in turn if a mirror lacks the blob.
	others []place
}

// items returns the blobs that the bundle needs and that are in neither the working directory nor the bundle that it continues.
func (o Options) items(w *work, p plan) ([]item, error) {
	all := map[v1.Hash]item{}
	for arch, list := range p.programs {
		for _, a := range list {
			if h := (v1.Hash{Algorithm: "sha256", Hex: a.SHA256}); len(o.old(a, arch)) == 0 {
				all[h] = item{what: a.Name + " " + a.Version, address: a.URL, host: hostOf(a.URL), fetcher: o.client(), digest: h}
			}
		}
	}
	for _, f := range p.images {
		for _, l := range f.manifest.Layers {
			if o.Since == nil || !o.Since.Has(l.Digest) {
				all[l.Digest] = item{
					what: "a layer of " + f.name, address: f.from.address("blobs", l.Digest.String()), host: f.from.host(),
					fetcher: f.from.fetcher, digest: l.Digest, size: l.Size, others: f.others,
				}
			}
		}
	}
	for h := range all {
		has, err := w.has(h)
		if err != nil {
			return nil, err
		}
		if has {
			delete(all, h)
		}
	}
	// Large ones go first: a large one at the end would hold everything up.
	return slices.SortedFunc(maps.Values(all), func(a, b item) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.digest.Hex, b.digest.Hex))
	}), nil
}

// download downloads everything into the working directory and returns the number of bytes.
func (o Options) download(ctx context.Context, w *work, p plan) (int64, error) {
	s := o.step("download", "download programs and layers of images")
	list, err := o.items(w, p)
	if err != nil {
		return 0, s.end(err)
	}
	if err := o.room(w, p, list); err != nil {
		return 0, s.end(err)
	}
	for _, i := range list {
		s.more(i.size)
		s.done(min(i.size, w.arrived(i.digest)))
	}
	before := s.sofar
	err = lists.Each(ctx, list, downloads, func(ctx context.Context, i item) error {
		progress := fetch.Progress{Done: s.done, More: s.more}
		if i.size > 0 {
			progress.More = func(int64) {}
		}
		i.fetcher.Again = s.again
		err := i.fetcher.Fetch(ctx, i.address, w.part(i.digest), i.digest.Hex, progress)
		for _, other := range i.others {
			if err == nil || ctx.Err() != nil || isLocal(err) {
				break
			}
			if at, failed := p.from.open(ctx, other); failed == nil {
				i.host, i.fetcher.Client = other.host(), at.fetcher.Client
				err = i.fetcher.Fetch(ctx, at.address("blobs", i.digest.String()), w.part(i.digest), i.digest.Hex, progress)
			}
		}
		if err == nil {
			err = os.Rename(w.part(i.digest), w.blob(i.digest))
		}
		if err != nil && ctx.Err() == nil {
			return notDownloaded(i.what, i.host, err)
		}
		return err
	})
	return s.sofar - before, s.end(err)
}

// room returns an error if the downloads and the bundle cannot fit. Sizes that are not known yet do not count.
func (o Options) room(w *work, p plan, list []item) error {
	var need int64
	for _, i := range list {
		need += i.size - w.arrived(i.digest)
	}
	seen := map[v1.Hash]bool{}
	for _, f := range p.images { // each layer is temporarily both in the working directory and in the bundle
		for _, l := range f.manifest.Layers {
			if !seen[l.Digest] && (o.Since == nil || !o.Since.Has(l.Digest)) {
				need += l.Size
			}
			seen[l.Digest] = true
		}
	}
	free, err := disk.Free(w.dir)
	if err != nil {
		return err
	}
	if need > free {
		return noRoom(w.dir, ui.Bytes(need), ui.Bytes(free))
	}
	return nil
}

// phases is the number of phases: look-up, download and write.
const phases = 3

type step struct {
	sink  workflow.Sink
	phase string
	unit  string
	start time.Time

	mu           sync.Mutex
	sofar, total int64
}

func (o Options) step(name, message string) *step {
	s := &step{sink: o.Sink, phase: name, start: time.Now()}
	if name == "download" {
		s.unit = "B"
	}
	s.send(workflow.Event{Type: workflow.PhaseStarted, Message: message})
	return s
}

func (s *step) send(e workflow.Event) {
	e.Time, e.Phase, e.Count = time.Now(), s.phase, phases
	s.sink.Event(e)
}

func (s *step) done(n int64) { s.add(n, 0) }
func (s *step) more(n int64) { s.add(0, n) }

func (s *step) add(done, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sofar, s.total = s.sofar+done, s.total+total
	s.send(workflow.Event{Type: workflow.PhaseProgress, Done: min(s.sofar, s.total), Total: s.total, Unit: s.unit})
}

// again reports why something is retried.
func (s *step) again(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(workflow.Event{Type: workflow.PhaseWaiting, Message: "a server", Why: err.Error()})
}

func (s *step) end(err error) error {
	e := workflow.Event{Type: workflow.PhaseDone, Duration: time.Since(s.start).Seconds()}
	if err != nil {
		e.Type, e.Message = workflow.PhaseFailed, err.Error()
	}
	s.send(e)
	return err
}
