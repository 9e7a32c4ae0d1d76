// SPDX-License-Identifier: Apache-2.0

package status

import (
	"regexp"
	"strings"
)

// lineLimit is the maximum number of bytes quoted from a log line.
const lineLimit = 300

const timestamp = `\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:?\d\d)?`

var (
	// loudest matches lines that explain why a program terminated, strongest mark first. The services log "[fatal 2026-…] message".
	loudest = []*regexp.Regexp{
		regexp.MustCompile(`\bpanic: `), regexp.MustCompile(`(?i)\[fatal`), regexp.MustCompile(`(?i)\bfatal`), regexp.MustCompile(`(?i)error`),
	}
	// frame matches a line of a Go stack trace: a file and offset, a call, the head of a goroutine, registers.
	frame = regexp.MustCompile(`^\t|\.go:\d+( \+0x[0-9a-f]+)?$|\+0x[0-9a-f]+$|^goroutine \d+|^created by |^[\w./*()-]+\(.*\)$|^\[signal |^exit status \d+$`)
	// moment matches the timestamp of a line, with the brackets around it. It is removed so that every round of a crash loop gives the same message.
	moment = regexp.MustCompile(`(\[` + timestamp + `\]|` + timestamp + `) ?`)
)

// lastWords selects the line that explains why a container terminated from the end of its log (at most 2048 bytes or 80 lines, see FallbackToLogsOnError
// in Kubernetes' documentation of termination messages). Of equally strong lines the last one wins; without any mark, it is the last line outside a
// stack trace.
func lastWords(log string) string {
	var lines []string
	var last string
	for raw := range strings.SplitSeq(strings.TrimRight(log, "\n"), "\n") {
		line := strings.TrimSpace(raw)
		if line == "" {
			continue
		}
		last = line
		if !frame.MatchString(strings.TrimRight(raw, " \r")) || loudest[0].MatchString(line) {
			lines = append(lines, line)
		}
	}
	for _, mark := range loudest {
		for i := len(lines) - 1; i >= 0; i-- {
			if mark.MatchString(lines[i]) {
				return quotable(lines[i])
			}
		}
	}
	if len(lines) > 0 {
		last = lines[len(lines)-1]
	}
	return quotable(last)
}

func quotable(line string) string {
	return Clip(moment.ReplaceAllString(line, ""), lineLimit)
}
