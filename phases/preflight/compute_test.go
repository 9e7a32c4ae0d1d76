// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/config"
)

func TestComputeStorage(t *testing.T) {
	tests := map[string]struct {
		change func(*testing.T, *machine)
		code   string // "" for no finding
		says   string
	}{
		"the default, not made yet": {func(*testing.T, *machine) {}, "", ""},
		"not mounted":               {func(_ *testing.T, m *machine) { m.h.Config.Node.HostLocalImagePath = []string{"/data"} }, compute.CodeImagePath, "does not exist"},
		"a file": {func(t *testing.T, m *machine) {
			put(t, m.h, "/data", "")
			m.h.Config.Node.HostLocalImagePath = []string{"/data"}
		}, compute.CodeImagePath, "not a directory"},
		"a directory": {func(t *testing.T, m *machine) {
			put(t, m.h, "/data/x", "")
			m.h.Config.Node.HostLocalImagePath = []string{"/data"}
		}, "", ""},
		"full": {func(_ *testing.T, m *machine) {
			m.disk = func(string) (uint64, uint64, error) { return 1, 127 * mib, nil }
		}, compute.CodeImagePath, "127 MiB"},
		"unreadable": {func(_ *testing.T, m *machine) {
			m.disk = func(string) (uint64, uint64, error) { return 0, 0, errors.New("no") }
		}, compute.CodeImagePath, "no"},
		"no pages": {func(_ *testing.T, m *machine) { m.h.Config.Node.Hugepages = "native" }, compute.CodeHugepages, "nr_hugepages is missing"},
		"none reserved": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Hugepages = "native"
			put(t, m.h, "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n")
		}, compute.CodeHugepages, "is 0"},
		"reserved": {func(t *testing.T, m *machine) {
			m.h.Config.Node.Hugepages = "native"
			put(t, m.h, "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "16\n")
		}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := goodMachine(t)
			tt.change(t, m)
			got := checkComputeStorage(t.Context(), m)
			if tt.code == "" && len(got) > 0 || tt.code != "" && (len(got) != 1 || got[0].Code != tt.code || !strings.Contains(got[0].What+got[0].Cause, tt.says)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// A node without virtual machines needs none of these checks.
func TestComputeChecksApplyToComputeNodes(t *testing.T) {
	for _, c := range computeChecks() {
		if c.Applies(Join, &config.Config{}) || !c.Applies(Join, &config.Config{Node: config.Node{EnableHostAgent: true}}) {
			t.Errorf("%s", c.Name)
		}
	}
}
