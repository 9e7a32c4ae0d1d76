// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// etcdSnapshot saves a snapshot on the only control-plane node.
func (s *suite) etcdSnapshot(t *testing.T) string {
	t.Helper()
	out, err := s.On(t.Context(), 1, scenario.Ocadm, "etcd", "snapshot", "-o", "json")
	var info struct{ File string }
	if err == nil {
		err = json.Unmarshal([]byte(out), &info)
	}
	require.NoError(t, err)
	return info.File
}

// etcdGoesBack restores a snapshot from before the promotion: the server promoted since then stays the primary, and the cloud waits for a user.
func (s *suite) etcdGoesBack(t *testing.T, file, primary string, w *projectWriter) {
	ctx := t.Context()
	w.mark()
	s.timed(t, "etcd restore to before the promotion", "etcd", "restore", file, "--yes")
	if _, err := s.On(ctx, 2, "systemctl", "restart", "kubelet"); err != nil {
		t.Fatal(err)
	}
	var paused string
	err := wait.Until(ctx, "the API server", 2*time.Second, func(ctx context.Context) (bool, string, error) {
		var err error
		paused, err = s.Kubectl(ctx, "-n", "onecloud", "get", "onecloudclusters", "default", "-o", `jsonpath={.metadata.annotations.onecloud\.yunion\.io/paused}`)
		return err == nil, "", nil
	}, func(string) {})
	if err != nil || paused != "true" {
		t.Errorf("the cloud is paused: %q, %v", paused, err)
	}
	s.inSync(t, primary)
	w.untilWorks(t)
	t.Logf("etcd went back: %s", w.outage())
	s.timed(t, "start the paused cloud", "cluster", "start", "--wait")
}
