// SPDX-License-Identifier: Apache-2.0

package nodefault

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/require"
)

// machine records commands; stop fails as systemctl does without the unit.
type machine struct {
	ran   []string
	begun error
	began chan struct{}
}

func (m *machine) Run(_ context.Context, c exec.Command) (exec.Result, error) {
	m.ran = append(m.ran, c.Path+" "+strings.Join(c.Args, " "))
	if c.Path == "systemctl" {
		return exec.Result{ExitCode: 5}, errors.New("not loaded")
	}
	if m.began != nil {
		close(m.began)
	}
	return exec.Result{}, m.begun
}

// node returns a root directory with etcd's manifest and process, and the process of a cloud's etcd.
func node(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"etc/kubernetes/manifests/etcd.yaml":    "spec:\n  containers:\n  - name: etcd\n    command: [etcd, --data-dir=/var/lib/etcd]\n",
		"proc/77/cmdline":                       "etcd\x00--data-dir=/var/lib/etcd\x00",
		"proc/78/cmdline":                       "etcd\x00--data-dir=/var/etcd/data\x00",
		"proc/79/cmdline":                       "",
		"proc/sys/net/ipv4/conf/all/arp_ignore": "1\n",
	} {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	return root
}

// Only the static pod's process is paused, the unit resumes it however it ends, and an earlier fault is ended first.
func TestPause(t *testing.T) {
	m := &machine{}
	require.NoError(t, (Fault{Kind: PauseEtcd, For: time.Millisecond, Root: node(t), Exec: m}).Run(t.Context()))
	if len(m.ran) != 3 || m.ran[0] != "systemctl stop "+Unit || m.ran[2] != m.ran[0] {
		t.Fatalf("%q", m.ran)
	}
	for _, want := range []string{"ExecStopPost=/bin/sh -c 'kill -CONT 77'", "kill -STOP 77; exec sleep", "RuntimeMaxSec=10"} {
		if !strings.Contains(m.ran[1], want) {
			t.Errorf("%q is not in %q", want, m.ran[1])
		}
	}
}

// Afterwards, the machine answers ARP as before.
func TestCut(t *testing.T) {
	s, err := Fault{Kind: CutNode, Root: node(t)}.scripts()
	if err != nil || !strings.HasSuffix(s.restore, "arp_ignore=1") || !strings.Contains(s.restore, "ip rule del from all blackhole pref 1;") {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{s.fault, s.restore} {
		if strings.ContainsAny(text, `'"%$\`) {
			t.Errorf("systemd would read a part of %q", text)
		}
	}
}

// The end of the context undoes the fault; a fault that failed to start is undone, too.
func TestEarlyEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &machine{began: make(chan struct{})}
	go func() {
		<-m.began
		cancel()
	}()
	if err := (Fault{Kind: PauseEtcd, For: time.Hour, Root: node(t), Exec: m}).Run(ctx); err != nil || len(m.ran) != 3 {
		t.Errorf("%q, %v", m.ran, err)
	}
	m = &machine{begun: errors.New("no systemd")}
	if err := (Fault{Kind: PauseEtcd, For: time.Hour, Root: node(t), Exec: m}).Run(t.Context()); err == nil || len(m.ran) != 3 {
		t.Errorf("%q, %v", m.ran, err)
	}
}

// Without the process there is nothing to break, and no command is run.
func TestNothingToBreak(t *testing.T) {
	m := &machine{}
	for _, k := range Kinds() {
		if k == CutNode || k == PauseEtcd {
			continue
		}
		if err := (Fault{Kind: k, Root: node(t), Exec: m}).Run(t.Context()); err == nil || len(m.ran) > 0 {
			t.Errorf("%s: %q, %v", k, m.ran, err)
		}
	}
	if got, err := processes(filepath.Join(node(t), "proc"), []string{"etcd"}); err != nil || slices.Contains(got, "77") {
		t.Errorf("%q, %v", got, err)
	}
}
