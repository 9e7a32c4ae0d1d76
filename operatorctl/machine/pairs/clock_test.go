// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

func TestClock(t *testing.T) {
	before := time.Unix(1000, 0)
	after := before.Add(2 * time.Second)
	for name, test := range map[string]struct {
		printed  string
		offset   time.Duration
		severity finding.Severity
	}{
		"right":         {"1001.5", 0, ""},
		"a second off":  {"999.0", -time.Second, ""},
		"a minute off":  {"1062.0", time.Minute, finding.Warning},
		"an hour ahead": {"4602.000000000", time.Hour, finding.Error},
		"an hour late":  {"-2600.0", -time.Hour, finding.Error},
		"nothing":       {"", 0, ""},
		"no number":     {"%s.%N", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			offset := Offset(test.printed, before, after)
			list := CheckClock("w1", offset)
			if offset != test.offset || (len(list) > 0) != (test.severity != "") || len(list) > 0 && (list[0].Severity != test.severity || list[0].Code != "OCA-7644") {
				t.Errorf("%s %+v", offset, list)
			}
		})
	}
}
