// SPDX-License-Identifier: Apache-2.0

package why

import (
	"regexp"
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

// The cloud that a command of ocadm without flags concerns.
const (
	DefaultName      = "default"
	DefaultNamespace = "onecloud"
)

// Elsewhere returns the flags for a cloud with a name or namespace other than the default.
func Elsewhere(namespace, name string) string {
	out := ""
	if name != DefaultName {
		out += " --name " + name
	}
	if namespace != DefaultNamespace {
		out += " --namespace " + namespace
	}
	return out
}

// onCloud matches the commands of ocadm that concern one cloud; the second group has their arguments.
var onCloud = regexp.MustCompile(`\b(ocadm (?:why|(?:cluster|component|operation)(?: (?:backup|database|options))? [a-z-]+))([^;\n"]*)`)

// Here adds the flags of the cloud in question to the commands in a text: pasted without them, they would act on another cloud.
func Here(text, namespace, name string) string {
	flags := Elsewhere(namespace, name)
	if flags == "" {
		return text
	}
	return onCloud.ReplaceAllStringFunc(text, func(command string) string {
		m := onCloud.FindStringSubmatch(command)
		if strings.Contains(m[2], " --name ") || strings.Contains(m[2], " --namespace ") {
			return command
		}
		return m[1] + flags + m[2]
	})
}
