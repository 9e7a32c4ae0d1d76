// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Releases is the range of cloud releases that include a component. Both ends are optional.
type Releases struct {
	// First is the first release with it: "v3.10.2".
	First string
	// Last is the last release line with it: "v3.10" covers v3.10.16.
	Last string
}

// OlderTag is the tag of a third-party image in releases up to and including the line Until: {"v3.11", "v1.0.7"}.
type OlderTag struct{ Until, Tag string }

// after reports whether a version is of a later release line than line ("v3.10"). A tag that is no release ("latest", "lzx-dev") counts as newer than
// every release. Suffixes do not count: upstream tags hot fixes of v4.0.3 as v4.0.3-20260602.0, which semantic versioning would place before v4.0.3.
func after(release, line string) bool {
	v, err := version.ParseGeneric(release)
	return err != nil || v.AtLeast(version.MustParseGeneric(line).AddMinor(1))
}

// Before reports whether a version of the cloud is older than the release first.
func Before(release, first string) bool {
	v, err := version.ParseGeneric(release)
	return err == nil && v.LessThan(version.MustParseGeneric(first))
}

// Lacks returns why a version of the cloud lacks the component, "" if it includes it.
func (r Releases) Lacks(release string) string {
	switch {
	case r.First != "" && Before(release, r.First):
		return fmt.Sprintf("not in release %s: first in %s", release, r.First)
	case r.Last != "" && after(release, r.Last):
		return fmt.Sprintf("not in release %s: last in %s", release, r.Last)
	}
	return ""
}

// TagFor returns the fixed tag of a third-party image for a version of the cloud, "" if the tag is that version.
func (i Image) TagFor(release string) string {
	for _, older := range i.Older {
		if !after(release, older.Until) {
			return older.Tag
		}
	}
	return i.Tag
}
