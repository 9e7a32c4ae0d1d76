// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// bind is a directory of the host that is mounted in a machine.
type bind struct {
	Source, Target string
	Writable       bool
}

// container holds the inputs of a machine's runtime configuration.
type container struct {
	Hostname     string
	NetNS        string
	CgroupsPath  string
	Capabilities []string
	Binds        []bind
}

// spec returns the runc configuration of a machine: new namespaces of every kind, all devices allowed, nothing masked. It sets no resource limits,
// because a host may lack the right to set them.
func spec(c container) *specs.Spec {
	return &specs.Spec{
		Version:  "1.0.2",
		Hostname: c.Hostname,
		Root:     &specs.Root{Path: "root"},
		Process: &specs.Process{
			Args: []string{"/sbin/init"},
			Cwd:  "/",
			Env:  []string{"container=oci", "PATH=" + searchPath, "LANG=C.UTF-8"},
			Capabilities: &specs.LinuxCapabilities{
				Bounding: c.Capabilities, Effective: c.Capabilities, Permitted: c.Capabilities,
			},
		},
		Mounts: mounts(c.Binds),
		Linux: &specs.Linux{
			CgroupsPath:       c.CgroupsPath,
			RootfsPropagation: "shared",
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
				{Type: specs.CgroupNamespace}, {Type: specs.NetworkNamespace, Path: c.NetNS},
			},
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
			// The kubelet reads the kernel's messages.
			Devices: []specs.LinuxDevice{{Path: "/dev/kmsg", Type: "c", Major: 1, Minor: 11, FileMode: new(os.FileMode(0o644))}},
		},
	}
}

func mounts(binds []bind) []specs.Mount {
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "rw"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "rw"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=755"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}},
	}
	for _, b := range binds {
		// The mount is private first: mounts that the machine makes below must never appear on the host.
		options := []string{"rbind", "rprivate", "ro"}
		if b.Writable {
			options = []string{"rbind", "rprivate", "rshared", "rw"}
		}
		list = append(list, specs.Mount{Destination: b.Target, Type: "bind", Source: b.Source, Options: options})
	}
	return list
}

// capabilityNames are the kernel's capabilities, by number.
var capabilityNames = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW",
	"CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT",
	"CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD",
	"CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
	"CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

// capabilities returns the capabilities that this process may pass on. A host in a sandbox has fewer, and a machine must not ask for more.
func capabilities() []string {
	var names []string
	for number, name := range capabilityNames {
		held, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0)
		if err == nil && held == 1 {
			names = append(names, name)
		}
	}
	return names
}
