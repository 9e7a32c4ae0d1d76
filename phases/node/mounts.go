// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/phases/host"
)

// mountPoints are what is mounted at or below a directory, the deepest first.
func mountPoints(h *host.Host, dir string) []string {
	raw, err := h.Files.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []string
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 {
			if p := unescape.Replace(f[1]); p == dir || strings.HasPrefix(p, dir+"/") {
				out = append(out, p)
			}
		}
	}
	slices.Reverse(out)
	return out
}

// podMounts are the mounts that pods and their runtime leave.
func podMounts(h *host.Host) []string {
	out := slices.DeleteFunc(mountPoints(h, kubeletDir), func(p string) bool { return p == kubeletDir })
	if containerdRuns(h) && !othersContainerd(h) {
		out = append(out, mountPoints(h, "/run/containerd")...)
	}
	return out
}

const kubeletDir = "/var/lib/kubelet"

// mounted tells whether a directory is a disk of the user's, mounted there on purpose.
func mounted(h *host.Host, dir string) bool {
	return !strings.HasPrefix(dir, "/run/") && slices.Contains(mountPoints(h, dir), dir)
}

func unmountBelow(h *host.Host, dir string) error {
	for _, p := range mountPoints(h, dir) {
		if p == dir && mounted(h, dir) {
			continue
		}
		if err := unmount(h, p); err != nil {
			return err
		}
	}
	return nil
}

// unmount lets go of a mount even while something uses it.
func unmount(h *host.Host, p string) error {
	if h.Files.DryRun || h.Files.Root != "" {
		return fmt.Errorf("unmounting %s: %w", p, host.ErrDryRun)
	}
	if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting %s: %w", p, err)
	}
	return nil
}
