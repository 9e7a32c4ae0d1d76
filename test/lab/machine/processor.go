// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Processor is how much processor time everything on the machine has used since it booted. It says what the other work of the host does not change.
func (n *Node) Processor() (time.Duration, error) {
	dirs, err := cgroupDirs(n.lab.cgroup() + "/" + n.Name)
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of %s: %w", n.Name, err)
		}
		used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of %s: %w", n.Name, err)
		}
		return time.Duration(used), nil
	}
	return 0, fmt.Errorf("reading the processor time of %s: its control groups do not count it", n.Name)
}
