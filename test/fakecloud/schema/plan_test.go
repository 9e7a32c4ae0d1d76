// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"slices"
	"strings"
	"testing"
)

var releases = []string{"v3.9.1", "v3.10.5", "v3.11.9", "v4.0.2", "v4.0.3", "v4.0.4"}

func TestPlanNothing(t *testing.T) {
	for _, release := range releases {
		for _, service := range []string{"region", "keystone"} {
			if plan := Plan(Tables(service, release), Tables(service, release)); len(plan) > 0 {
				t.Errorf("%s %s: %s", service, release, plan)
			}
		}
	}
}

// TestPlanForward checks that every release changes something, that columns with new names are renamed, and that nothing is dropped.
func TestPlanForward(t *testing.T) {
	want := map[string][]string{
		"v3.10.5": {"MODIFY COLUMN `description` text", "ADD COLUMN `progress` int NOT NULL DEFAULT '0'"},
		"v3.11.9": {"MODIFY COLUMN `index_no` int"},
		"v4.0.2":  {"MODIFY COLUMN `external_id` varchar(512)", "CHANGE COLUMN `obj_name` `obj_type` varchar(128) NULL", "ADD COLUMN `obj_name` varchar(256)", "ADD COLUMN `project_src` varchar(10) NOT NULL"},
		"v4.0.3":  {"CHANGE COLUMN `rx_traffic_used` `rx_bytes` bigint NULL", "ADD INDEX `external_id`"},
		"v4.0.4":  {"ADD COLUMN `is_draining`", "CREATE TABLE IF NOT EXISTS `guest_isolated_devices_tbl`"},
	}
	for i, release := range releases[1:] {
		check(t, release, Plan(Tables("region", releases[i]), Tables("region", release)), want[release])
	}
}

// TestPlanBack checks that an older release narrows what the newer one widened, adds what is missing, and makes its own inserts work.
func TestPlanBack(t *testing.T) {
	plan := Plan(Tables("region", "v4.0.4"), Tables("region", "v3.11.9"))
	check(t, "back", plan, []string{
		"MODIFY COLUMN `external_id` varchar(256)", "MODIFY COLUMN `ip_addr` varchar(16) NOT NULL", "ADD COLUMN `rx_traffic_used`",
		"MODIFY COLUMN `obj_name` varchar(128)", "MODIFY COLUMN `project_src` varchar(10) NULL", "DROP INDEX `external_id`", "`dev_type` varchar(16)",
	})
	for _, s := range plan {
		if strings.Contains(s, "DROP COLUMN") || strings.Contains(s, "DROP TABLE") {
			t.Error(s)
		}
	}
}

func check(t *testing.T, what string, plan, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(plan, func(s string) bool { return strings.Contains(s, w) }) {
			t.Errorf("%s: no %s in\n%s", what, w, strings.Join(plan, "\n"))
		}
	}
}
