// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of ocadm and of what it was built to install.
package version

// Version and Commit are set by the linker ("-X yunion.io/x/ocadm/internal/version.Version=v0.1.0"), as the Makefile does with what
// scripts/version.sh prints. A plain "go build" leaves them as they are.
var (
	Version = "v0.0.0-dev"
	Commit  = ""
)

// Kubernetes is the version of Kubernetes that this ocadm links and installs; it equals the k8s.io/kubernetes requirement of go.mod
// (scripts/pin-k8s.sh sets both, a test compares).
const Kubernetes = "v1.36.3"

// CloudReleases are the lines of OneCloud releases that this ocadm installs, the oldest first. The catalogue knows the components and image
// tags of each; operatorctl/resolve tests a release of every line.
func CloudReleases() []string {
	return []string{"v3.1", "v3.4", "v3.6", "v3.7", "v3.8", "v3.9", "v3.10", "v3.11", "v4.0"}
}
