// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

func keepsImages(h *host.Host) bool { return slices.Contains(h.Config.Run.Keep, config.KeepImages) }

const (
	containerdData = "/var/lib/containerd"
	// othersData is the name of the ledger entry that records that others keep something in containerd.
	othersData = containerdData + " of others"
)

// ownContainerd reports whether containerd's data comes from a containerd that ocadm installed where there was none, and nothing else uses it. With ledgers
// of earlier releases, the program's entry proves that.
func ownContainerd(h *host.Host) bool {
	if !containerdRuns(h) || othersContainerd(h) {
		return false
	}
	if h.Ledger.Has(host.KindData, othersData) {
		return false
	}
	if e, ok := h.Ledger.Get(host.KindData, containerdData); ok {
		return e.Op == host.Created
	}
	return h.Ledger.Has(host.KindFile, path.Join(binDir, containerd))
}

// containerdDirs returns the directories that a containerd creates, the one with its data last.
func containerdDirs() []string {
	return []string{"/run/containerd", "/run/nri", "/opt/containerd", containerdData}
}

// noteContainerdData records, before ocadm installs a containerd, which of its directories another one has already created.
func noteContainerdData(h *host.Host) error {
	if _, ok := theirs(h, containerd); ok || !containerdRuns(h) || h.Ledger.Has(host.KindFile, path.Join(binDir, containerd)) {
		return nil
	}
	for _, d := range containerdDirs() {
		op := host.Created
		if d == containerdData && len(owned.Content(h, d)) > 0 || d != containerdData && h.Files.Exists(d) {
			op = host.Found
		}
		if err := h.Ledger.Record(host.Entry{Kind: host.KindData, Name: d, Op: op}); err != nil {
			return fmt.Errorf("recording the owner of %s: %w", d, err)
		}
	}
	return nil
}

// dataDirs returns the directories that ocadm's containerd leaves behind. Shims of every containerd on the machine have their sockets in /run/containerd/s,
// so its contents stay while a shim of another containerd runs.
func dataDirs(h *host.Host) []string {
	if !ownContainerd(h) {
		return nil
	}
	var dirs []string
	_, others := shims(h)
	for _, d := range containerdDirs() {
		e, noted := h.Ledger.Get(host.KindData, d)
		switch {
		case noted && e.Op == host.Found && d != "/run/containerd", d == containerdData && keepsImages(h):
		case d == "/run/containerd" && (len(others) > 0 || noted && e.Op == host.Found):
			for _, name := range []string{"containerd.sock", "containerd.sock.ttrpc", "io.containerd.*"} {
				found, _ := h.Files.Glob(path.Join(d, name)) // the pattern is valid
				dirs = append(dirs, found...)
			}
		default:
			dirs = append(dirs, d)
		}
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return !h.Files.Exists(d) || len(owned.Content(h, d)) == 0 && owned.Disk(h, d) })
}

// shims returns the processes that run containers, in two groups: those of Kubernetes' containerd, and those of all other namespaces and containerds. Each
// is a process ID and a program.
func shims(h *host.Host) (pods, others []string) {
	found, err := h.Files.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, nil
	}
	for _, f := range found {
		raw, err := h.Files.ReadFile(f)
		if err != nil {
			continue
		}
		args := strings.Split(string(raw), "\x00")
		if path.Base(args[0]) != shim {
			continue
		}
		p := path.Base(path.Dir(f)) + " " + shim
		if slices.Contains(args, k8sNamespace) && slices.Contains(args, socket) {
			pods = append(pods, p)
		} else {
			others = append(others, p)
		}
	}
	return pods, others
}

// shimsGone bounds how long killed shim processes may take to end.
const shimsGone = 10 * time.Second

// endShims kills the shims that Kubernetes' containerd left, with their containers: a containerd stopped while it created a container leaves a shim that no
// containerd knows.
func endShims(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	left, _ := shims(h)
	if !ownContainerd(h) || len(left) == 0 {
		return nil
	}
	var processes []string
	for _, l := range left {
		pid, _, _ := strings.Cut(l, " ")
		children, _ := h.Files.ReadFile(path.Join("/proc", pid, "task", pid, "children")) // gone, or the kernel does not list them
		processes = append(append(processes, pid), strings.Fields(string(children))...)
	}
	// Some may have ended meanwhile; the check below finds what is left.
	_, _ = h.Exec.Run(ctx, exec.Command{Path: "sh", Args: append([]string{"-c", `kill -KILL "$@"`, "sh"}, processes...)})
	ctx, cancel := context.WithTimeout(ctx, shimsGone)
	defer cancel()
	n := len(left)
	err := wait.Until(ctx, "the end of containers", 100*time.Millisecond, func(context.Context) (bool, string, error) {
		left, _ = shims(h)
		return len(left) == 0, "", nil
	}, func(string) {})
	if err != nil {
		return residueFound(left)
	}
	r.Changed("ended %d processes that kept containers running", n)
	return nil
}
