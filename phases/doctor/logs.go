// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/agentlog"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// podLogDir is the kubelet's directory for container logs: NAMESPACE_POD_UID/CONTAINER/N.log, where N counts restarts.
	podLogDir = "/var/log/pods"
	// logBytes limits how much is read from the end of a file.
	logBytes = 256 << 10
	// logFiles is the number of a container's starts whose logs are read: the current one and the one before, whose last lines show why it ended.
	logFiles = 2
)

// agentPod matches the directories of agent pods, whose names are CLOUD-COMPONENT-HASH.
var agentPod = regexp.MustCompile(`^[^_]+_(.+-(?:host|glance|telegraf|lbagent)-[^_]+)_`)

// podLogs reads the logs of the agents on this machine. It skips unreadable ones.
func podLogs(files host.Files) []agentlog.Log {
	var out []agentlog.Log
	pods, _ := files.ReadDir(podLogDir) // no directory, no pods
	for _, pod := range pods {
		m := agentPod.FindStringSubmatch(pod.Name())
		if m == nil {
			continue
		}
		containers, err := files.ReadDir(path.Join(podLogDir, pod.Name()))
		if err != nil {
			continue
		}
		for _, c := range containers {
			log := agentlog.Log{Source: "pod " + m[1] + ", container " + c.Name()}
			for _, file := range lastStarts(files, path.Join(podLogDir, pod.Name(), c.Name())) {
				log.Lines = append(log.Lines, containerLines(tail(files, file))...)
			}
			if len(log.Lines) > 0 {
				out = append(out, log)
			}
		}
	}
	return out
}

// lastStarts returns the log files of a container's last starts, the oldest first.
func lastStarts(files host.Files, dir string) []string {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return nil
	}
	starts := lists.Pick(entries, func(e fs.DirEntry) (int, bool) {
		n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".log"))
		return n, err == nil
	})
	slices.Sort(starts)
	return lists.Map(starts[max(0, len(starts)-logFiles):], func(n int) string { return path.Join(dir, strconv.Itoa(n)+".log") })
}

// tail returns the end of a file, from the first complete line on.
func tail(files host.Files, name string) string {
	f, err := os.Open(files.Path(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	at := max(0, size-logBytes)
	raw := make([]byte, size-at)
	n, err := f.ReadAt(raw, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	text := string(raw[:n])
	if at > 0 {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// containerLines removes the runtime's prefix TIME STREAM P|F from each line. A line marked P continues in the next.
func containerLines(text string) []string {
	var out []string
	part := ""
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), " ", 4)
		if len(f) < 4 {
			continue
		}
		if part += f[3]; f[2] == "P" {
			continue
		}
		out, part = append(out, part), ""
	}
	if part != "" {
		out = append(out, part)
	}
	return out
}
