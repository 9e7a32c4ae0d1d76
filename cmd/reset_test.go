// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// A reset of a machine that never was a node does not claim that it was one.
func TestResetOfNoNode(t *testing.T) {
	for recorded, want := range map[bool]string{false: "This machine is not a node", true: "This machine is no longer a node"} {
		cfg := config.Default()
		h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
		require.NoError(t, err)
		var said bytes.Buffer
		a := newApp(Streams{Out: &said, Err: &said})
		of := new(resetting)
		if recorded {
			require.NoError(t, h.Files.WriteFile("/etc/ocadm/kubeadm.yaml", nil, 0o600))
		}
		h.Config.Run.Force, h.Config.Run.AbandonEtcd = true, true
		require.NoError(t, of.confirm(t.Context(), a, h))
		require.NoError(t, h.Ledger.ForgetAll(h.Ledger.Created()))
		if err := of.finish(t.Context(), a, h, runFlags{output: ui.NewFormat("text", "jsonl")}); err != nil || !strings.Contains(said.String(), want) {
			t.Errorf("%v, said %q, want %q", err, said.String(), want)
		}
	}
}

// A reset keeps the link that puts ocadm's directory on another disk.
func TestResetKeepsTheLinkToADisk(t *testing.T) {
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	dir, disk := h.Files.Path(host.StateDir), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Symlink(disk, dir))
	require.NoError(t, h.Files.WriteFile("/etc/ocadm/kubeadm.yaml", nil, 0o600))
	require.NoError(t, h.Ledger.ForgetAll(h.Ledger.Created()))
	require.NoError(t, new(resetting).finish(t.Context(), newApp(Streams{Err: new(bytes.Buffer)}), h, runFlags{quiet: true, output: ui.NewFormat("text", "jsonl")}))
	left, err := os.ReadDir(disk)
	if to, lerr := os.Readlink(dir); err != nil || lerr != nil || to != disk || len(left) > 0 {
		t.Errorf("the link leads to %q (%v), with %v (%v)", to, lerr, left, err)
	}
}

// A reset that leaves files to be restored, because phases were skipped, keeps their backups.
func TestPartialResetKeepsRecords(t *testing.T) {
	const theirs, text = "/etc/containerd/config.toml", "# theirs\n"
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	plain := host.Files{Root: h.Files.Root}
	require.NoError(t, plain.WriteFile(theirs, []byte(text), 0o644))
	require.NoError(t, h.Files.WriteFile(theirs, []byte("# ours\n"), 0o644))
	require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindData, Name: "/var/lib/containerd", Op: host.Created}))
	var said bytes.Buffer
	f := runFlags{output: ui.NewFormat("text", "jsonl")}
	f.run.SkipPhases = []string{"undo-files", "residue"}
	if err := new(resetting).finish(t.Context(), newApp(Streams{Out: &said, Err: &said}), h, f); err != nil || said.Len() > 0 {
		t.Errorf("%v, said %q", err, said.String())
	}
	e, _ := h.Ledger.Get(host.KindFile, theirs)
	if err := h.Files.Undo(e); err != nil || h.Files.Text(theirs) != text {
		t.Errorf("restored %q, %v", h.Files.Text(theirs), err)
	}
}
