// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

// names returns the paths that kubeadm and the kubelet write on a node, as patterns of path.Match. On a worker, those of a control plane are left
// out. Everything else in these directories belongs to others.
//
// Sources: kubernetes cmd/kubeadm/app/constants/constants.go and pkg/kubelet/config/defaults.go, pkg/kubelet/kubelet.go at v1.36.
func names(isControlPlane bool) []string {
	in := func(dir string, files ...string) []string {
		return lists.Map(files, func(f string) string { return path.Join(dir, f) })
	}
	out := slices.Concat(
		in(kubernetesDir, "kubelet.conf", "bootstrap-kubelet.conf", "tmp/kubeadm-*"),
		in(pkiDir, "ca.crt"),
		in(kubeletDir, "config.yaml", "kubeadm-flags.env", "instance-config.yaml", "pods", "plugins", "plugins_registry", "pod-resources",
			"device-plugins", "checkpoints", "cpu_manager_state", "memory_manager_state", "dra_manager_state", "actuated_pods_state",
			"allocated_pods_state", "pod_status_manager_state", "image_manager", "pki/kubelet-client-*.pem", "pki/kubelet-server-*.pem",
			"pki/kubelet.crt", "pki/kubelet.key", "kubelet.sock",
			".[0-9]*"), // a state file that the stopped kubelet was writing: pkg/kubelet/util/store/filestore.go
		in("/var/lib/ocadm", "upgrade"),
	)
	if !isControlPlane {
		return out
	}
	var pairs []string
	for _, p := range []string{"ca", "apiserver", "apiserver-kubelet-client", "apiserver-etcd-client", "front-proxy-ca", "front-proxy-client",
		"etcd/ca", "etcd/server", "etcd/peer", "etcd/healthcheck-client"} {
		pairs = append(pairs, p+".crt", p+".key")
	}
	return slices.Concat(out,
		in(etcdDir, "member", "ocadm-restored", "ocadm-before-*"),
		in(manifestsDir, "etcd.yaml", "kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml", "ocadm-depot.yaml", "ocadm-vip.yaml", "ocadm-etcd.yaml"),
		in("/var/lib/ocadm", "depot", "vip", "etcd"),
		in(pkiDir, append(pairs, "ca-signer.crt", ".ocadm-room", "sa.key", "sa.pub", "ocadm-depot/serving.pem", "ocadm-depot/registry.json")...),
		in(kubernetesDir, "admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf"))
}

// directories returns the directories of these names. They are removed if they are empty and did not exist before.
func directories() []string {
	return []string{
		manifestsDir, pkiDir + "/etcd", pkiDir + "/ocadm-depot", pkiDir, kubernetesDir + "/tmp", kubernetesDir, kubeletDir + "/pki", kubeletDir, etcdDir,
		podLogsDir, containerLogsDir, cniStateDir + "/results", cniStateDir + "/cache/results", cniStateDir + "/cache", cniStateDir + "/networks",
		cniStateDir + "/flannel", cniStateDir, cniConfigDir, "/etc/cni", "/run/flannel",
	}
}

// volumeDirectories returns, the deepest first, the directories that the kubelet creates for plugins and pod volumes, the mount points that the
// container runtime creates inside those for other volumes of the pod (/etc/yunion/common, /etc/yunion/pki), and the ones that the cloud's agents
// create. They are removed like directories. Inventory only lists their contents, which are data.
func volumeDirectories() []string {
	return []string{
		ImagesDir + "/images", ImagesDir, ImagesDir + "-mounts", "/opt/cloud/workspace/data", "/opt/cloud/workspace/disks/image_cache",
		"/opt/cloud/workspace/disks/agent_tmp", "/opt/cloud/workspace/disks", "/opt/cloud/workspace/servers",
		"/opt/cloud/workspace/memory_snapshots", "/opt/cloud/workspace/run/backups", "/opt/cloud/workspace/run",
		"/opt/cloud/workspace/temp-bind", "/opt/cloud/workspace/lbagent", "/opt/cloud/workspace/esxi_agent", "/opt/cloud/workspace",
		"/opt/cloud", "/etc/yunion/common", "/etc/yunion/pki", "/etc/yunion", "/etc/openvswitch", "/etc/telegraf/telegraf.d", "/etc/telegraf",
		"/usr/libexec/kubernetes/kubelet-plugins/volume/exec", "/usr/libexec/kubernetes/kubelet-plugins/volume",
		"/usr/libexec/kubernetes/kubelet-plugins", "/usr/libexec/kubernetes", "/lib/modules",
		"/var/lib/ocadm/etcd", // on a worker, where a backup pod has looked for snapshots
	}
}

const (
	podLogsDir       = "/var/log/pods"
	containerLogsDir = "/var/log/containers"
)

// podLogs matches the kubelet's names NAMESPACE_NAME_UID; a static pod's UID is a hash.
var podLogs = regexp.MustCompile(`^[a-z0-9-]+_[a-z0-9.-]+_[0-9a-f-]{32,36}$`)

// candidates returns the existing paths that have a name of a node's files.
func candidates(h *host.Host, n Node) []string {
	var out []string
	for _, name := range names(n.ControlPlane) {
		out = append(out, h.Files.Glob(name, host.Unfinished(name))...) // a half-written key counts as well
	}
	out = append(out, lists.Filter(h.Files.Glob(podLogsDir+"/*"), func(l string) bool { return podLogs.MatchString(path.Base(l)) })...)
	return append(out, lists.Filter(h.Files.Glob(containerLogsDir+"/*"), func(l string) bool {
		to, err := os.Readlink(h.Files.Path(l))
		return err == nil && strings.HasPrefix(to, podLogsDir+"/")
	})...)
}

// Files returns the paths that are removed with this node. kubeadm's configuration comes last: until the rest is gone, it shows what the machine is.
func Files(h *host.Host) []string {
	n := NodeOf(h)
	if !n.Made {
		return nil
	}
	all := append(candidates(h, n), lists.Pick(h.Ledger.Created(host.KindFile), func(e host.Entry) (string, bool) {
		return e.Name, (e.Name == configFile || path.Dir(e.Name) == patchesDir) && h.Files.Exists(e.Name)
	})...)
	return slices.DeleteFunc(all, func(p string) bool { // of a mounted disk with only its file system's own files, nothing is to be removed
		return theirs(h, p) || Disk(h, p) && len(Content(h, p)) == 0
	})
}

// Beside returns the paths in a node's directories that do not belong to the node and stay.
func Beside(h *host.Host) []string {
	if !NodeOf(h).Made {
		return nil
	}
	goes := append(Files(h), CNIState(h)...)
	dirs := directories()
	all := slices.Concat(lists.Map(dirs, func(d string) []string { return Content(h, d) })...)
	out := lists.Filter(all, func(p string) bool { return !slices.Contains(goes, p) && !slices.Contains(dirs, p) })
	slices.Sort(out)
	return out
}

// Remove unmounts everything below a path and removes the path. A disk mounted or linked at the path itself stays and is emptied. While any mount
// remains below the path, Remove deletes nothing: it would delete the mounted files.
func Remove(h *host.Host, name string) error {
	mounts, err := MountPoints(h, name)
	if err != nil {
		return err
	}
	disk := Disk(h, name)
	below := func(m []string) []string {
		return slices.DeleteFunc(m, func(p string) bool { return disk && p == name })
	}
	for _, m := range below(mounts) {
		if err := Unmount(h, m); err != nil {
			return err
		}
	}
	left, err := MountPoints(h, name)
	if err != nil {
		return err
	}
	if left = below(left); len(left) > 0 {
		return fmt.Errorf("removing %s: %s is still mounted", name, strings.Join(left, ", "))
	}
	remove := []string{name}
	if disk {
		remove = Content(h, name)
	}
	for _, p := range remove {
		if err := h.Files.RemoveAll(p); err != nil {
			return fmt.Errorf("removing %s: %w", p, err)
		}
	}
	return strike(h, name)
}

// Disk reports whether a directory is a disk that its owner mounted there on purpose, or a link to elsewhere made by its owner.
func Disk(h *host.Host, dir string) bool {
	if strings.HasPrefix(dir, "/run/") {
		return false
	}
	if _, err := os.Readlink(h.Files.Path(dir)); err == nil {
		st, err := h.Files.Stat(dir)
		return err == nil && st.IsDir()
	}
	mounts, err := MountPoints(h, dir)
	return err == nil && slices.Contains(mounts, dir)
}

// Content returns the entries of a directory, except a file system's own lost+found.
func Content(h *host.Host, dir string) []string {
	there, err := h.Files.ReadDir(dir)
	if err != nil {
		return nil
	}
	return lists.Pick(there, func(e fs.DirEntry) (string, bool) { return path.Join(dir, e.Name()), e.Name() != "lost+found" })
}

// strike removes a path, and everything below it, from the ledger.
func strike(h *host.Host, name string) error {
	if h.Ledger == nil {
		return nil
	}
	for _, e := range h.Ledger.Created(host.KindFile) {
		if e.Name == name || strings.HasPrefix(e.Name, name+"/") {
			if err := h.Ledger.Forget(e.Kind, e.Name); err != nil {
				return fmt.Errorf("removing %s from the ledger: %w", e.Name, err)
			}
		}
	}
	return nil
}

// RemoveEmpty removes a node's directories that are empty and did not exist before. It removes nothing on a disk mounted among the volume
// directories, and no links, which belong to their owners.
func RemoveEmpty(h *host.Host) {
	if !NodeOf(h).Made {
		return
	}
	volumes := slices.DeleteFunc(volumeDirectories(), func(d string) bool { return onDisk(h, d) })
	for _, d := range slices.Concat(directories(), volumes) {
		if !theirs(h, d) && !Disk(h, d) {
			_ = h.Files.Remove(d) // not empty, or a mount point: it stays
		}
	}
}

// onDisk reports whether a directory, or one above it, is a disk. Top-level directories such as /opt belong to the machine and do not count.
func onDisk(h *host.Host, dir string) bool {
	for ; strings.Count(dir, "/") > 1; dir = path.Dir(dir) {
		if Disk(h, dir) {
			return true
		}
	}
	return false
}

// resolved returns a path with its links resolved, because the kernel lists mounts without links. A path that cannot be resolved stays.
func resolved(h *host.Host, name string) string {
	root, err := filepath.EvalSymlinks(h.Files.Path("/"))
	if err != nil {
		return name
	}
	to, err := filepath.EvalSymlinks(h.Files.Path(name))
	if err != nil {
		return name
	}
	return path.Join("/", strings.TrimPrefix(to, root))
}

// MountPoints returns the mounts at or below a directory, the deepest first, under that directory's name: it, or one above it, may be a link.
func MountPoints(h *host.Host, dir string) ([]string, error) {
	all, err := allMounts(h)
	at := resolved(h, dir)
	out := lists.Pick(all, func(m disk.Mount) (string, bool) {
		return dir + strings.TrimPrefix(m.At, at), m.At == at || strings.HasPrefix(m.At, at+"/")
	})
	slices.Reverse(out)
	return out, err
}

// allMounts returns the mounts of this machine in the order in which they were made.
func allMounts(h *host.Host) ([]disk.Mount, error) {
	raw, err := h.Files.ReadFile(disk.MountTable)
	if errors.Is(err, fs.ErrNotExist) && h.Files.Root != "" {
		return nil, nil // a directory that stands in for a machine has no kernel
	}
	if err != nil {
		return nil, cannotLook("mounts", "cat "+disk.MountTable, "mount -t proc proc /proc", err)
	}
	return disk.Mounts(string(raw)), nil
}

// Mounts returns the mounts of this node's pods and plugins.
func Mounts(h *host.Host) ([]string, error) {
	if !NodeOf(h).Made {
		return nil, nil
	}
	var out []string
	for _, d := range []string{"pods", "plugins"} {
		m, err := MountPoints(h, path.Join(kubeletDir, d))
		if err != nil {
			return nil, err
		}
		out = append(out, m...)
	}
	volumes, err := volumesOnNode(h)
	return append(out, volumes...), err
}

// ImagesDir is the mount point of the image service's volume on its node while its pod runs.
const ImagesDir = "/opt/cloud/workspace/data/glance"

// volumesOnNode returns the mounts at ImagesDir that a killed pod left behind: mounts of a directory that a provisioner named after a volume, or of
// anything that the kubelet has also mounted for a pod, as with volumes that are their own file system. A disk that a person mounted there does not count.
func volumesOnNode(h *host.Host) ([]string, error) {
	all, err := allMounts(h)
	at, pods := resolved(h, ImagesDir), resolved(h, kubeletDir)+"/"
	ofPods := map[string]bool{}
	for _, m := range all {
		if strings.HasPrefix(m.At, pods) {
			ofPods[m.Device+m.Root] = true
		}
	}
	var out []string
	for _, m := range all {
		switch {
		case m.At != at:
		case strings.Contains(m.Root, "/pvc-") || ofPods[m.Device+m.Root]:
			out = append(out, ImagesDir)
		default:
			out = nil // unmounting removes the topmost mount
		}
	}
	return out, err
}

// Unmount detaches a mount even while it is in use.
func Unmount(h *host.Host, p string) error {
	if h.Files.DryRun || h.Files.Root != "" {
		return fmt.Errorf("unmounting %s: %w", p, host.ErrDryRun)
	}
	if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", p, err)
	}
	return nil
}
