// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/registry"
)

// Upstream copies images that nodes ask for and the depot lacks from their registries, in the background: the node that asks first pulls from the
// registry, later ones find the image here.
type Upstream struct {
	// Registries returns a client with this node's current registry settings.
	Registries func() (registry.Client, error)
	// Fetcher sets retries and timeouts of downloads.
	Fetcher fetch.Fetcher

	store    *Store
	arch     string
	now      func() time.Time
	wake     chan struct{}
	checking singleflight.Group

	checked *cache.LRUExpireCache // the last check, by image

	mu    sync.Mutex
	wants map[string]Want
}

// check is the answer of a registry about a tag.
type check struct {
	at     time.Time
	digest v1.Hash
	err    error
}

const (
	// headStart is the time that a node has before the depot starts to download the same image.
	headStart = 10 * time.Second
	// copiers is the number of images copied concurrently.
	copiers = 2
	// checkedFor is how long the answer about a tag is valid: nodes that pull together cause a single request. After an error the registry is left
	// alone for longer, because each request may take checkTimeout.
	checkedFor       = 15 * time.Second
	checkedForFailed = time.Minute
	checkTimeout     = 5 * time.Second
	maxChecks        = 4096
)

// NewUpstream makes a store copy what it lacks. Run also copies what an earlier process left.
func NewUpstream(s *Store, registries func() (registry.Client, error)) *Upstream {
	u := &Upstream{
		Registries: registries, store: s, arch: runtime.GOARCH, now: time.Now, wake: make(chan struct{}, 1), wants: map[string]Want{},
		checked: cache.NewLRUExpireCache(maxChecks),
	}
	list, err := s.Wants()
	if err != nil {
		slog.Warn("the depot lost its list of images to copy", "err", err)
	}
	for _, w := range list {
		u.wants[w.Image] = w
	}
	s.Upstream = u
	if err := s.setWants(u.wants); err != nil { // the disk may be full, and what the depot has is needed nevertheless
		slog.Warn("the depot cannot save its list of images to copy", "err", err)
	}
	return u
}

// Run copies until ctx ends.
func (u *Upstream) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, copiers)
	for {
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		w, pause := u.take()
		if w.Image != "" {
			running.Go(func() {
				defer func() { <-slots }()
				u.finish(ctx, w, u.copy(ctx, w.Image))
			})
			continue
		}
		<-slots
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-u.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take returns the next image to copy.
func (u *Upstream) take() (Want, time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	w, pause := due(u.wants, u.now())
	if w.Image != "" {
		w.busy = true
		u.wants[w.Image] = w
	}
	return w, pause
}

func (u *Upstream) finish(ctx context.Context, w Want, err error) {
	if ctx.Err() != nil { // the next process continues
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.wants, w.Image)
	if err == nil {
		slog.Info("the depot has copied an image", "image", w.Image)
	} else if next, again := w.after(err, u.now()); again {
		u.wants[w.Image] = next
		slog.Warn("the depot has not copied an image yet", "image", w.Image, "err", err, "again", next.Next)
	} else {
		slog.Warn("the depot no longer tries to copy an image", "image", w.Image, "err", err)
	}
	u.changed()
}

// changed wakes Run and saves the list. The caller holds the lock.
func (u *Upstream) changed() {
	if err := u.store.setWants(u.wants); err != nil {
		slog.Warn("the depot cannot save its list of images to copy, and would lose it at a restart", "err", err)
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// want records an image that a node has asked for and that the depot lacks.
func (u *Upstream) want(image string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.wants[image]; known || len(u.wants) >= maxWants {
		return
	}
	u.wants[image] = Want{Image: image, Since: u.now(), Next: u.now().Add(headStart)}
	u.changed()
}

// asked records a node's request, and reports whether the depot serves it. d is the depot's descriptor, if ok. The node pulls from the registry if
// the depot lacks the image, or if its copy no longer matches the registry.
func (u *Upstream) asked(ctx context.Context, t target, c joined, d v1.Descriptor, ok bool) bool {
	image := t.name + ":" + t.tag
	if t.tag == "" {
		image = t.name + "@" + t.digest.String()
	}
	if local(t.name) {
		return ok
	}
	root := c.pulled[image]
	if ok && u.store.has(d.Digest) && (root == "" || t.tag == "" || u.current(ctx, image, d.Digest)) {
		if root == "" {
			return true
		}
		if err := u.store.askedFor(ctx, root, u.now()); err != nil {
			slog.Warn("the depot cannot note that an image is in use", "image", image, "err", err)
		}
		return true
	}
	u.want(image)
	return false
}

// current reports whether a copied image still matches its registry. If the registry does not answer, it does.
func (u *Upstream) current(ctx context.Context, image string, has v1.Hash) bool {
	c := u.ask(ctx, image)
	if c.err != nil {
		slog.Info("the depot serves a copy that it cannot compare with its registry", "image", image, "err", c.err)
	}
	return c.err != nil || c.digest == has
}

func (u *Upstream) ask(ctx context.Context, image string) check {
	last, _ := u.checked.Get(image)
	c, _ := last.(check)
	if age := u.now().Sub(c.at); age < checkedFor || c.err != nil && age < checkedForFailed {
		return c
	}
	v, _, _ := u.checking.Do(image, func() (any, error) {
		// The first client may leave; the others wait for the answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		var c check
		client, err := u.Registries()
		if err == nil {
			c.digest, err = client.Find(ctx, image)
		}
		c.at, c.err = u.now(), err
		u.checked.Add(image, c, checkedForFailed)
		return c, nil
	})
	return v.(check)
}
