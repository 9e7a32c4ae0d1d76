// SPDX-License-Identifier: Apache-2.0

// Package integration runs the operator against a real etcd, kube-apiserver and MariaDB. Each test creates its own cloud. In most tests package
// instant plays the services. Tests that need real starts, crashes or files run them as programs (package pods).
package integration
