// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// Files of other distributions, in testdata/machines, with preflight's "findings" about them. "programs" are paths of existing programs, "commands" the
// output of some of them. UPDATE=1 rewrites the findings.
func TestMachinesOfOtherDistributions(t *testing.T) {
	archives, err := filepath.Glob("testdata/machines/*.txtar")
	if err != nil || len(archives) < 10 {
		t.Fatalf("%d machines, error %v", len(archives), err)
	}
	for _, file := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			last := &archive.Files[len(archive.Files)-1]
			if last.Name != "findings" {
				t.Fatalf("the last file is %s, not findings", last.Name)
			}
			var got strings.Builder
			for _, f := range gather(t.Context(), machineOf(t, archive), checksButJoin(), map[string]float64{}) {
				fmt.Fprintf(&got, "%s %s %s: %s\n  because: %s\n", f.Code, f.Check, f.Severity, f.What, f.Cause)
				for line := range strings.Lines(f.Remedy) {
					got.WriteString("  next: " + strings.TrimRight(line, "\n") + "\n")
				}
			}
			if os.Getenv("UPDATE") != "" {
				last.Data = []byte(got.String())
				require.NoError(t, os.WriteFile(file, txtar.Format(archive), 0o644))
			}
			if d := cmp.Diff(string(last.Data), got.String()); d != "" {
				t.Errorf("findings (-want +got), UPDATE=1 rewrites them:\n%s", d)
			}
		})
	}
}

// machineOf returns a good machine, changed as the archive says.
func machineOf(t *testing.T, archive *txtar.Archive) *machine {
	t.Helper()
	good := goodMachine(t)
	commands := map[string]string{}
	files := host.Files{Root: t.TempDir()}
	for _, f := range archive.Files {
		names, data, mode := []string{"/" + f.Name}, f.Data, os.FileMode(0o644)
		switch f.Name {
		case "findings":
			continue
		case "commands":
			for line := range strings.Lines(string(f.Data)) {
				command, out, _ := strings.Cut(strings.TrimSpace(line), " => ")
				commands[command] = out + "\n"
			}
			continue
		case "programs":
			names, data, mode = strings.Fields(string(f.Data)), nil, 0o755
		}
		for _, name := range names {
			require.NoError(t, files.WriteFile(name, data, mode))
		}
	}
	for _, name := range []string{"/proc/net/route", "/proc/net/tcp", "/etc/containerd/certs.d/_default/hosts.toml"} {
		require.NoError(t, files.WriteFile(name, []byte(good.h.Files.Text(name)), 0o644))
	}
	rec := &host.Recorder{Answer: func(c exec.Command) (exec.Result, error) {
		out, known := commands[strings.Join(append([]string{c.Path}, c.Args...), " ")]
		if !known {
			return exec.Result{ExitCode: 1}, errors.New("nothing is said about this command")
		}
		return exec.Result{Stdout: out}, nil
	}}
	h, err := host.Fake(t.Context(), files.Root, good.h.Config, rec)
	require.NoError(t, err)
	facts := host.Gather(t.Context(), files, rec)
	facts.Arch, facts.CPUs, facts.UID, facts.Memory, facts.Systemd = "amd64", 4, 0, 8*gib, true
	facts.Interfaces = []host.Interface{{Name: "eth0", Up: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.11/24")}}}
	h.Facts = facts
	h.Config.Cluster.ProxyMode = kubernetes.AutoProxyMode(facts.Kernel, "")
	good.h = h
	return good
}

// Preflight refuses another version of Kubernetes for a cluster that runs.
func TestRepeatedInitKeepsTheVersion(t *testing.T) {
	m := goodMachine(t)
	own(t, m, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.4\n")
	put(t, m.h, "/var/lib/etcd/member/wal", "x")
	found := checkNodeState(t.Context(), m)
	if len(found) != 1 || found[0].Code != "OCA-1007" || !strings.Contains(found[0].Remedy, "--kubernetes-version v1.35.4") {
		t.Errorf("%+v", found)
	}
}
