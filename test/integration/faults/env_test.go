// SPDX-License-Identifier: Apache-2.0

// Package faults tests what the operator does when something fails: itself, the API server, the database, the identity service, or a user. etcd,
// kube-apiserver, MariaDB and the code of the stand-ins are real. But the stand-ins play in this process (package instant) and workloads are
// Available immediately (harness.Kubelet), so a cloud is ready in a second and can be created hundreds of times.
package faults

import (
	"context"
	"net"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

const (
	namespace = env.Namespace
	cloud     = env.Name
)

// faulty is an environment in which the operator's connections can be broken. Its methods take the test or subtest that waits.
type faulty struct {
	*env.Env
	root *mysql.Admin
	// dial, if set, is the dialer of the next operator for the API server.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// streams, if set, holds the watches of the next operator.
	streams *streams
}

func TestMain(m *testing.M) { env.Main(m) }

// use returns an environment without a cloud.
func use(t *testing.T) *faulty {
	t.Helper()
	e := env.New(t, env.Options{})
	return &faulty{Env: e, root: e.Admin(e.DB)}
}

// minimal returns a small cloud.
func (w *faulty) minimal() *v1alpha1.OnecloudCluster { return w.Only(env.Small...) }

// passes returns the number of finished reconciles of this process's operators, and reports whether one is running.
func passes(t testing.TB) (ended float64, busy bool) {
	t.Helper()
	ended, busy, err := harness.Passes()
	require.NoError(t, err)
	return ended, busy
}
