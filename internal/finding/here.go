// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"regexp"
	"strings"
)

// The cloud that a command of ocadm without flags concerns.
const (
	DefaultName      = "default"
	DefaultNamespace = "onecloud"
)

// InstallOperator is the remedy for an operator that is missing or lacks permissions. "operator install" would replace the image that init chose.
const InstallOperator = "in a cluster of ocadm init, on its first node, with the flags of init: ocadm init phase operator; in another one: ocadm operator install"

// Elsewhere returns the flags for a cloud with a name or namespace other than the default. "" means the default.
func Elsewhere(namespace, name string) string {
	out := ""
	if name != "" && name != DefaultName {
		out += " --name " + name
	}
	if namespace != "" && namespace != DefaultNamespace {
		out += " --namespace " + namespace
	}
	return out
}

// onCloud matches the commands of ocadm that concern one cloud; the second group has their arguments.
var onCloud = regexp.MustCompile(`\b(ocadm (?:why|(?:cluster|component|machine|operation)(?: (?:backup|database|options))? [a-z-]+))([^;\n"]*)`)

// Here adds the flags of the cloud in question to the commands in a text: pasted without them, they would act on another cloud.
func Here(text, namespace, name string) string {
	flags := Elsewhere(namespace, name)
	if flags == "" {
		return text
	}
	return onCloud.ReplaceAllStringFunc(text, func(command string) string {
		m := onCloud.FindStringSubmatch(command)
		if strings.Contains(m[2], " --name") || strings.Contains(m[2], " -n ") {
			return command
		}
		return m[1] + flags + m[2]
	})
}
