// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
)

// Releases bounds the releases of the cloud that have a component. Both ends are optional.
type Releases struct {
	// First is the first release with the component: "v3.10.2".
	First string
	// Last is the last line of releases with it: "v3.10" covers v3.10.16.
	Last string
}

// OlderTag is the tag of a third-party image in releases up to and including the line Until: {"v3.11", "v1.0.7"}.
type OlderTag struct{ Until, Tag string }

// release is a version of the cloud as numbers. Suffixes do not count: upstream tags hot fixes of v4.0.3 as v4.0.3-20260602.0, which
// semantic versioning would place before v4.0.3.
type release struct{ major, minor, patch int }

var releasePattern = regexp.MustCompile(`^v?(\d+)\.(\d+)(?:\.(\d+))?(?:-.*)?$`)

// parseRelease reads a version of the cloud. A tag that names no release ("latest", "lzx-dev") is ok false: it counts as newer than
// every release.
func parseRelease(version string) (r release, ok bool) {
	m := releasePattern.FindStringSubmatch(version)
	if m == nil {
		return release{}, false
	}
	numbers := make([]int, 3)
	for i, digits := range m[1:] {
		if digits == "" {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			return release{}, false
		}
		numbers[i] = n
	}
	return release{numbers[0], numbers[1], numbers[2]}, true
}

func (r release) compare(other release) int {
	return cmp.Or(cmp.Compare(r.major, other.major), cmp.Compare(r.minor, other.minor), cmp.Compare(r.patch, other.patch))
}

// after reports whether the version is of a later line of releases than line ("v3.10").
func after(version, line string) bool {
	v, ok := parseRelease(version)
	if !ok {
		return true
	}
	last, _ := parseRelease(line)
	return cmp.Or(cmp.Compare(v.major, last.major), cmp.Compare(v.minor, last.minor)) > 0
}

// Before reports whether a version of the cloud is older than the release first.
func Before(version, first string) bool {
	v, ok := parseRelease(version)
	f, _ := parseRelease(first)
	return ok && v.compare(f) < 0
}

// Lacks returns why a version of the cloud does not have the component, "" if it does.
func (r Releases) Lacks(version string) string {
	switch {
	case r.First != "" && Before(version, r.First):
		return fmt.Sprintf("not in release %s: first in %s", version, r.First)
	case r.Last != "" && after(version, r.Last):
		return fmt.Sprintf("not in release %s: last in %s", version, r.Last)
	}
	return ""
}

// TagFor returns the fixed tag of a third-party image in a version of the cloud, "" if it has the version's own tag.
func (i Image) TagFor(version string) string {
	for _, older := range i.Older {
		if !after(version, older.Until) {
			return older.Tag
		}
	}
	return i.Tag
}
