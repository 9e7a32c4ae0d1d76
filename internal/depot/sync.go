// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// Follow copies the content of other control-plane nodes' depots at an interval, until ctx ends. peers returns their clients.
func (s *Store) Follow(ctx context.Context, every time.Duration, peers func(context.Context) ([]*Client, error)) {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		list, err := peers(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("the depot cannot find the depots of other control-plane nodes", "err", err)
		}
		for _, c := range list {
			changed, err := s.Sync(ctx, c)
			if err != nil && ctx.Err() == nil {
				slog.Warn("the depot cannot follow another depot", "address", c.address, "err", err)
			}
			for _, name := range changed {
				slog.Info("the depot has taken over a root", "address", c.address, "root", name)
			}
		}
	}, every)
}

// Sync copies the roots of which another depot has a newer version, and applies its removals. It also copies what this depot has lost of a root, such as a
// blob that was damaged on the disk. It returns the names of the roots. Blobs stored by an interrupted Sync are not copied again. A root that is
// incomplete there, or that does not fit here, does not stop the others.
func (s *Store) Sync(ctx context.Context, c *Client) (changed []string, err error) {
	theirs, err := c.Roots(ctx)
	if err != nil {
		return nil, err
	}
	ours, err := s.allRoots()
	if err != nil {
		return nil, err
	}
	for _, r := range theirs {
		i := slices.IndexFunc(ours, func(o Root) bool { return o.Name == r.Name })
		if i < 0 && r.removed() || i >= 0 && !r.newer(ours[i]) && (ours[i].newer(r) || !s.incomplete(ctx, ours[i])) {
			continue
		}
		if one := s.Storing(ctx, func() error { return s.copyRoot(ctx, c, r, func(int64, int64) {}) }); one != nil {
			if err = errors.Join(err, fmt.Errorf("taking over the root %s: %w", r.Name, one)); !ofOneRoot(one) {
				return changed, err
			}
			continue
		}
		changed = append(changed, r.Name)
	}
	return changed, err
}

func (s *Store) incomplete(ctx context.Context, r Root) bool {
	_, lacks := s.lacks(ctx, r)
	return lacks
}

// ofOneRoot reports whether an error concerns only the root being copied, rather than the other depot as a whole.
func ofOneRoot(err error) bool {
	l := finding.Of(err)
	return len(l) == 1 && slices.Contains([]string{CodeNoBlob, CodeWrongBlob, CodeNoSpace}, l[0].Code)
}

// copyRoot copies what a root needs from another depot, and stores the root. progress gets the number of bytes stored so far.
func (s *Store) copyRoot(ctx context.Context, c *Client, r Root, progress func(done, total int64)) error {
	blobs, err := needs(r, func(d v1.Descriptor, into any) error {
		if err := s.copyBlob(ctx, c, d.Digest, d.Size); err != nil {
			return err
		}
		return s.read(ctx, d.Digest, into)
	})
	if err != nil {
		return err
	}
	var done, total, absent int64
	for h, size := range blobs {
		if total += size; !s.has(h) {
			absent += size
		}
	}
	if absent > 0 { // a removed root needs no space
		if err := s.room(absent); err != nil {
			return err
		}
	}
	for h, size := range blobs {
		if err := s.copyBlob(ctx, c, h, size); err != nil {
			return err
		}
		done += size
		progress(done, total)
	}
	return s.SetRoot(ctx, r)
}

// needs returns the blobs of another depot's root, with their sizes. read reads a manifest.
func needs(r Root, read func(d v1.Descriptor, into any) error) (map[v1.Hash]int64, error) {
	out := lists.Index(slices.Collect(maps.Values(r.Files)), File.digestAndSize)
	for _, d := range r.Images {
		if err := below(d, read, r.Whole, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// below adds a manifest and what it needs; of an index, all manifests or only those that the other depot has, see Root.Whole.
func below(d v1.Descriptor, read func(d v1.Descriptor, into any) error, all bool, out map[v1.Hash]int64) error {
	if _, known := out[d.Digest]; known {
		return nil
	}
	var m manifests
	if err := read(d, &m); err != nil {
		return err
	}
	out[d.Digest] = d.Size
	for _, child := range m.Manifests {
		if err := below(child, read, all, out); err != nil && (all || !lacks(err)) {
			return err
		}
	}
	if d.MediaType.IsIndex() {
		return nil
	}
	for _, b := range append(m.Layers, m.Config) {
		out[b.Digest] = b.Size
	}
	return nil
}

// lacks reports whether an error says that the other depot lacks a blob.
func lacks(err error) bool {
	l := finding.Of(err)
	return len(l) == 1 && l[0].Code == CodeNoBlob
}

func (s *Store) copyBlob(ctx context.Context, c *Client, h v1.Hash, size int64) error {
	if s.has(h) {
		return nil
	}
	in := c.Open(ctx, h)
	return errors.Join(s.Put(ctx, h, size, in), in.Close())
}
