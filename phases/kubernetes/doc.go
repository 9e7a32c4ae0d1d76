// SPDX-License-Identifier: Apache-2.0

// Package kubernetes is the kubeadm wall: it renders kubeadm's configuration from ours, runs kubeadm phase by phase as a child of
// this program, checks what each phase left, and explains failures. Nothing outside this package (and the checks that preflight
// borrows) knows that kubeadm does the work. It installs no software on the node and applies no addon beyond kubeadm's own two.
package kubernetes
