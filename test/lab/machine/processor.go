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

// Processor returns the processor time of everything on the machine since it booted, which does not depend on other work on the host.
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

// sharePeriod is the period over which the limit of processor time applies.
const sharePeriod = 100 * time.Millisecond

// Share limits the machine to a number of the host's processors, so that other work on the host does not change its speed. 0 removes the limit.
func (n *Node) Share(processors float64) error {
	dirs, err := cgroupDirs(n.lab.cgroup() + "/" + n.Name)
	if err != nil {
		return err
	}
	quota := int64(-1)
	if processors > 0 {
		quota = int64(processors * float64(sharePeriod.Microseconds()))
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, "cpu.cfs_quota_us")
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for name, value := range map[string]int64{"cpu.cfs_period_us": sharePeriod.Microseconds(), "cpu.cfs_quota_us": quota} {
			text := strconv.FormatInt(value, 10)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // a file of the kernel, which keeps its mode
				return fmt.Errorf("limiting the processors of %s: %w", n.Name, err)
			}
		}
		return nil
	}
	return fmt.Errorf("limiting the processors of %s: its control groups cannot", n.Name)
}
