// SPDX-License-Identifier: Apache-2.0

package why

import (
	"strings"

	"yunion.io/x/ocadm/internal/agentlog"
)

// lineBytes is the maximum length of a line of evidence.
const lineBytes = 300

// shorten keeps both ends of a long line: programs that wrap errors put the cause last.
func shorten(line string) string {
	line = strings.Join(strings.Fields(agentlog.Printable(line)), " ")
	if len(line) <= lineBytes {
		return line
	}
	const head = lineBytes / 3
	return strings.ToValidUTF8(line[:head], "") + " … " + strings.ToValidUTF8(line[len(line)-(lineBytes-head):], "")
}
