// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestDisaster creates a cloud with users, images and a compute node, copies a backup out of it, and removes every machine and the database server.
// It restores the cloud from ocadm, the bundle, the backup file and its key, on machines with other names, in another network, with another database
// server. It prints the time until every component is Available and the same user has logged in.
func TestDisaster(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_DISASTER") == "" {
		t.Skip("make disaster runs it: it takes minutes")
	}
	log := logf(t)
	ocadm, bundle, err := scenario.Build(t.Context(), repository, version, "", log)
	require.NoError(t, err)
	options := machine.Options{Nodes: 2, Ocadm: ocadm, Bundle: bundle, Logf: log}
	saved := t.TempDir()
	_, key := agekey.Write(t, saved)
	lost := newSuite(t, up(t, options))
	was := lost.built(t)
	file := lost.saved(t, key.Recipient().String(), saved)
	// The new machines exist before the old ones are removed, so their network differs.
	options.Name, options.Hostname = "-new", "spare"
	s := newSuite(t, up(t, options))
	if s.Lab.Subnet() == lost.Lab.Subnet() {
		t.Fatalf("the new machines are in the network %s of the old ones", s.Lab.Subnet())
	}
	require.NoError(t, lost.Lab.Down(t.Context()))
	require.NoError(t, lost.db.Close())
	s.comeBack(t, was, filepath.Join(saved, file), filepath.Join(saved, "key.txt"))
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// kept holds what the restored cloud must contain.
type kept struct {
	account scenario.Account
	image   string
	admin   string
}

// built creates a cloud with an external database, a compute node, a user and an image.
func (s *suite) built(t *testing.T) (c kept) {
	t.Helper()
	ctx := t.Context()
	var err error
	if s.db, err = mariadb.Start(ctx, t.TempDir(), mariadb.Options{Addr: s.Lab.Host().String() + ":0"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() }) // the test has closed it, or failed
	require.NoError(t, s.Init(ctx, append(s.database(t, 1), "--onecloud-version", version)...))
	require.NoError(t, s.Join(ctx, 2))
	s.agentsReady(t)
	session, err := s.Session(ctx)
	require.NoError(t, err)
	if c.account, err = session.AddAccount(ctx, "alice", "research", "alices password"); err != nil {
		t.Fatal(err)
	}
	image, err := session.Upload(ctx, "golden", []byte(strings.Repeat("an image ", 1<<10)))
	require.NoError(t, err)
	vars, err := s.RCAdmin(ctx)
	require.NoError(t, err)
	c.image, c.admin = image.ID, vars["OS_PASSWORD"]
	return c
}

// saved makes a backup, copies it from the machine and returns its name.
func (s *suite) saved(t *testing.T, recipient, dir string) string {
	t.Helper()
	ctx := t.Context()
	out, err := s.On(ctx, 1, scenario.Ocadm, "cluster", "backup", "create", "--to", "/root", "--recipient", recipient, "-o", "json")
	require.NoError(t, err)
	var list []struct {
		Name   string
		Proven time.Time
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Proven.IsZero() {
		t.Fatalf("backup create: %s, %v", out, err)
	}
	name := list[0].Name
	require.NoError(t, s.Lab.Node(1).CopyOut(ctx, "/root/"+name, filepath.Join(dir, name)))
	return name
}

// comeBack restores the cloud on the first machine, and joins the second one as a compute node.
func (s *suite) comeBack(t *testing.T, was kept, file, key string) {
	t.Helper()
	ctx := t.Context()
	begun := time.Now()
	const at = "/root/cloud.ocadm-backup"
	for from, to := range map[string]string{file: at, key: "/root/key.txt"} {
		require.NoError(t, s.Lab.Node(1).CopyIn(ctx, from, to))
	}
	if err := s.Init(ctx, "--restore-from", at, "--identity", "/root/key.txt"); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	require.NoError(t, s.AllAvailable(ctx))
	token, err := s.LoginAs(ctx, was.account.User, was.account.Password)
	require.NoError(t, err)
	t.Logf("from ocadm, bundle and backup file to all components Available and the same user logged in: %.1f s (goal: 180 s on an idle machine)", time.Since(begun).Seconds())
	session, err := s.Session(ctx)
	require.NoError(t, err)
	account, err := session.Whose(ctx, token)
	if account.Password = was.account.Password; err != nil || account != was.account {
		t.Errorf("logged in as %+v, was %+v (%v)", account, was.account, err)
	}
	if images, err := session.Images(ctx); err != nil || images[was.image] != "golden" {
		t.Errorf("images %v, want %s (%v)", images, was.image, err)
	}
	if vars, err := s.RCAdmin(ctx); err != nil || vars["OS_PASSWORD"] != was.admin {
		t.Errorf("the administrator has another password (%v)", err)
	}
	if err := s.Init(ctx, "--restore-from", at, "--identity", "/root/key.txt"); err != nil {
		t.Errorf("init again: %v", err)
	}
	require.NoError(t, s.Join(ctx, 2))
	s.agentsReady(t)
}

// agentsReady waits until the host agent of the compute node is ready, which requires its registration with the identity service and region.
func (s *suite) agentsReady(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := wait.Until(ctx, "the host agent", time.Second, func(ctx context.Context) (bool, string, error) {
		out, err := s.Kubectl(ctx, "-n", "onecloud", "get", "pods", "-l", "app.kubernetes.io/component=host", "-o",
			`jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return strings.TrimSpace(out) == "True", "ready: " + out, err
	}, func(string) {})
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
}
