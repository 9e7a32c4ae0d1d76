// SPDX-License-Identifier: Apache-2.0

// Package machine runs the lab's machines: containers that run systemd, with an address on one bridge and a disk that survives a restart. Software on
// them sees fresh Debian nodes. The package is independent of Kubernetes and ocadm. It is not a container engine: it serves only the lab and the
// end-to-end tests.
package machine
