// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"testing"

	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// A reset that leaves files to be restored, because phases were skipped, keeps their backups.
func TestPartialResetKeepsRecords(t *testing.T) {
	const theirs, text = "/etc/containerd/config.toml", "# theirs\n"
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	if err != nil {
		t.Fatal(err)
	}
	plain := host.Files{Root: h.Files.Root}
	if err := plain.WriteFile(theirs, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := h.Files.WriteFile(theirs, []byte("# ours\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := h.Ledger.Record(host.Entry{Kind: host.KindData, Name: "/var/lib/containerd", Op: host.Created}); err != nil {
		t.Fatal(err)
	}
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
