// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// answerTimeout is generous for a program that does nothing.
	answerTimeout = 10 * time.Second
	mebibyte      = 1 << 20
	// imageSpace is the free space that the host agent requires for disks.
	imageSpace = 128 * mebibyte
)

// directories checks the directories that the agents' pods mount. The pods wait until they exist (hostPath volumes of type Directory).
func directories(_ context.Context, h *host.Host) []finding.Finding {
	missing := lists.Filter([]string{"/etc/yunion", "/opt/cloud", "/usr/local", "/dev", "/sys", "/tmp"}, func(dir string) bool {
		info, err := h.Files.Stat(dir)
		return err != nil || !info.IsDir()
	})
	if len(missing) == 0 {
		return nil
	}
	list := strings.Join(missing, " ")
	return []finding.Finding{finding.New(CodeDirectory, "Directories that the agents mount are missing: "+list,
		"their pods stay in ContainerCreating", "mkdir -p "+list)}
}

// disks warns before the kubelet evicts pods, including the agents.
func disks(_ context.Context, h *host.Host) []finding.Finding {
	all := disksOf(h.Files, "", "/opt/cloud", "/var/lib/kubelet", "/var/lib/containerd", "/var/log")
	return lists.Pick(all, func(d why.Disk) (finding.Finding, bool) {
		return finding.Warn(CodeDisk, "The disk of "+d.What+" is nearly full: "+d.Space(), d.Limits()+"; disks of virtual machines need space, too",
			"df -h "+d.What+"; du -xh --max-depth=2 "+d.What+" | sort -h | tail"), d.Full() || d.NearlyFull()
	})
}

// statfs asks the kernel. It is a variable so that tests do not depend on the disk that they run on.
var statfs = unix.Statfs

// filesystem returns the file system that holds a directory, or will hold it.
func filesystem(files host.Files, dir string) (unix.Statfs_t, bool) {
	var fs unix.Statfs_t
	for {
		if statfs(files.Path(dir), &fs) == nil {
			return fs, true
		}
		if dir == "/" {
			return fs, false
		}
		dir = path.Dir(dir)
	}
}

func free(files host.Files, dir string) (uint64, bool) {
	fs, ok := filesystem(files, dir)
	return fs.Bavail * uint64(fs.Bsize), ok
}
