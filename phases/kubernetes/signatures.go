// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"regexp"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
)

// signature is a log line that says why something does not start. The first one that matches wins, so the particular come first.
type signature struct {
	code   string
	match  *regexp.Regexp
	cause  string // may hold one %s for the first group of match
	remedy string // as well
}

func kubeletSignatures() []signature {
	return []signature{
		{"OCA-3011", regexp.MustCompile(`(?i)cgroup v1|cgroups? v1`), "the kubelet refuses to run on cgroup v1",
			"boot with systemd.unified_cgroup_hierarchy=1 on the kernel command line, or run again with --allow-cgroup-v1"},
		{"OCA-3012", regexp.MustCompile(`(?i)running with swap on`), "swap is on", "swapoff -a, and take swap out of /etc/fstab"},
		{"OCA-3013", regexp.MustCompile(`(?i)containerd\.sock: connect|validate service connection|container runtime is not running|failed to run Kubelet.*runtime service`),
			"containerd does not answer on its socket", "systemctl status containerd; journalctl -u containerd -n 50"},
		{"OCA-3014", regexp.MustCompile(`(?i)unit kubelet\.service (could not be found|not found)|LoadState=not-found`), "the kubelet's unit is not installed",
			"ocadm init, which installs it"},
		{"OCA-3015", regexp.MustCompile(`(?i)kubelet cgroup driver: .* is different from`), "kubelet and containerd use different cgroup drivers",
			"set SystemdCgroup = true in /etc/containerd/config.toml and restart containerd"},
		{"OCA-3016", regexp.MustCompile(`(?i)/dev/kmsg: no such file`), "this machine has no /dev/kmsg", "mknod /dev/kmsg c 1 11"},
		{"OCA-3017", regexp.MustCompile(`(?i)no space left on device`), "a disk is full", "df -h / /var/lib/kubelet /var/lib/containerd"},
		{"OCA-3018", regexp.MustCompile(`(?i)listen tcp [^ ]*:(\d+): bind: address already in use`), "port %s is taken by another program", "ss -ltnp 'sport = :%s'"},
		{"OCA-3019", regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid at this machine's time",
			"timedatectl, and compare the clock with the control plane's"},
		{"OCA-3020", regexp.MustCompile(`(?i)failed to (?:parse|load) kubelet (?:flag|config)|unknown flag: (\S+)`), "the kubelet does not understand its settings",
			"journalctl -u kubelet -n 50"},
	}
}

func podSignatures() []signature {
	return []signature{
		{"OCA-4011", regexp.MustCompile(`(?i)listen tcp[46]? [^ ]*:(\d+): bind: address already in use`), "port %s is taken by another program", "ss -ltnp 'sport = :%s'"},
		{"OCA-4012", regexp.MustCompile(`(?i)(?:failed to pull image|pulling image|ErrImagePull|ImagePullBackOff)[^"]*"([^"\\ ]+)\\*"`),
			"the image %s can be neither found on this node nor pulled",
			"give a bundle that holds it (--bundle), or make its registry reachable: ctr -n k8s.io images pull %s"},
		{"OCA-4013", regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`), "a disk is full", "df -h / /var/lib/etcd /var/lib/containerd"},
		{"OCA-4014", regexp.MustCompile(`(?i)cluster ID mismatch|member count is unequal|has already been bootstrapped|crc mismatch|wal: .*(?:broken|corrupt)|invalid database`),
			"/var/lib/etcd holds the data of another cluster, or damaged data", "ocadm reset (this deletes the data), then ocadm init"},
		{"OCA-4015", regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid at this machine's time", "timedatectl"},
		{"OCA-4016", regexp.MustCompile(`(?i)OOMKilled|out of memory|signal: killed`), "the kernel killed it for lack of memory", "free -m; dmesg | grep -i oom"},
		{"OCA-4017", regexp.MustCompile(`(?i)(?:failed to create (?:shim task|containerd task)|runc create failed|CreatePodSandbox[^:]*): ?(.{0,200})`),
			"the runtime cannot start containers: %s", "journalctl -u containerd -n 50"},
		{"OCA-4018", regexp.MustCompile(`(?i)unknown flag: (\S+)`), "it does not know the flag %s", "compare --kubernetes-version with the image"},
	}
}

// explain makes the finding of a failure from what was seen.
func explain(signatures []signature, generic finding.Finding) finding.Finding {
	text := strings.Join(generic.Evidence, "\n")
	for _, s := range signatures {
		m := s.match.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		generic.Code, generic.Cause, generic.Remedy = s.code, filled(s.cause, m), filled(s.remedy, m)
		return generic
	}
	return generic
}

func filled(s string, m []string) string {
	if len(m) > 1 && strings.Contains(s, "%s") {
		return fmt.Sprintf(s, m[1])
	}
	return s
}

func kubeadmSignatures() []signature {
	return []signature{
		{"OCA-4002", regexp.MustCompile(`(?i)(?:no space left on device|disk quota exceeded)`), "a disk is full", "df -h / /etc /var/lib"},
		{"OCA-4003", regexp.MustCompile(`(?i)read-only file system`), "a file system is mounted read-only", "findmnt -o TARGET,OPTIONS / /etc /var"},
		{"OCA-4102", regexp.MustCompile(`(?i)token id "?(\w+)"? is invalid for this cluster or it has expired`), "the token %s is unknown to the cluster, or it has expired",
			"on a control-plane node: ocadm token create --print-join-command"},
		{"OCA-4106", regexp.MustCompile(`(?i)a Node with name "([^"]+)" and status "Ready" already exists`), "a Ready node named %s is in the cluster already",
			"choose another name with --node-name, or on a control-plane node: kubectl delete node %s"},
		{"OCA-4004", regexp.MustCompile(`(?i)dial tcp ([^ :]+:\d+): connect: connection refused`), "nothing listens on %s", "systemctl status kubelet; journalctl -u kubelet -n 50"},
		{"OCA-4005", regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid at this machine's time", "timedatectl"},
	}
}
