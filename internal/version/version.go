// SPDX-License-Identifier: Apache-2.0

// Package version holds the version of ocadm and of what it was built to install.
package version

// Version is set by the linker ("-X yunion.io/x/ocadm/internal/version.Version=v0.1.0"); a plain "go build" leaves it at dev.
var Version = "v0.0.0-dev"

// Kubernetes is the version of Kubernetes that this ocadm links and installs; it equals the k8s.io/kubernetes requirement of go.mod
// (scripts/pin-k8s.sh sets both, a test compares).
const Kubernetes = "v1.36.3"
