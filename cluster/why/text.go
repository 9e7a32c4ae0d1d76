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

// onCloud matches the commands of ocadm that concern one cloud, without their arguments.
var onCloud = regexp.MustCompile(`\bocadm (why|(cluster|component|operation)( (backup|database|options))? [a-z-]+)`)

// here adds the flags of the cloud in question to the commands in a remedy: pasted without them, they would act on another cloud.
func (f *facts) here(remedy string) string {
	return onCloud.ReplaceAllString(remedy, "${0}"+Elsewhere(f.Namespace, f.Name))
}
