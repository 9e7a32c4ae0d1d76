// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

func fake(t *testing.T, root string, dryRun bool) *Host {
	t.Helper()
	c := &config.Config{}
	c.Run.DryRun = dryRun
	h, err := Fake(t.Context(), root, c, &Recorder{})
	require.NoError(t, err)
	return h
}

// tree lists the files under root with their modes, except ocadm's own state.
func tree(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(p, root)
		if rel == StateDir {
			return fs.SkipDir
		}
		if !d.IsDir() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			rel += "=" + string(data)
		}
		out = append(out, rel)
		return nil
	})
	require.NoError(t, err)
	return out
}

func TestWriteIsRecordedAndReverted(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"etc", "var/lib"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/theirs"), []byte("before"), 0o640))
	before := tree(t, root)
	h := fake(t, root, false)
	for _, step := range []struct {
		name, data string
		want       bool
	}{
		{"/etc/ours/a", "1", true}, {"/etc/ours/a", "1", false}, {"/etc/ours/a", "2", true},
		{"/etc/theirs", "before", true}, // different mode
		{"/etc/theirs", "after", true}, {"/etc/theirs", "after", false},
	} {
		changed, err := h.Files.Write(step.name, []byte(step.data), 0o600)
		if err != nil || changed != step.want {
			t.Errorf("%s=%s: changed %v, %v; want %v", step.name, step.data, changed, err, step.want)
		}
	}

	// Another process undoes it.
	h = fake(t, root, false)
	for _, e := range h.Ledger.Created() {
		if err := h.Files.Undo(e); err != nil {
			t.Error(err)
		}
	}
	if d := cmp.Diff(before, tree(t, root)); d != "" {
		t.Errorf("after the undo (-want +got):\n%s", d)
	}
	if st, err := os.Stat(filepath.Join(root, "etc/theirs")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("mode of the restored file: %v, %v", st.Mode(), err)
	}
	if left := fake(t, root, false).Ledger.Created(); len(left) > 0 {
		t.Errorf("still in the ledger: %v", left)
	}
}

// A replaced symbolic link is one again after reset, also if it leads nowhere. The file that it leads to never changes.
func TestUndoRestoresALink(t *testing.T) {
	for _, there := range []bool{true, false} {
		h, err := Fake(t.Context(), t.TempDir(), &config.Config{}, &Recorder{})
		require.NoError(t, err)
		if there {
			require.NoError(t, (Files{Root: h.Files.Root}).WriteFile("/etc/real", []byte("theirs"), 0o644))
		}
		link := h.Files.Path("/etc/app.conf")
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("real", link)))
		require.NoError(t, h.Files.WriteFile("/etc/app.conf", []byte("ours"), 0o644))
		e, _ := h.Ledger.Get(KindFile, "/etc/app.conf")
		require.NoError(t, h.Files.Undo(e))
		if to, err := os.Readlink(link); err != nil || to != "real" || there && h.Files.Text("/etc/real") != "theirs" {
			t.Errorf("%t: it leads to %q, %v", there, to, err)
		}
	}
}

// If the backup of a replaced file is missing, reset says what to do, and succeeds after that.
func TestUndoWithoutTheCopy(t *testing.T) {
	const name = "/etc/app.conf"
	h, err := Fake(t.Context(), t.TempDir(), &config.Config{}, &Recorder{})
	require.NoError(t, err)
	require.NoError(t, (Files{Root: h.Files.Root}).WriteFile(name, []byte("theirs"), 0o644))
	require.NoError(t, h.Files.WriteFile(name, []byte("ours"), 0o644))
	require.NoError(t, h.Files.RemoveAll(backupDir))
	e, _ := h.Ledger.Get(KindFile, name)
	if err := h.Files.Undo(e); err == nil || !strings.Contains(err.Error(), "move the file away") || !h.Files.Exists(name) {
		t.Errorf("with the file: %v", err)
	}
	require.NoError(t, h.Files.Remove(name))
	if err := h.Files.Undo(e); err != nil || h.Ledger.Has(KindFile, name) {
		t.Errorf("without it: %v", err)
	}
}

// After a power cut, a file is either complete or missing: its content is synced before its directory entry, and that before anything else happens.
func TestWritesAreOnTheDisk(t *testing.T) {
	h := fake(t, t.TempDir(), false)
	var synced []string
	h.Files.synced = func(name string) { synced = append(synced, strings.TrimPrefix(name, h.Files.Root)) }
	require.NoError(t, h.Files.WriteFrom("/opt/cni/bin/bridge", strings.NewReader("a large program"), 0o755))
	if d := cmp.Diff([]string{"/opt/cni/bin/.bridge.ocadm", "/opt/cni/bin"}, synced); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	h := fake(t, t.TempDir(), false)
	if _, err := h.Files.Write("/etc/a", []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if err := h.Files.WriteFrom("/etc/a", iotest.ErrReader(broken), 0o644); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff([]string{"", "/etc", "/etc/a=old", "/var", "/var/lib"}, tree(t, h.Files.Root)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A process killed while writing leaves a partial file; the next write replaces it, and reset finds it.
func TestPartialFileIsReverted(t *testing.T) {
	root := t.TempDir()
	h := fake(t, root, false)
	half := filepath.Join(root, "usr/local/bin/.kubelet.ocadm")
	killed := func() {
		t.Helper()
		_ = h.Files.WriteFrom("/usr/local/bin/kubelet", iotest.ErrReader(errors.New("killed")), 0o755)
		require.NoError(t, os.WriteFile(half, []byte("ha"), 0o600))
	}
	killed()
	require.NoError(t, h.Files.WriteFrom("/usr/local/bin/kubelet", strings.NewReader("whole"), 0o755))
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half file is there after a write: %v", err)
	}
	killed()
	for _, e := range h.Ledger.Created() {
		require.NoError(t, h.Files.Undo(e))
	}
	if _, err := os.Stat(filepath.Join(root, "usr")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", tree(t, root))
	}
}

func TestPartialFileIsRemovedWithTheFile(t *testing.T) {
	f := Files{Root: t.TempDir()}
	require.NoError(t, f.Replace("/a/record.json", []byte("{}"), 0o600))
	require.NoError(t, os.WriteFile(Unfinished(f.Path("/a/record.json")), []byte("{"), 0o600))
	require.NoError(t, f.Remove("/a/record.json"))
	if left, err := f.ReadDir("/a"); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestDryRunCannotChangeAnything(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o644))
	before := tree(t, root)
	h := fake(t, root, true)
	for name, f := range map[string]func() error{
		"write":     func() error { return h.Files.WriteFile("/new", nil, 0o644) },
		"writeFrom": func() error { return h.Files.WriteFrom("/file", strings.NewReader("y"), 0o644) },
		"mkdir":     func() error { return h.Files.Mkdir("/dir", 0o755) },
		"remove":    func() error { return h.Files.Remove("/file") },
		"removeAll": func() error { return h.Files.RemoveAll("/file") },
		"undo":      func() error { return h.Files.Undo(Entry{Kind: KindFile, Name: "/file", Op: Created}) },
		"record":    func() error { return h.Ledger.Record(Entry{Kind: KindUnit, Name: "x", Op: Created}) },
		"program": func() error {
			_, err := h.Exec.Run(t.Context(), exec.Command{Path: "systemctl", Args: []string{"restart", "kubelet"}})
			return err
		},
	} {
		if err := f(); !errors.Is(err, ErrDryRun) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if d := cmp.Diff(before, tree(t, root)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if h.Files.Exists(LedgerFile) {
		t.Error("a ledger was made")
	}
	for _, c := range [][]string{{"systemctl", "is-active", "kubelet"}, {"ctr", "-n", "k8s.io", "images", "ls", "-q"}, {"runc", "--version"}} {
		if _, err := h.Exec.Run(t.Context(), exec.Command{Path: c[0], Args: c[1:]}); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestLedgerSurvivesACrash(t *testing.T) {
	root := t.TempDir()
	h := fake(t, root, false)
	for _, n := range []string{"one", "two"} {
		require.NoError(t, h.Ledger.Record(Entry{Kind: KindUnit, Name: n, Op: Created}))
	}
	path := h.Files.Path(LedgerFile)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw[:len(raw)-10], 0o600))
	h = fake(t, root, false)
	if h.Ledger.Has(KindUnit, "two") || !h.Ledger.Has(KindUnit, "one") {
		t.Error("want the first note and not the torn one")
	}
	require.NoError(t, h.Ledger.Record(Entry{Kind: KindUnit, Name: "three", Op: Created}))
	var names []string
	for _, e := range fake(t, root, false).Ledger.Created() {
		names = append(names, e.Name)
	}
	if d := cmp.Diff([]string{"three", "one"}, names); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

func TestFacts(t *testing.T) {
	root := t.TempDir()
	for name, data := range map[string]string{
		"etc/os-release":                          "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"proc/sys/kernel/osrelease":               "6.1.0-28-amd64\n",
		"proc/meminfo":                            "MemTotal:        2048 kB\nMemFree: 1 kB\n",
		"proc/swaps":                              "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n",
		"sys/fs/cgroup/cgroup.controllers":        "cpu memory pids",
		"lib/modules/6.1.0-28-amd64/modules.dep":  "kernel/drivers/net/vxlan/vxlan.ko: \n",
		"proc/sys/net/netfilter/nf_conntrack_max": "1",
		"usr/bin/kubelet":                         "",
	} {
		p := filepath.Join(root, name)
		require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(data), 0o755)))
	}
	rec := &Recorder{Answer: func(exec.Command) (exec.Result, error) { return exec.Result{Stdout: "Kubernetes v1.36.3\n"}, nil }}
	got := Gather(t.Context(), Files{Root: root}, rec)
	if got.OS.ID != "debian" || got.Kernel != "6.1.0-28-amd64" || got.Memory != 2<<20 || got.Cgroup != 2 {
		t.Errorf("got %+v", got)
	}
	if d := cmp.Diff([]string{"/dev/sda2"}, got.Swap); d != "" {
		t.Errorf("swap (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]Program{"kubelet": {"/usr/bin/kubelet", "v1.36.3"}}, got.Programs); d != "" {
		t.Errorf("programs (-want +got):\n%s", d)
	}
	modules := (&Host{Files: Files{Root: root}, Facts: got}).Modules()
	if !modules.Has("vxlan") || !modules.Has("nf_conntrack") || modules.Has("tun") {
		t.Errorf("modules: %+v", modules)
	}
}

// What a dry run must be able to read for a correct report.
func TestDryRunMayLook(t *testing.T) {
	rec := &Recorder{}
	r := ReadOnly(rec)
	for line, ok := range map[string]bool{
		"firewall-cmd --state": true, "firewall-cmd --permanent --zone=public --list-ports": true, "ufw status": true,
		"firewall-cmd --permanent --zone=public --add-port=1/tcp": false, "firewall-cmd --reload": false, "ufw allow 1/tcp": false,
		"iptables -S": true, "iptables -t nat -S": true, "iptables -F": false,
	} {
		f := strings.Fields(line)
		if _, err := r.Run(t.Context(), exec.Command{Path: f[0], Args: f[1:]}); (err == nil) != ok {
			t.Errorf("%s in a dry run: %v", line, err)
		}
	}
	for _, c := range []exec.Command{
		{Path: "/usr/bin/kubectl", Args: []string{"version", "--client"}},
		{Path: "/usr/local/bin/kubelet", Args: []string{"--version"}},
		{Path: "iptables-nft-save"}, {Path: "ip6tables-legacy-save"},
		{Path: "ctr", Args: []string{"-n", "k8s.io", "images", "ls"}},
	} {
		if _, err := r.Run(t.Context(), c); err != nil {
			t.Errorf("%s %q: %v", c.Path, c.Args, err)
		}
	}
	for _, c := range []exec.Command{{Path: "iptables-nft-restore"}, {Path: "kubectl", Args: []string{"delete", "node", "n"}}} {
		if _, err := r.Run(t.Context(), c); !errors.Is(err, ErrDryRun) {
			t.Errorf("%s %q: %v", c.Path, c.Args, err)
		}
	}
}

// What is in the way of a directory belongs to someone else: reset must not remove it.
func TestMkdirInTheWayOfOthers(t *testing.T) {
	root := t.TempDir()
	h := fake(t, root, false)
	require.NoError(t, errors.Join(os.WriteFile(filepath.Join(root, "file"), []byte("x"), 0o644), os.Symlink("/disk/that/is/not/mounted", filepath.Join(root, "link"))))
	before := tree(t, root+"/file")
	for _, name := range []string{"/file", "/link", "/link/below"} {
		if err := h.Files.Mkdir(name, 0o755); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, e := range h.Ledger.Created() {
		if err := h.Files.Undo(e); err != nil {
			t.Error(err)
		}
	}
	if !h.Files.Exists("/link") || cmp.Diff(before, tree(t, root+"/file")) != "" {
		t.Error("reset removed what ocadm did not make")
	}
}
