// SPDX-License-Identifier: Apache-2.0

package why

import (
	"regexp"
	"strings"
)

// lineBytes is how much of a line is shown as evidence.
const lineBytes = 300

var escape = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// printable takes out what a terminal would obey: the texts come from containers.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, escape.ReplaceAllString(s, ""))
}

// shorten keeps both ends of a long line: programs that wrap errors put the cause last.
func shorten(line string) string {
	line = strings.Join(strings.Fields(printable(line)), " ")
	if len(line) <= lineBytes {
		return line
	}
	const head = lineBytes / 3
	return strings.ToValidUTF8(line[:head], "") + " … " + strings.ToValidUTF8(line[len(line)-(lineBytes-head):], "")
}

func upper(name string) string { return strings.ToUpper(name) }
