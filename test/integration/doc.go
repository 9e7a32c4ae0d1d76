// SPDX-License-Identifier: Apache-2.0

// Package integration runs the operator against a real etcd, kube-apiserver and MariaDB. Each test makes its own cloud: most let package
// instant play the services, those that need real starts, crashes or files run them as processes (package pods).
package integration
