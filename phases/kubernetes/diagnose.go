// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/etcdlog"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

const (
	kubeletLines  = 20
	podLines      = 15
	evidenceWidth = 600
)

func diagnoseKubelet(ctx context.Context, h *host.Host, cause error) finding.Finding {
	return explain(kubeletSignatures(), finding.Errorf("OCA-3010", "The kubelet did not become healthy", "journalctl -u kubelet -n 50", "%w", cause).
		With(kubeletEvidence(ctx, h)...))
}

// diagnosePod explains why a component that runs as a static pod did not start, using its own log, those of its dependencies, and the kubelet's.
func diagnosePod(component string, needs ...string) diagnose {
	return func(ctx context.Context, h *host.Host, cause error) finding.Finding {
		if probeKubelet(ctx, h) != "" {
			return diagnoseKubelet(ctx, h, cause)
		}
		f := finding.Errorf("OCA-4010", fmt.Sprintf("The %s did not become healthy", component),
			fmt.Sprintf("look at %s/kube-system_%s-%s_*/ and journalctl -u kubelet -n 50, then run the same command again", podLogsDir, component, h.Config.Node.Name), "%w", cause)
		for _, c := range append(slices.Clone(needs), component) {
			f.Evidence = append(f.Evidence, podEvidence(h, c)...)
		}
		f.Evidence = append(f.Evidence, containerEvidence(ctx, h, append(slices.Clone(needs), component))...)
		f.Evidence = append(f.Evidence, kubeletEvidence(ctx, h)...)
		return explain(podSignatures(), f)
	}
}

func kubeletEvidence(ctx context.Context, h *host.Host) []string {
	var out []string
	state, err := h.Systemctl(ctx, "show", "kubelet", "-p", "LoadState", "-p", "ActiveState", "-p", "SubState", "-p", "NRestarts", "-p", "Result")
	if err == nil {
		out = append(out, "kubelet.service: "+strings.Join(strings.Fields(state.Stdout), " "))
	}
	logs, err := h.Exec.Run(ctx, exec.Command{Path: "journalctl", Args: []string{"-u", "kubelet", "-n", "200", "--no-pager", "-o", "cat"}})
	if err != nil {
		return out
	}
	// A kubelet that dies at startup prints a thousand lines of flags; only its error lines matter.
	lines := strings.Split(strings.TrimSpace(logs.Stdout), "\n")
	errors := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !isError(l) })
	if len(errors) == 0 {
		errors = lines
	}
	return append(out, last("kubelet: ", distinct(errors), kubeletLines)...)
}

var klogHead = regexp.MustCompile(`^[IWEF]\d{4} [\d:.]+ +\d+ `)

// distinct removes lines that differ only in their time, keeping the last one.
func distinct(lines []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, l := range slices.Backward(lines) {
		if key := klogHead.ReplaceAllString(l, ""); !seen[key] {
			seen[key] = true
			out = append(out, l)
		}
	}
	slices.Reverse(out)
	return out
}

// isError reports whether a line is a klog error, or a line in another format that mentions an error.
func isError(line string) bool {
	if line == "" {
		return false
	}
	if line[0] == 'E' || line[0] == 'F' {
		return true
	}
	l := strings.ToLower(line)
	return line[0] != 'I' && (strings.Contains(l, "err") || strings.Contains(l, "fail") || strings.Contains(l, "refus"))
}

// podEvidence returns the end of the newest log of a static pod's container.
func podEvidence(h *host.Host, component string) []string {
	file, restarts := newestLog(h, component)
	if file == "" {
		return []string{component + ": it has written no log: its container never started"}
	}
	return last(component+": ", slices.DeleteFunc(logMessages(h, file, restarts), helpLine.MatchString), podLines)
}

// helpLine matches the help text that a program prints when it refuses a flag: hundreds of lines, which would hide the reason.
var helpLine = regexp.MustCompile(`^(\s*(-\w, )?--[\w-]+ .*|[A-Z][\w ]* flags:|Usage:.*|\s*)$`)

// logMessages returns the messages in a container's log. A container that has just restarted has written none: those of its former start show why it ended.
func logMessages(h *host.Host, file string, restarts int) []string {
	raw, err := h.Files.ReadFile(file)
	if err != nil {
		return nil
	}
	if len(raw) == 0 && restarts > 0 {
		return logMessages(h, path.Join(path.Dir(file), fmt.Sprintf("%d.log", restarts-1)), 0)
	}
	var lines []string
	for line := range bytes.Lines(raw) {
		message := criMessage(strings.TrimSpace(string(line)))
		if strings.HasPrefix(message, "goroutine ") {
			break // the panic message came before; the stack trace does not help
		}
		lines = append(lines, message)
	}
	return lines
}

// Failure returns the last error in the newest log of a container on this node ("" if there is none), and the container's restart count. pod is a pattern:
// NAMESPACE_NAME.
func Failure(h *host.Host, pod, container string) (line string, restarts int) {
	file, restarts := NewestLog(h, pod, container)
	for _, l := range slices.Backward(logMessages(h, file, restarts)) {
		if isError(l) {
			return clip(klogHead.ReplaceAllString(l, "")), restarts
		}
	}
	return "", restarts
}

// newestLog returns the log of a static pod's latest container, and its restart count: the files are 0.log, 1.log …
func newestLog(h *host.Host, component string) (file string, restarts int) {
	return NewestLog(h, fmt.Sprintf("kube-system_%s-%s", component, h.Config.Node.Name), component)
}

// NewestLog returns the log of the latest start of a container on this node, "" if there is none, and its restart count. pod is a pattern: NAMESPACE_NAME.
// The pod that has written last counts: a changed manifest makes another static pod of the same name, whose count begins anew, and the logs of the former
// one stay for a while.
func NewestLog(h *host.Host, pod, container string) (file string, restarts int) {
	files := h.Files.Glob(fmt.Sprintf("%s/%s_*/%s/*.log", podLogsDir, pod, container))
	written := map[string]time.Time{} // by directory
	for _, f := range files {
		if st, err := h.Files.Stat(f); err == nil && st.ModTime().After(written[path.Dir(f)]) {
			written[path.Dir(f)] = st.ModTime()
		}
	}
	for _, f := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(path.Base(f), ".log"))
		if err != nil {
			continue
		}
		if later := written[path.Dir(f)].Compare(written[path.Dir(file)]); file == "" || later > 0 || later == 0 && n > restarts {
			file, restarts = f, n
		}
	}
	return file, restarts
}

// criMessage strips the time, stream and tag from a line of a container's log.
func criMessage(line string) string {
	parts := strings.SplitN(line, " ", 4)
	switch {
	case len(parts) < 3 || parts[1] != "stdout" && parts[1] != "stderr":
		return line
	case len(parts) == 3: // an empty line
		return ""
	}
	return parts[3]
}

func containerEvidence(ctx context.Context, h *host.Host, components []string) []string {
	res, err := h.Exec.Run(ctx, exec.Command{Path: "ctr", Args: []string{"-n", "k8s.io", "containers", "list"}})
	if err != nil {
		return []string{"containerd: " + clip(err.Error())}
	}
	return lists.Pick(components, func(c string) (string, bool) {
		return "containerd: it has no container of " + c, !strings.Contains(res.Stdout, "/"+c+":")
	})
}

func last(prefix string, lines []string, n int) []string {
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" })
	return lists.Map(lines[max(0, len(lines)-n):], func(l string) string { return prefix + clip(l) })
}

// clip shortens a long line in the middle: programs that wrap errors put the cause last.
func clip(s string) string {
	const head = evidenceWidth / 3
	if len(s) <= evidenceWidth {
		return s
	}
	return strings.ToValidUTF8(s[:head], "") + " … " + strings.ToValidUTF8(s[len(s)-(evidenceWidth-head):], "")
}

// kubeadmFailed returns a finding for a failed kubeadm phase.
func kubeadmFailed(ctx context.Context, args []string, err error) error {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	name := strings.Join(args[:phaseWords(args)], " ")
	out, _ := exec.Output(err)
	return explain(kubeadmSignatures(), finding.New("OCA-4001", "kubeadm "+name+" failed", cmp.Or(kubeadmCause(out), err.Error()),
		"read the evidence, correct the problem, and run the same command again: it continues where it stopped").
		With(last("kubeadm: ", kubeadmLines(out), kubeletLines)...).Wrap(err))
}

// kubeadmLines returns the meaningful lines of kubeadm's output.
func kubeadmLines(out string) []string {
	return slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool {
		return strings.TrimSpace(l) == "" || strings.HasPrefix(l, "To see the stack trace")
	})
}

// kubeadmCause returns the last of those lines, which is kubeadm's error.
func kubeadmCause(out string) string {
	lines := kubeadmLines(out)
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "error: ")
}

func phaseWords(args []string) int {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }); i >= 0 {
		return i
	}
	return len(args)
}

// signature is a log line that explains why something does not start. The first match wins, so specific ones come first.
type signature struct {
	code   string
	match  *regexp.Regexp
	cause  string // may contain one %s for the first group of match
	remedy string // likewise
}

func kubeletSignatures() []signature {
	return []signature{
		{"OCA-3011", regexp.MustCompile(`(?i)cgroup v1|cgroups? v1`), "the kubelet refuses to run on cgroup v1",
			"boot with systemd.unified_cgroup_hierarchy=1 on the kernel command line, or run again with --allow-cgroup-v1"},
		{"OCA-3012", regexp.MustCompile(`(?i)running with swap on`), "swap is on", "swapoff -a && systemctl mask swap.target"},
		{"OCA-3013", regexp.MustCompile(`(?i)containerd\.sock: connect|validate service connection|container runtime is not running|failed to run Kubelet.*runtime service`),
			"containerd does not answer on its socket", "systemctl status containerd; journalctl -u containerd -n 50"},
		{"OCA-3014", regexp.MustCompile(`(?i)unit kubelet\.service (could not be found|not found)|LoadState=not-found`), "the kubelet's unit is not installed",
			"ocadm init, which installs it"},
		{"OCA-3015", regexp.MustCompile(`(?i)kubelet cgroup driver: .* is different from`), "kubelet and containerd use different cgroup drivers",
			"set SystemdCgroup = true in /etc/containerd/config.toml and restart containerd"},
		{"OCA-3016", regexp.MustCompile(`(?i)/dev/kmsg: no such file`), "this machine has no /dev/kmsg", "mknod /dev/kmsg c 1 11"},
		{"OCA-3017", regexp.MustCompile(`(?i)no space left on device`), "a disk is full", "df -h / /var/lib/kubelet /var/lib/containerd"},
		{"OCA-3018", regexp.MustCompile(`(?i)listen tcp [^ ]*:(\d+): bind: address already in use`), "port %s is in use by another program", "ss -ltnp 'sport = :%s'"},
		{"OCA-3019", regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid at this machine's time",
			"timedatectl, and compare the clock with the control plane's"},
		{"OCA-3020", regexp.MustCompile(`(?i)failed to (?:parse|load) kubelet (?:flag|config)|unknown flag: (\S+)`), "the kubelet does not understand its settings",
			"journalctl -u kubelet -n 50"},
	}
}

func podSignatures() []signature {
	return []signature{
		{"OCA-4011", regexp.MustCompile(`(?i)listen tcp[46]? [^ ]*:(\d+): bind: address already in use`), "port %s is in use by another program", "ss -ltnp 'sport = :%s'"},
		{"OCA-4012", regexp.MustCompile(`(?i)(?:failed to pull image|pulling image|ErrImagePull|ImagePullBackOff)[^"]*"([^"\\ ]+)\\*"`),
			"the image %s can be neither found on this node nor pulled",
			"give a bundle that contains it (--bundle), or make its registry reachable: ctr -n k8s.io images pull %s"},
		{"OCA-4013", regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`), "a disk is full", "df -h / /var/lib/etcd /var/lib/containerd"},
		{"OCA-4014", regexp.MustCompile(`cluster ID mismatch|member count is unequal|has already been bootstrapped|` + etcdlog.Damage.String()),
			"/var/lib/etcd contains the data of another cluster, or damaged data",
			"ocadm etcd status; then with several control-plane nodes ocadm etcd rejoin, with only one ocadm etcd restore; ocadm reset deletes the data"},
		{"OCA-4015", regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid at this machine's time", "timedatectl"},
		{"OCA-4016", regexp.MustCompile(`(?i)OOMKilled|out of memory|signal: killed`), "the kernel killed it for lack of memory", "free -m; dmesg | grep -i oom"},
		{"OCA-4017", regexp.MustCompile(`(?i).*(?:failed to create (?:shim task|containerd task)|runc create failed|CreatePodSandbox[^:]*): ?(.{0,200})`),
			"the runtime cannot start containers: %s", "journalctl -u containerd -n 50"},
		{"OCA-4018", regexp.MustCompile(`(?i)unknown flag: (\S+)`), "it does not support the flag %s",
			"correct the patch in " + PatchesDir + " that contains it, or compare --kubernetes-version with the image; then run the same command again"},
		{"OCA-4019", regexp.MustCompile(`unable to transform key`), "Secrets in etcd are encrypted with a key that its API server does not have",
			"copy the encryption configuration, and the patch in " + PatchesDir + " that names it, from another control-plane node; then run the same command again"},
	}
}

// explain turns the evidence of a failure into a finding.
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
		{"OCA-4106", regexp.MustCompile(`(?i)a Node with name "([^"]+)" and status "Ready" already exists`), "a Ready node named %s is already in the cluster",
			"choose another name with --node-name, or on a control-plane node: kubectl delete node %s"},
		{"OCA-4137", regexp.MustCompile(`(?i)too many learner members in cluster`), "another machine is joining etcd, which accepts one learner at a time",
			"complete the join of the other machine, or remove it with ocadm node remove if it is lost (on a control-plane node, ocadm etcd status names it); then run the command again"},
		{"OCA-4004", regexp.MustCompile(`(?i)dial tcp ([^ :]+:\d+): connect: connection refused`), "nothing listens on %s", "systemctl status kubelet; journalctl -u kubelet -n 50"},
		{"OCA-4005", regexp.MustCompile(`(?i)certificate has expired or is not yet valid`), "a certificate is not valid at this machine's time", "timedatectl"},
	}
}
