// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/registry"
)

// Want is an image that a node has asked for and that the depot will copy.
type Want struct {
	// Image is its full name with a tag or a digest.
	Image string `json:"image"`
	// Since is the time of the first request, Next the time of the next try, and Tries the number of failures.
	Since time.Time `json:"since"`
	Next  time.Time `json:"next"`
	Tries int       `json:"tries,omitempty"`
	// Why is the last error.
	Why string `json:"why,omitempty"`

	busy bool
}

const (
	// maxWants bounds the list: a node may ask for anything.
	maxWants = 512
	// copyTries is how often an image is tried. A new request of a node starts over.
	copyTries = 8
	// copyPause is the pause before the second try. It doubles up to maxCopyPause.
	copyPause    = time.Minute
	maxCopyPause = time.Hour
	// fullPause is how long copying pauses when the disk is too full.
	fullPause = 10 * time.Minute
)

// after returns a want as it is after a failed try; false means that it is given up.
func (w Want) after(err error, now time.Time) (Want, bool) {
	w.Why, w.busy = err.Error(), false
	var refused *registry.Error
	switch found := finding.Of(err); {
	case now.Sub(w.Since) > keptFor:
		return w, false
	case len(found) == 1 && found[0].Code == CodeNoSpace:
		w.Next = now.Add(fullPause)
		return w, true
	case errors.As(err, &refused) && refused.Kind == registry.Missing:
		return w, false
	}
	w.Tries++
	w.Next = now.Add(min(copyPause<<(w.Tries-1), maxCopyPause))
	return w, w.Tries < copyTries
}

// due returns the want that has been due longest, and how long until the next one is. Only one image of a repository is copied at a time, tags first:
// a pull by tag also asks for the digests that the tag leads to, and these are copied with the tag.
func due(wants map[string]Want, now time.Time) (Want, time.Duration) {
	busy, tagged := map[string]bool{}, map[string]bool{}
	for _, w := range wants {
		name, byDigest := w.repository()
		busy[name] = busy[name] || w.busy
		tagged[name] = tagged[name] || !byDigest
	}
	var first Want
	pause := maxCopyPause
	for _, w := range wants {
		name, byDigest := w.repository()
		if busy[name] || byDigest && tagged[name] {
			continue
		}
		if wait := w.Next.Sub(now); wait > 0 {
			pause = min(pause, wait)
		} else if first.Image == "" || cmp.Or(w.Next.Compare(first.Next), w.Since.Compare(first.Since), strings.Compare(w.Image, first.Image)) < 0 {
			first = w
		}
	}
	return first, pause
}

func (w Want) repository() (name string, byDigest bool) {
	ref := images.Split(w.Image)
	return ref.Repository, ref.Digest != ""
}

// local reports whether an image belongs to a registry on the requesting machine itself: that is a different one on every machine.
func local(image string) bool {
	host, _, _ := strings.Cut(image, "/")
	host = strings.TrimPrefix(host, "[")
	return host == "localhost" || strings.HasPrefix(host, "localhost:") || strings.HasPrefix(host, "127.") || strings.HasPrefix(host, "::1]")
}

func (s *Store) wantsFile() string { return filepath.Join(s.dir, "wanted.json") }

// Wants returns the images that the serving process will copy, oldest request first. It is empty for a depot that copies nothing.
func (s *Store) Wants() ([]Want, error) {
	raw, err := os.ReadFile(s.wantsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []Want
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of images to copy: %w", err)
	}
	return list, nil
}

// setWants saves the wants, for a restart and for Status.
func (s *Store) setWants(wants map[string]Want) error {
	list := slices.AppendSeq([]Want{}, maps.Values(wants))
	slices.SortFunc(list, func(a, b Want) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Image, b.Image)) })
	if err := s.placeJSON(s.wantsFile(), list); err != nil {
		return fmt.Errorf("saving the list of images to copy: %w", err)
	}
	return nil
}
