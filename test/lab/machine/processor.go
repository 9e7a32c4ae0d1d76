// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Processor returns the processor time of everything on the machine since it booted, which does not depend on other work on the host.
func (n *Node) Processor() (time.Duration, error) {
	file, err := n.controlFile("cpuacct.usage")
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s: %w", n.Name, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s: %w", n.Name, err)
	}
	used, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the processor time of %s: %w", n.Name, err)
	}
	return time.Duration(used), nil
}

// controlFile returns the file with that name in the machine's control groups.
func (n *Node) controlFile(name string) (string, error) {
	dirs, err := cgroupDirs(n.lab.cgroup() + "/" + n.Name)
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", errors.Join(err, fmt.Errorf("its control groups have no %s", name))
}

// sharePeriod is the period over which the limit of processor time applies.
const sharePeriod = 100 * time.Millisecond

// Share limits the machine to a number of the host's processors, so that other work on the host does not change its speed. 0 removes the limit.
func (n *Node) Share(processors float64) error {
	file, err := n.controlFile("cpu.cfs_quota_us")
	if err != nil {
		return fmt.Errorf("limiting the processors of %s: %w", n.Name, err)
	}
	quota := int64(-1)
	if processors > 0 {
		quota = int64(processors * float64(sharePeriod.Microseconds()))
	}
	for name, value := range map[string]int64{"cpu.cfs_period_us": sharePeriod.Microseconds(), "cpu.cfs_quota_us": quota} {
		text := strconv.FormatInt(value, 10)
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), name), []byte(text), 0o644); err != nil { //nolint:gosec // a file of the kernel, which keeps its mode
			return fmt.Errorf("limiting the processors of %s: %w", n.Name, err)
		}
	}
	return nil
}
