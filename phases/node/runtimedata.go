// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
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
	// containerdDatabase lists namespaces, containers and images.
	containerdDatabase = containerdData + "/io.containerd.metadata.v1.bolt/meta.db"
)

// ownContainerd reports whether containerd's data comes from a containerd that ocadm installed where there was none, and nothing else uses it. With ledgers
// of earlier releases, the program's entry proves that.
func ownContainerd(h *host.Host) bool {
	if !containerdRuns(h) || othersContainerd(h) || h.Ledger.Has(host.KindData, othersData) || len(runningNamespaces(h)) > 0 {
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
			dirs = append(dirs, h.Files.Glob(d+"/containerd.sock", d+"/containerd.sock.ttrpc", d+"/io.containerd.*")...)
		default:
			dirs = append(dirs, d)
		}
	}
	return slices.DeleteFunc(dirs, func(d string) bool { return !h.Files.Exists(d) || len(owned.Content(h, d)) == 0 && owned.Disk(h, d) })
}

// shims returns the processes that run containers, in two groups: those of Kubernetes' containerd, and those of all other namespaces and containerds. Each
// is a process ID and a program.
func shims(h *host.Host) (pods, others []string) {
	for pid, args := range shimArgs(h) {
		if p := pid + " " + shim; slices.Contains(args, k8sNamespace) && slices.Contains(args, socket) {
			pods = append(pods, p)
		} else {
			others = append(others, p)
		}
	}
	slices.Sort(pods)
	slices.Sort(others)
	return pods, others
}

// runningNamespaces returns the namespaces of others whose containers run in the containerd at the node's socket, even while it is stopped.
func runningNamespaces(h *host.Host) (out []string) {
	for _, args := range shimArgs(h) {
		if at := slices.Index(args, "-namespace") + 1; at > 0 && at < len(args) && args[at] != k8sNamespace && slices.Contains(args, socket) {
			out = append(out, args[at])
		}
	}
	return out
}

// shimArgs returns the command lines of shims, by process ID.
func shimArgs(h *host.Host) map[string][]string {
	out := map[string][]string{}
	for _, f := range h.Files.Glob("/proc/[0-9]*/cmdline") {
		raw, err := h.Files.ReadFile(f)
		if args := strings.Split(string(raw), "\x00"); err == nil && path.Base(args[0]) == shim {
			out[path.Base(path.Dir(f))] = args
		}
	}
	return out
}

// storedNamespaces is otherNamespaces according to containerd's database, none if that cannot be read. Source: containerd core/metadata/buckets.go.
func storedNamespaces(h *host.Host) (out []string) {
	_ = snapshot.Read(h.Files.Path(containerdDatabase), func(tx *bolt.Tx) error {
		v1 := tx.Bucket([]byte("v1"))
		if v1 == nil {
			return nil
		}
		return v1.ForEachBucket(func(name []byte) error {
			ns := v1.Bucket(name)
			used := false
			if containers := ns.Bucket([]byte("containers")); containers != nil {
				_ = containers.ForEachBucket(func(id []byte) error {
					labels := containers.Bucket(id).Bucket([]byte("labels"))
					ours := strings.HasPrefix(string(id), leftCommand) || labels != nil && labels.Get([]byte(podLabelName)) != nil
					used = used || string(name) != k8sNamespace || !ours
					return nil
				})
			}
			if images := ns.Bucket([]byte("images")); images != nil && string(name) != k8sNamespace {
				first, _ := images.Cursor().First()
				used = used || first != nil
			}
			if used {
				out = append(out, string(name))
			}
			return nil
		})
	})
	return out
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
	err := wait.Until(ctx, "the end of containers", 100*time.Millisecond, func(context.Context) (bool, string, error) {
		left, _ = shims(h)
		return len(left) == 0, "", nil
	}, func(string) {})
	if err != nil {
		return residueFound(left)
	}
	r.Changed("ended the processes that kept containers running")
	return nil
}
