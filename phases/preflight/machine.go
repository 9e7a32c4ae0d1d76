// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Limits holds the minimum requirements of a machine. Zero values require nothing.
type Limits struct {
	CPUs        int
	MemoryInit  uint64 // bytes
	MemoryJoin  uint64
	DiskEtcd    uint64 // free bytes for /var/lib/etcd
	DiskImages  uint64 // for /var/lib/containerd
	DiskKubelet uint64 // for /var/lib/kubelet
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// DefaultLimits returns the minimum with which a small cloud works.
func DefaultLimits() Limits {
	return Limits{
		CPUs: 2, MemoryInit: 1700 * mib, MemoryJoin: 700 * mib,
		DiskEtcd: 2 * gib, DiskImages: 8 * gib, DiskKubelet: 2 * gib,
	}
}

// machine is the subject of the checks. Everything but facts, files and programs is a function, so that tests need no such machine.
type machine struct {
	h      *host.Host
	kind   Kind
	limits Limits

	goos    string
	disk    func(path string) (device, free uint64, err error)
	resolve func(ctx context.Context, name string) ([]string, error)
	// local resolves names that every machine knows, and names that none should know.
	local  func(ctx context.Context, name string) ([]string, error)
	inodes func(path string) (total, free uint64, err error)
	fsync  func(ctx context.Context, dir string) (time.Duration, error)
	reach  func(ctx context.Context, address string) error
	now    func() time.Time
	// holders returns, for each address, the MAC addresses of the machines in an interface's network that answer for it.
	holders func(ctx context.Context, iface string, addresses ...string) (map[string][]string, error)
}

func newMachine(h *host.Host, kind Kind, limits Limits) *machine {
	m := &machine{
		h: h, kind: kind, limits: limits,
		goos: runtime.GOOS, disk: diskFree, resolve: net.DefaultResolver.LookupHost, local: net.DefaultResolver.LookupHost,
		inodes: inodesOf, fsync: syncOn, reach: reach, now: time.Now,
		holders: vip.Holders,
	}
	if h.Files.Root != "" { // in a test's directory, this machine's disk speed means nothing
		m.fsync = func(context.Context, string) (time.Duration, error) { return 0, nil }
		m.holders = func(context.Context, string, ...string) (map[string][]string, error) { return nil, nil }
	}
	return m
}

// reach connects to an address.
func reach(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// controlPlane reports whether the machine becomes a control-plane node.
func (m *machine) controlPlane() bool { return onControlPlane(m.kind, m.h.Config) }

// output returns the output of a program; ok is false if it does not exist or fails.
func (m *machine) output(ctx context.Context, path string, args ...string) (out string, ok bool) {
	res, err := m.h.Exec.Run(ctx, exec.Command{Path: path, Args: args})
	return res.Stdout, err == nil
}

// ours reports whether an earlier init or join of ocadm got as far as Kubernetes: then findings may be about its own work.
func (m *machine) ours() bool { return m.h.Ledger.Has(host.KindFile, kubernetes.ConfigFile) }

// initialised reports whether a kubelet belongs to a cluster here.
func (m *machine) initialised() bool { return m.h.Files.Exists(kubernetes.KubeletKubeconfig) }

// joined reports whether ocadm has made this machine a node of a cluster.
func (m *machine) joined() bool { return m.ours() && m.initialised() }

// there returns the path, or its nearest existing parent, which is on the same file system.
func there(name string) string {
	for name != "/" {
		if _, err := os.Stat(name); err == nil {
			break
		}
		name = filepath.Dir(name)
	}
	return name
}

// diskFree finds the file system that a path is or will be on.
func diskFree(name string) (device, free uint64, err error) {
	var st unix.Statfs_t
	var info unix.Stat_t
	if err := errors.Join(unix.Statfs(there(name), &st), unix.Stat(there(name), &info)); err != nil {
		return 0, 0, fmt.Errorf("looking at %s: %w", name, err)
	}
	return info.Dev, st.Bavail * uint64(st.Bsize), nil //nolint:gosec // a block size is positive
}

func bytesText(n uint64) string {
	if n >= gib {
		return fmt.Sprintf("%.1f GiB", float64(n)/gib)
	}
	return fmt.Sprintf("%d MiB", n/mib)
}
