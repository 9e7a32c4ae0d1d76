// SPDX-License-Identifier: Apache-2.0

package disk

import "strings"

// MountTable lists the mounts that this process sees, in the order in which they were made: proc_pid_mountinfo(5).
const MountTable = "/proc/self/mountinfo"

// Mount is a line of MountTable.
type Mount struct {
	// At is the mount point. What is mounted there is directory Root of a file system on Device, MAJOR:MINOR.
	At, Root, Device string
	// Kind is the type of the file system: "ext4". Source names where it comes from: "/dev/sda1".
	Kind, Source string
	Options      []string
}

// Mounts parses the text of MountTable. Other lines are ignored.
func Mounts(table string) []Mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []Mount
	for line := range strings.Lines(table) {
		left, right, _ := strings.Cut(line, " - ")
		if l, r := strings.Fields(left), strings.Fields(right); len(l) > 5 && len(r) > 1 {
			out = append(out, Mount{Device: l[2], Root: unescape.Replace(l[3]), At: unescape.Replace(l[4]), Options: strings.Split(l[5], ","),
				Kind: r[0], Source: unescape.Replace(r[1])})
		}
	}
	return out
}
