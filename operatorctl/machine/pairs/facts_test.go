// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	machine := func(n int, change ...func(*Facts)) Facts {
		f := Facts{MachineID: fmt.Sprint("id", n), MAC: fmt.Sprint("mac", n), Address: fmt.Sprint("192.0.2.", n), MTU: 1500}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	in := func(authority string, administrator bool) func(*Facts) {
		return func(f *Facts) { f.Authority, f.Administrator = authority, administrator }
	}
	clock := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.Offset = d } }
	for name, tt := range map[string]struct {
		first, second, third Facts
		known                string
		want                 map[string][]string
	}{
		"fresh machines":                              {machine(1), machine(2), machine(3), "", nil},
		"all in one cluster":                          {machine(1, in("a", true)), machine(2, in("a", false)), machine(3, in("a", false)), "a", nil},
		"a worker is in another cluster":              {machine(1, in("a", true)), machine(2, in("b", false)), machine(3), "a", map[string][]string{"b": {"error OCA-7643"}}},
		"a worker is in a cluster, and there is none": {machine(1), machine(2, in("b", true)), machine(3), "", map[string][]string{"b": {"error OCA-7643"}}},
		"the first node is a worker of another":       {machine(1, in("x", false)), machine(2), machine(3), "", map[string][]string{"a": {"error OCA-7643"}}},
		"the first node was reinstalled":              {machine(1), machine(2, in("a", false)), machine(3), "a", map[string][]string{"a": {"error OCA-7654"}}},
		"the first address is of another cluster":     {machine(1, in("x", true)), machine(2, in("a", false)), machine(3), "a", map[string][]string{"a": {"error OCA-7643"}}},
		"the first address is another's worker":       {machine(1, in("x", false)), machine(2, in("a", true)), machine(3), "a", map[string][]string{"a": {"error OCA-7643"}}},
		"the authorities were replaced":               {machine(1, in("new", true)), machine(2, in("new", true)), machine(3, in("new", false)), "a", nil},
		"copies": {machine(1), machine(2, func(f *Facts) { f.MachineID = "id1" }), machine(3, func(f *Facts) { f.MAC, f.Address = "mac1", "192.0.2.1" }), "",
			map[string][]string{"b": {"error OCA-7642"}, "c": {"error OCA-7642", "error OCA-7642"}}},
		"two host names": {machine(1, func(f *Facts) { f.Hostname = "h" }), machine(2, func(f *Facts) { f.Hostname = "h" }), machine(3), "",
			map[string][]string{"b": {"warning OCA-7642"}}},
		"nothing is known":        {Facts{}, Facts{}, Facts{}, "", nil},
		"a clock an hour off":     {machine(1), machine(2), machine(3, clock(time.Hour)), "", map[string][]string{"c": {"error OCA-7644"}}},
		"a clock a minute behind": {machine(1, clock(-time.Minute)), machine(2), machine(3), "", map[string][]string{"a": {"warning OCA-7644"}}},
		"the clock of the administrator": {machine(1, clock(time.Hour)), machine(2, clock(time.Hour)), machine(3, clock(time.Hour)), "",
			nil},
		"another MTU": {machine(1), machine(2), machine(3, func(f *Facts) { f.MTU = 9000 }), "", map[string][]string{"c": {"warning OCA-7645"}}},
	} {
		t.Run(name, func(t *testing.T) {
			found := Compare(map[string]Facts{"a": tt.first, "b": tt.second, "c": tt.third}, Group{First: "a", Authority: tt.known})
			for _, m := range []string{"a", "b", "c"} {
				var got []string
				for _, f := range found[m] {
					got = append(got, string(f.Severity)+" "+f.Code)
					if f.Remedy == "" || f.Cause == "" {
						t.Errorf("%+v", f)
					}
				}
				if !slices.Equal(got, tt.want[m]) {
					t.Errorf("%s: %v, want %v", m, got, tt.want[m])
				}
			}
		})
	}
}

func TestParseFacts(t *testing.T) {
	before := time.Unix(1000, 0)
	after := before.Add(2 * time.Second)
	for clock, want := range map[string]time.Duration{"1001.5": 0, "990.0": -10 * time.Second, "1010.0": 8 * time.Second} {
		f := parse(map[string]string{"clock": clock, "arch": "aarch64", "mtu": "1500", "administrator": "yes"}, before, after)
		if f.Offset != want || f.Architecture != "arm64" || f.MTU != 1500 || !f.Administrator || f.Ours {
			t.Errorf("%s: %+v", clock, f)
		}
	}
}

// A machine may print anything: the stored part is bounded.
func TestNote(t *testing.T) {
	v := map[string]string{}
	note(v, "hostname=a")
	for i := range 1000 {
		note(v, fmt.Sprintf("%d=x", i))
	}
	note(v, "hostname=\x1b[31m"+strings.Repeat("x", 1<<16))
	note(v, "clock=1.5")
	if len(v) != 2 || v["clock"] != "1.5" || len(v["hostname"]) > 1100 || strings.Contains(v["hostname"], "\x1b") {
		t.Errorf("%d values, one of %d bytes", len(v), len(v["hostname"]))
	}
}

// All keys that the script prints are stored.
func TestFactNames(t *testing.T) {
	for _, m := range regexp.MustCompile(`\bsay ([a-z]+) `).FindAllStringSubmatch(factsScript, -1) {
		if !slices.Contains(factNames, m[1]) {
			t.Errorf("%s is not kept", m[1])
		}
	}
}
