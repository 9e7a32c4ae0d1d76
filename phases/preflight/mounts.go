// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/version"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// mountChecks check the file systems that containers, etcd and the kubelet will use.
func mountChecks() []Check {
	return []Check{
		{Name: "NoExec", Short: "programs can be run from the directories of containers and CNI plugins", Codes: []string{"OCA-1029"}, run: checkNoExec},
		{Name: "ReadOnly", Short: "the directories that ocadm writes to are writable", Codes: []string{"OCA-1030"}, run: checkReadOnly},
		{Name: "NetworkDisk", Short: "images, pods and etcd are on a disk of the machine", Codes: []string{"OCA-1031"}, run: checkNetworkDisk},
		{Name: "FileTypes", Short: "the file system of containerd supports overlayfs", Codes: []string{"OCA-1032"}, run: checkFileTypes},
		{Name: "Inodes", Short: "enough free inodes", Codes: []string{"OCA-1033"}, run: checkInodes},
		{Name: "EtcdDisk", Short: "the disk of etcd stores data fast enough", Codes: []string{"OCA-1034"}, Applies: onControlPlane, run: checkEtcdDisk},
		{Name: "LeftMounts", Short: "no volumes of an earlier cluster are mounted", Codes: []string{"OCA-1035"}, run: checkLeftMounts},
		{Name: "SwapAtBoot", Short: "swap stays off when the machine boots", Codes: []string{"OCA-1036"}, run: checkSwapAtBoot},
	}
}

func (m *machine) mounts() []disk.Mount { return disk.Mounts(m.h.Files.Text(disk.MountTable)) }

// mountOf returns the mount that a path is or will be on: the longest one that contains it, the last of several equal ones.
func (m *machine) mountOf(name string) (disk.Mount, bool) {
	name = m.real(name)
	var best disk.Mount
	found := false
	for _, on := range m.mounts() {
		if (on.At == "/" || name == on.At || strings.HasPrefix(name, on.At+"/")) && len(on.At) >= len(best.At) {
			best, found = on, true
		}
	}
	return best, found
}

// real returns a path without symbolic links, as far as it exists: ostree links /usr/local and /opt to /var, and a large disk may hold /var/lib/containerd.
func (m *machine) real(name string) string {
	exists := there(m.h.Files.Path(name))
	to, err := filepath.EvalSymlinks(exists)
	if err != nil {
		return name
	}
	return path.Join("/", strings.TrimPrefix(to+strings.TrimPrefix(m.h.Files.Path(name), exists), m.h.Files.Path("/")))
}

// withOption returns the paths whose mount has an option, and those mounts.
func (m *machine) withOption(option string, paths ...string) (names, mounts []string) {
	for _, p := range paths {
		if on, found := m.mountOf(p); found && slices.Contains(on.Options, option) {
			names = append(names, p)
			if !slices.Contains(mounts, on.At) {
				mounts = append(mounts, on.At)
			}
		}
	}
	return names, mounts
}

func checkNoExec(_ context.Context, m *machine) []finding.Finding {
	names, at := m.withOption("noexec", "/usr/local/bin", "/opt/cni/bin", "/var/lib/containerd", "/run/containerd")
	if len(names) == 0 {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1029", "Programs cannot be run in "+strings.Join(names, ", "), "mounted with noexec: "+strings.Join(at, ", "),
		"mount -o remount,exec "+at[0]+", and remove noexec from /etc/fstab")}
}

// pluginDir is made for the controller manager, which mounts it before Kubernetes 1.36; its pod does not start without it.
const pluginDir = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"

func checkReadOnly(_ context.Context, m *machine) []finding.Finding {
	written := []string{"/etc", "/usr/local/bin", "/opt", "/var/lib"}
	version := m.h.Config.Cluster.KubernetesVersion // joining, it may be unknown
	if m.controlPlane() && semver.IsValid(version) && semver.Compare(version, "v1.36.0") < 0 && !m.h.Files.Exists(pluginDir) {
		written = append(written, pluginDir)
	}
	names, at := m.withOption("ro", written...)
	if len(names) == 0 {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1030", "ocadm cannot write to "+strings.Join(names, ", "), "mounted read-only: "+strings.Join(at, ", "),
		"mount -o remount,rw "+at[0]+"; if the distribution is immutable, mount a writable directory there")}
}

// dataDirs returns the directories that must be on a local disk.
func (m *machine) dataDirs() []string {
	out := []string{"/var/lib/containerd", "/var/lib/kubelet"}
	if m.controlPlane() {
		out = append(out, "/var/lib/etcd")
	}
	return out
}

func checkNetworkDisk(_ context.Context, m *machine) []finding.Finding {
	remote := []string{"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre"}
	for _, dir := range m.dataDirs() {
		if on, found := m.mountOf(dir); found && slices.Contains(remote, on.Kind) {
			return []finding.Finding{finding.New("OCA-1031", dir+" would be on a network file system",
				fmt.Sprintf("%s is %s of %s: overlayfs and etcd do not work there", on.At, on.Kind, on.Source),
				"mount a local disk at "+dir)}
		}
	}
	return nil
}

func checkFileTypes(ctx context.Context, m *machine) []finding.Finding {
	const dir = "/var/lib/containerd"
	on, found := m.mountOf(dir)
	zfs, err := version.ParseGeneric(strings.TrimSpace(m.h.Files.Text("/sys/module/zfs/version")))
	_, installed := m.h.Facts.Programs["containerd"] // it may use another snapshotter
	if !installed && (on.Kind == "overlay" || on.Kind == "ecryptfs" || on.Kind == "zfs" && err == nil && zfs.LessThan(version.MustParseGeneric("2.2"))) {
		return []finding.Finding{finding.New("OCA-1032", "The file system of "+dir+" does not support overlayfs",
			fmt.Sprintf("%s is %s, on which containerd cannot make containers", on.At, on.Kind),
			"mount a disk with ext4 or XFS at "+dir+"; for ZFS, version 2.2 or later is enough")}
	}
	if !found || on.Kind != "xfs" {
		return nil
	}
	if out, ok := m.output(ctx, "xfs_info", on.At); !ok || !strings.Contains(out, "ftype=0") {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1032", "The file system of /var/lib/containerd does not support overlayfs", on.At+" is XFS that was created with ftype=0",
		"format it again with mkfs.xfs -n ftype=1, or mount another file system at /var/lib/containerd")}
}

// fewInodes is several times what the images of a small cloud use.
const fewInodes = 100_000

func checkInodes(_ context.Context, m *machine) []finding.Finding {
	if m.joined() {
		return nil // already in use
	}
	for _, dir := range m.dataDirs() {
		total, free, err := m.inodes(dir)
		if err == nil && total > 0 && free < fewInodes {
			return []finding.Finding{finding.New("OCA-1033", "There are too few free inodes for "+dir, fmt.Sprintf("%d of %d are free: images have many small files", free, total),
				"df -i "+dir+"; remove files, or create the file system with more inodes (mkfs.ext4 -i 8192), or use XFS")}
		}
	}
	return nil
}

// inodesOf returns the inodes of the file system that a path is or will be on; a total of 0 means that their number is not fixed.
func inodesOf(name string) (total, free uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(there(name), &st); err != nil {
		return 0, 0, fmt.Errorf("looking at %s: %w", name, err)
	}
	return st.Files, st.Ffree, nil
}

// slowSync is twice etcd's limit: the 99th percentile of its writes should be below 10 ms. Source: etcd.io, FAQ.
const slowSync = 20 * time.Millisecond

func checkEtcdDisk(ctx context.Context, m *machine) []finding.Finding {
	if m.joined() {
		return nil
	}
	took, err := m.fsync(ctx, "/var/lib/etcd")
	if err != nil || took <= slowSync {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-1034", "The disk of etcd is slow",
		fmt.Sprintf("99 of 100 small writes to /var/lib took up to %s; etcd needs 10ms or less", took.Round(time.Millisecond)),
		"put /var/lib/etcd on an SSD that nothing else writes to; check iostat -x 1")}
}

// syncOn measures how long small synced writes to the disk of a directory take: the 99th percentile of a hundred, or of those within a second. The file has
// no name.
func syncOn(ctx context.Context, dir string) (time.Duration, error) {
	const writes, size, most = 100, 2300, time.Second
	dir = there(dir)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("writing to %s: %w", dir, err)
	}
	defer unix.Close(fd) //nolint:errcheck // its content does not matter
	data := make([]byte, size)
	var all []time.Duration
	for began := time.Now(); len(all) < writes && time.Since(began) < most && ctx.Err() == nil; {
		at := time.Now()
		if _, err := unix.Write(fd, data); err != nil {
			return 0, fmt.Errorf("writing to %s: %w", dir, err)
		}
		if err := unix.Fdatasync(fd); err != nil {
			return 0, fmt.Errorf("writing to %s: %w", dir, err)
		}
		all = append(all, time.Since(at))
	}
	if len(all) == 0 {
		return 0, ctx.Err()
	}
	slices.Sort(all)
	return all[len(all)*99/100], nil
}

func checkLeftMounts(_ context.Context, m *machine) []finding.Finding {
	if m.initialised() || m.h.Files.Exists(kubernetes.ConfigFile) {
		return nil
	}
	left := lists.Pick(m.mounts(), func(on disk.Mount) (string, bool) { return on.At, strings.HasPrefix(on.At, "/var/lib/kubelet/pods/") })
	if len(left) == 0 {
		return nil
	}
	return []finding.Finding{finding.New("OCA-1035", "Volumes of an earlier cluster are mounted",
		fmt.Sprintf("%d below /var/lib/kubelet/pods, the first is %s", len(left), path.Base(left[0])),
		"umount "+left[0]+" and the others (grep /var/lib/kubelet/pods /proc/mounts), or reboot")}
}

// masked reports whether a unit of systemd is masked: then it is a link to /dev/null, which is an empty file.
func (m *machine) masked(unit string) bool {
	name := "/etc/systemd/system/" + unit
	return m.h.Files.Exists(name) && m.h.Files.Text(name) == ""
}

func checkSwapAtBoot(_ context.Context, m *machine) []finding.Finding {
	const what = "Swap will be on after the next boot"
	if len(m.h.Facts.Swap) > 0 {
		return nil // check Swap reports it
	}
	for _, unit := range []string{"zramswap", "zram-config", "armbian-zram-config", "dphys-swapfile"} { // they do not depend on the target
		if m.h.Files.Any("/etc/systemd/system/*.wants/"+unit+".service") && !m.masked(unit+".service") {
			return []finding.Finding{finding.Warn("OCA-1036", what, unit+".service turns it on, and the kubelet does not start with swap", "systemctl disable --now "+unit)}
		}
	}
	if m.masked("swap.target") {
		return nil
	}
	var by []string
	for line := range strings.Lines(m.h.Files.Text("/etc/fstab")) {
		const kind, options = 2, 3
		f := strings.Fields(line)
		if len(f) > options && !strings.HasPrefix(f[0], "#") && f[kind] == "swap" && !slices.Contains(strings.Split(f[options], ","), "noauto") {
			by = append(by, "/etc/fstab has "+f[0])
		}
	}
	for _, dir := range []string{"/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"} {
		if file := dir + "/zram-generator.conf"; m.h.Files.Exists(file) { // the first file is the only one: zram-generator.conf(5)
			if strings.Contains("\n"+m.h.Files.Text(file), "\n[zram") {
				by = append(by, file+" makes a device")
			}
			break
		}
	}
	if units := m.h.Files.Glob("/run/systemd/generator.late/*.swap"); len(units) > 0 {
		by = append(by, "systemd has found a partition for it: "+units[0])
	}
	if len(by) == 0 {
		return nil
	}
	return []finding.Finding{finding.Warn("OCA-1036", what, by[0]+", and the kubelet does not start with swap", noSwap)}
}
