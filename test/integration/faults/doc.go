// SPDX-License-Identifier: Apache-2.0

// Package faults tests what the operator does when something fails: itself, the API server, the database, the identity service, or a user. etcd,
// kube-apiserver, MariaDB and the code of the stand-ins are real. But the stand-ins play in this process (package instant) and workloads are
// Available immediately (harness.Kubelet), so a cloud is ready in a second and can be created hundreds of times.
package faults
