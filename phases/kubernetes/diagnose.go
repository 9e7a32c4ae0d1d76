// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

const (
	kubeletLines  = 20
	podLines      = 15
	evidenceWidth = 400
)

func diagnoseKubelet(ctx context.Context, h *host.Host, cause error) finding.Finding {
	return explain(kubeletSignatures(), finding.Finding{
		Code: "OCA-3010", Severity: finding.Error,
		What:     "The kubelet did not become healthy",
		Cause:    cause.Error(),
		Remedy:   "journalctl -u kubelet -n 50",
		Evidence: kubeletEvidence(ctx, h),
		Err:      cause,
	})
}

// diagnosePod explains why a component that runs as a static pod did not come up: by its own log, those of what it needs, and the
// kubelet's.
func diagnosePod(component string, needs ...string) diagnose {
	return func(ctx context.Context, h *host.Host, cause error) finding.Finding {
		if probeKubelet(ctx, h) != "" {
			return diagnoseKubelet(ctx, h, cause)
		}
		f := finding.Finding{
			Code: "OCA-4010", Severity: finding.Error,
			What:   fmt.Sprintf("The %s did not become healthy", component),
			Cause:  cause.Error(),
			Remedy: fmt.Sprintf("look at %s/kube-system_%s-%s_*/ and journalctl -u kubelet -n 50, then run the same command again", podLogsDir, component, h.Config.Node.Name),
			Err:    cause,
		}
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
	show := []string{"show", "kubelet", "-p", "LoadState", "-p", "ActiveState", "-p", "SubState", "-p", "NRestarts", "-p", "Result"}
	state, err := h.Exec.Run(ctx, exec.Command{Path: "systemctl", Args: show})
	if err == nil {
		out = append(out, "kubelet.service: "+strings.Join(strings.Fields(state.Stdout), " "))
	}
	logs, err := h.Exec.Run(ctx, exec.Command{Path: "journalctl", Args: []string{"-u", "kubelet", "-n", "200", "--no-pager", "-o", "cat"}})
	if err != nil {
		return out
	}
	// A kubelet that dies at its start prints a thousand lines of flags: what it says of errors matters.
	lines := strings.Split(strings.TrimSpace(logs.Stdout), "\n")
	errors := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !isError(l) })
	if len(errors) == 0 {
		errors = lines
	}
	return append(out, last("kubelet: ", distinct(errors), kubeletLines)...)
}

var klogHead = regexp.MustCompile(`^[IWEF]\d{4} [\d:.]+ +\d+ `)

// distinct leaves of lines that differ only in their time the last one.
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

// isError picks the lines that klog marks as errors, and those that are no klog lines but speak of one.
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

// podEvidence is the end of the newest log of a static pod's container.
func podEvidence(h *host.Host, component string) []string {
	file, _ := newestLog(h, component)
	if file == "" {
		return []string{component + ": it has written no log: its container never started"}
	}
	return last(component+": ", logMessages(h, file), podLines)
}

func logMessages(h *host.Host, file string) []string {
	raw, err := h.Files.ReadFile(file)
	if err != nil {
		return nil
	}
	var lines []string
	for line := range bytes.Lines(raw) {
		message := criMessage(strings.TrimSpace(string(line)))
		if strings.HasPrefix(message, "goroutine ") {
			break // the panic itself comes before; a stack trace says nothing about the machine
		}
		lines = append(lines, message)
	}
	return lines
}

// Failure is the last error in the newest log of a container on this node ("" when there is none), and how often the container was
// restarted. pod is a pattern: NAMESPACE_NAME.
func Failure(h *host.Host, pod, container string) (line string, restarts int) {
	file, restarts := newestLogOf(h, pod, container)
	for _, l := range slices.Backward(logMessages(h, file)) {
		if isError(l) {
			return clip(klogHead.ReplaceAllString(l, "")), restarts
		}
	}
	return "", restarts
}

// newestLog is the log of a static pod's last container, and how often the container was started again: the files are 0.log, 1.log …
func newestLog(h *host.Host, component string) (file string, restarts int) {
	return newestLogOf(h, fmt.Sprintf("kube-system_%s-%s", component, h.Config.Node.Name), component)
}

func newestLogOf(h *host.Host, pod, container string) (file string, restarts int) {
	files, err := h.Files.Glob(fmt.Sprintf("%s/%s_*/%s/*.log", podLogsDir, pod, container))
	if err != nil {
		return "", 0
	}
	for _, f := range files {
		n, err := strconv.Atoi(strings.TrimSuffix(path.Base(f), ".log"))
		if err == nil && (file == "" || n > restarts) {
			file, restarts = f, n
		}
	}
	return file, restarts
}

// criMessage takes time, stream and tag off a line of a container's log.
func criMessage(line string) string {
	if parts := strings.SplitN(line, " ", 4); len(parts) == 4 && (parts[1] == "stdout" || parts[1] == "stderr") {
		return parts[3]
	}
	return line
}

func containerEvidence(ctx context.Context, h *host.Host, components []string) []string {
	res, err := h.Exec.Run(ctx, exec.Command{Path: "ctr", Args: []string{"-n", "k8s.io", "containers", "list"}})
	if err != nil {
		return []string{"containerd: " + clip(err.Error())}
	}
	var out []string
	for _, c := range components {
		if !strings.Contains(res.Stdout, "/"+c+":") {
			out = append(out, "containerd: it holds no container of "+c)
		}
	}
	return out
}

func last(prefix string, lines []string, n int) []string {
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" })
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = prefix + clip(l)
	}
	return out
}

func clip(s string) string {
	if len(s) <= evidenceWidth {
		return s
	}
	s = s[:evidenceWidth]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// kubeadmFailed makes a finding of a kubeadm phase that ended badly.
func kubeadmFailed(ctx context.Context, args []string, err error) error {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	name := strings.Join(args[:phaseWords(args)], " ")
	out, _ := exec.Output(err)
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(l string) bool {
		return strings.TrimSpace(l) == "" || strings.HasPrefix(l, "To see the stack trace")
	})
	cause := err.Error()
	for i := len(lines) - 1; i >= 0; i-- {
		if l := strings.TrimSpace(lines[i]); l != "" {
			cause = strings.TrimPrefix(l, "error: ")
			break
		}
	}
	return explain(kubeadmSignatures(), finding.Finding{
		Code: "OCA-4001", Severity: finding.Error,
		What:     "kubeadm " + name + " failed",
		Cause:    cause,
		Remedy:   "read the evidence, repair, and run the same command again: it goes on where it stopped",
		Evidence: last("kubeadm: ", lines, kubeletLines),
		Err:      err,
	})
}

func phaseWords(args []string) int {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }); i >= 0 {
		return i
	}
	return len(args)
}
