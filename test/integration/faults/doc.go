// SPDX-License-Identifier: Apache-2.0

// Package faults shows what the operator does when something fails: it, the API server, the database, the identity service, or a
// person. etcd, kube-apiserver and MariaDB are real, and so are the stand-ins' programs, but they play in this process (package
// instant) and workloads are Available at once (harness.Kubelet), so that a cloud is there in a second and can be made hundreds of times.
package faults
