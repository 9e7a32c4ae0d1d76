// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"regexp"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
)

const permissive = "setenforce 0 && sed -i 's/^SELINUX=enforcing/SELINUX=permissive/' /etc/selinux/config"

var (
	selinuxType   = regexp.MustCompile(`(?m)^\s*SELINUXTYPE\s*=\s*(\w+)`)
	enableSELinux = regexp.MustCompile(`(?m)^\s*enable_selinux\s*=\s*true`)
)

// checkSELinux looks at a machine on which SELinux is enforcing. The containerd of ocadm does not label containers (enable_selinux is
// off, its default), so they run in containerd's own domain: in the policy "targeted" that is an unconfined one, and with the policy of
// package container-selinux it is container_runtime_t, which is unconfined as well. What cannot work is a policy without unconfined
// domains, and a containerd that does label: the directories of the host that pods of the cluster mount have no label for containers.
func checkSELinux(_ context.Context, m *machine) []finding.Finding {
	if strings.TrimSpace(m.h.Files.Text("/sys/fs/selinux/enforce")) != "1" {
		return nil // off, permissive, or not in the kernel
	}
	if policy := selinuxType.FindStringSubmatch(m.h.Files.Text("/etc/selinux/config")); policy != nil && policy[1] != "targeted" {
		return []finding.Finding{finding.New("OCA-1026", "SELinux would confine containerd and the kubelet",
			"it is enforcing with the policy "+policy[1]+", which has no rules for them", permissive)}
	}
	if enableSELinux.MatchString(m.h.Files.Text("/etc/containerd/config.toml")) {
		return []finding.Finding{finding.New("OCA-1026", "SELinux would keep pods from the directories of this machine",
			"it is enforcing, and enable_selinux = true in /etc/containerd/config.toml confines containers; what the cluster's pods mount from this machine is not labelled for them",
			"set enable_selinux = false and run systemctl restart containerd; or "+permissive)}
	}
	cause := "ocadm sets up no confinement: containers run in containerd's domain, which the policy leaves unconfined"
	if !m.h.Files.Any("/var/lib/selinux/*/active/modules/*/container", "/etc/selinux/*/active/modules/*/container") {
		cause += "; the policy for containers is not installed (" + m.h.Facts.OS.Install("container-selinux") + ")"
	}
	return []finding.Finding{finding.Warn("OCA-1026", "SELinux is enforcing", cause,
		"if a service reports \"Permission denied\", look at ausearch -m avc -ts recent, and make SELinux permissive: "+permissive)}
}
