// SPDX-License-Identifier: Apache-2.0

package mariadb

import (
	"context"
	"errors"
	"os"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// Require starts a server for one test and closes it at its end. Without mariadbd the test is skipped, or fails with OCADM_TEST_REQUIRE=1.
func Require(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), shortTempDir(t), o)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stopping MariaDB: %v", err)
		}
	})
	return s
}

// Main is the body of a TestMain whose tests share one server. run gets the server, or nil if it is neither installed nor required.
func Main(ctx context.Context, o Options, run func(*Server) int) int {
	dir, err := os.MkdirTemp("", "ocadm-db-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := Start(ctx, dir, o)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		return run(nil)
	}
	if err != nil {
		panic(err)
	}
	defer s.Close()
	return run(s)
}

// shortTempDir returns a short path: a Unix socket's path has at most about a hundred characters, and t.TempDir's may be longer.
func shortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ocadm-db-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
