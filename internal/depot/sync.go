// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
)

// Follow takes over what the depots of other control-plane nodes have, again and again until ctx ends. peers finds them.
func (s *Store) Follow(ctx context.Context, every time.Duration, peers func(context.Context) ([]*Client, error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		list, err := peers(ctx)
		if err != nil && ctx.Err() == nil {
			slog.Warn("the depot does not find those of other control-plane nodes", "err", err)
		}
		for _, c := range list {
			changed, err := s.Sync(ctx, c)
			if err != nil && ctx.Err() == nil {
				slog.Warn("the depot does not follow another one", "address", c.address, "err", err)
			}
			for _, name := range changed {
				slog.Info("the depot has taken over a root", "address", c.address, "root", name)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sync takes over the roots of which another depot has a newer version than this one, and those that it has removed. It returns their names. What was
// interrupted goes on with the blobs that are missing. A root that the other depot has not in full, or that does not fit, does not keep it from the rest.
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
		if i >= 0 && !r.newer(ours[i]) || i < 0 && r.removed() {
			continue
		}
		if one := s.Storing(ctx, func() error { return s.copyRoot(ctx, c, r) }); one != nil {
			if err = errors.Join(err, fmt.Errorf("taking over the root %s: %w", r.Name, one)); !ofOneRoot(one) {
				return changed, err
			}
			continue
		}
		changed = append(changed, r.Name)
	}
	return changed, err
}

// ofOneRoot reports whether an error is of the root that is copied, and not of everything that the other depot is asked for.
func ofOneRoot(err error) bool {
	l := finding.Of(err)
	return len(l) == 1 && slices.Contains([]string{CodeNoBlob, CodeWrongBlob, CodeNoSpace}, l[0].Code)
}

func (s *Store) copyRoot(ctx context.Context, c *Client, r Root) error {
	for _, f := range r.Files {
		if err := s.copyBlob(ctx, c, f.Digest, f.Size); err != nil {
			return err
		}
	}
	for _, d := range r.Images {
		if err := s.copyManifest(ctx, c, d); err != nil {
			return err
		}
	}
	return s.SetRoot(ctx, r)
}

// copyManifest copies a manifest and what it needs, and of an index what the other depot has.
func (s *Store) copyManifest(ctx context.Context, c *Client, d v1.Descriptor) error {
	if err := s.copyBlob(ctx, c, d.Digest, d.Size); err != nil {
		return err
	}
	raw, err := s.document(ctx, d.Digest)
	if err != nil {
		return err
	}
	var m manifests
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("reading the manifest %s: %w", d.Digest, err)
	}
	if !d.MediaType.IsIndex() {
		for _, b := range append(m.Layers, m.Config) {
			if err := s.copyBlob(ctx, c, b.Digest, b.Size); err != nil {
				return err
			}
		}
	}
	for _, child := range m.Manifests {
		var status *fetch.StatusError
		if err := s.copyManifest(ctx, c, child); err != nil && !(errors.As(err, &status) && status.Code == http.StatusNotFound) {
			return err
		}
	}
	return nil
}

func (s *Store) copyBlob(ctx context.Context, c *Client, h v1.Hash, size int64) error {
	if s.has(h) {
		return nil
	}
	in := c.Open(ctx, h)
	return errors.Join(s.Put(ctx, h, size, in), in.Close())
}
