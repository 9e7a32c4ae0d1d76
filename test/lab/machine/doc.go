// SPDX-License-Identifier: Apache-2.0

// Package machine runs the lab's machines: containers with systemd as their first process, an address of their own on one
// bridge and a disk that survives a restart. To what runs on them they are fresh Debian nodes. It knows nothing of
// Kubernetes or of ocadm, and it is no container engine: it serves the lab and the end-to-end tests only.
package machine
