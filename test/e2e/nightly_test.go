// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// nightly runs the pod of the nightly backup once. Beside the proven backup is a snapshot of etcd that a restore accepts only with the key.
func (s *suite) nightly(t *testing.T) {
	ctx := t.Context()
	local, key := agekey.Write(t, t.TempDir())
	require.NoError(t, s.Lab.Node(1).CopyIn(ctx, local, "/root/key.txt"))
	defer func() { s.must(t, "rm", "/root/key.txt") }() // after reset, nothing may be new
	s.must(t, scenario.Ocadm, "etcd", "snapshot")       // the first scheduled one may be an hour away
	s.must(t, scenario.Ocadm, "cluster", "backup", "schedule", "--at", "@yearly", "--recipient", key.Recipient().String())
	defer func() { s.must(t, scenario.Ocadm, "cluster", "backup", "schedule", "--off") }()
	s.until(t, "component backup", func(ctx context.Context) (bool, string, error) {
		out, err := s.Kubectl(ctx, "-n", "onecloud", "get", "cronjobs", "-o", "name")
		return strings.Contains(out, "backup"), "it has no CronJob", err
	})
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "annotate", "oc", "default", "onecloud.yunion.io/operation=Backup")
	var list []struct {
		Name, Place, Error string
		Proven             time.Time
		Etcd               struct{ Name, Problem string }
	}
	s.until(t, "the backup", func(ctx context.Context) (bool, string, error) {
		out, err := s.On(ctx, 1, scenario.Ocadm, "cluster", "backup", "list", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &list)
		}
		return len(list) > 0, "there is none", err
	})
	b := list[0]
	if b.Proven.IsZero() || b.Etcd.Name == "" {
		t.Fatalf("the backup: %+v", b)
	}
	file := strings.TrimSpace(s.must(t, "sh", "-c", "ls /opt/local-path-provisioner/*default-backup/"+b.Etcd.Name))
	s.refused(t, 1, "OCA-7404", "etcd", "restore", file, "--dry-run")
	if out := s.must(t, scenario.Ocadm, "etcd", "restore", file, "--identity", "/root/key.txt", "--dry-run", "-o", "json"); !strings.Contains(out, b.Etcd.Name) {
		t.Errorf("etcd restore --dry-run of %s: %s", file, out)
	}
}
