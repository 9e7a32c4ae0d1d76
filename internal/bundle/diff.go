// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"slices"
)

// Change is a file or image that differs between two bundles.
type Change struct {
	// Kind is "file" or "image", Change "added", "removed" or "changed".
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Change string `json:"change"`
	// Size is the size in the newer bundle, or of the removed item.
	Size int64 `json:"size"`
}

// Difference lists the differences between two bundles.
type Difference struct {
	Changes []Change `json:"changes"`
	// Size is how many bytes of the newer bundle a bundle made since the older one would hold.
	Size int64 `json:"size"`
}

// Diff compares two bundles for their chosen platforms.
func Diff(older, newer *Bundle) Difference {
	d := Difference{Changes: []Change{}}
	type thing struct {
		digest string
		size   int64
	}
	things := func(b *Bundle) map[[2]string]thing {
		out := map[[2]string]thing{}
		for _, f := range b.contents.Files {
			out[[2]string{"file", f.Path}] = thing{f.Digest, f.Size}
		}
		for _, i := range b.contents.Images {
			out[[2]string{"image", i.Name}] = thing{i.Digest, i.Size}
		}
		return out
	}
	before, after := things(older), things(newer)
	for key, is := range after {
		was, ok := before[key]
		switch {
		case !ok:
			d.Changes = append(d.Changes, Change{key[0], key[1], "added", is.size})
		case was.digest != is.digest:
			d.Changes = append(d.Changes, Change{key[0], key[1], "changed", is.size})
		}
	}
	for key, was := range before {
		if _, ok := after[key]; !ok {
			d.Changes = append(d.Changes, Change{key[0], key[1], "removed", was.size})
		}
	}
	slices.SortFunc(d.Changes, func(a, b Change) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	for h := range newer.needs() {
		if !older.Has(h) {
			d.Size += newer.blobs[h].size
		}
	}
	return d
}
