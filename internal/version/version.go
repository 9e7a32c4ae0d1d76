// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of ocadm and of the software that it installs.
package version

import (
	"regexp"
	"slices"
)

// Version and Commit are set by the linker ("-X yunion.io/x/ocadm/internal/version.Version=v0.1.0"); the Makefile takes the values from
// scripts/version.sh. A plain "go build" leaves the defaults.
var (
	Version = "v0.0.0-dev"
	Commit  = ""
)

// Kubernetes is the Kubernetes version that this ocadm links and installs. It equals the k8s.io/kubernetes requirement in go.mod (scripts/pin-k8s.sh
// sets both, a test compares them).
const Kubernetes = "v1.36.3"

// CloudReleases returns the OneCloud release lines that this ocadm installs, oldest first. The catalogue lists the components and image tags of each;
// operatorctl/resolve tests a release of every line.
func CloudReleases() []string {
	return []string{"v3.1", "v3.4", "v3.6", "v3.7", "v3.8", "v3.9", "v3.10", "v3.11", "v4.0"}
}

var (
	complete   = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-.*)?$`)
	numbered   = regexp.MustCompile(`^v?([0-9]+\.[0-9]+)\.[0-9]+`)
	incomplete = regexp.MustCompile(`^v?[0-9]{1,2}(\.([0-9]+|[xX*]))?(\.[xX*])?$`)
)

// CloudHint returns how to correct a version of a cloud that is certainly a mistake, "" for others. Tags of other builds are valid: registries of users hold
// their own.
func CloudHint(tag string) string {
	switch {
	case complete.MatchString(tag):
		return "did you mean v" + tag + "?"
	case incomplete.MatchString(tag):
		return "give all three numbers, for example v4.0.3"
	case tag == "latest": // a rollback would find the same tag
		return "give a fixed version, for example v4.0.3: a cloud cannot return from a tag that moves"
	}
	return ""
}

// UnknownRelease reports whether a version belongs to a release line that this ocadm does not know: it would create only the components of those it
// knows. Tags that are not versions belong to none.
func UnknownRelease(tag string) bool {
	n := numbered.FindStringSubmatch(tag)
	return n != nil && !slices.Contains(CloudReleases(), "v"+n[1])
}
