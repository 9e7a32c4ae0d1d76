// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"strings"
)

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }

// Sysctl reads a kernel parameter, "net.ipv4.ip_forward"; white space within is one blank.
func (f Files) Sysctl(name string) (string, error) {
	raw, err := f.ReadFile(sysctlPath(name))
	return strings.Join(strings.Fields(string(raw)), " "), err
}

// SetSysctl sets a kernel parameter until the next boot and reports whether that changed anything. The ledger keeps the value before.
func (f Files) SetSysctl(name, value string) (changed bool, err error) {
	old, err := f.Sysctl(name)
	if err != nil {
		return false, err
	}
	if old == value {
		return false, nil
	}
	if err := f.wet("set", name); err != nil {
		return false, err
	}
	// Writing first reports whether it can be set at all: a machine that is a container may not set everything. After a crash here the
	// parameter is only lost from what reset restores.
	if err := os.WriteFile(f.Path(sysctlPath(name)), []byte(value), 0o644); err != nil { //nolint:gosec // its mode is the kernel's
		return false, err
	}
	if f.Ledger == nil {
		return true, nil
	}
	return true, f.Ledger.Record(Entry{Kind: KindSysctl, Name: name, Op: Changed, Previous: old})
}

// RestoreSysctl sets the parameter of a ledger's entry to what it was before, and strikes the entry.
func (f Files) RestoreSysctl(e Entry) error {
	if err := f.wet("set", e.Name); err != nil {
		return err
	}
	path := f.Path(sysctlPath(e.Name))
	if _, err := os.Stat(path); err == nil {
		if err := os.WriteFile(path, []byte(e.Previous), 0o644); err != nil { //nolint:gosec // its mode is the kernel's
			return fmt.Errorf("restoring %s: %w", e.Name, err)
		}
	}
	if f.Ledger == nil {
		return nil
	}
	return f.Ledger.Forget(e.Kind, e.Name)
}
