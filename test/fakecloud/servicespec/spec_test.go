// SPDX-License-Identifier: Apache-2.0

package servicespec_test

import (
	"testing"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range servicespec.Names() {
		p := servicespec.Lookup(name)
		if seen[name] {
			t.Errorf("%s has two rows", name)
		}
		seen[name] = true
		for key, kind := range p.Schema() {
			switch kind {
			case options.Text, options.Int, options.Uint, options.Number, options.Bool, options.List, options.Ints, options.Map:
			default:
				t.Errorf("%s: option %s has the unknown kind %q", name, key, kind)
			}
		}
		if _, known := p.Schema()[p.PortKey]; !known && p.Role == servicespec.API {
			t.Errorf("%s does not accept its own port option %s", name, p.PortKey)
		}
	}
}

func TestWhatEachProgramKnows(t *testing.T) {
	for _, tc := range []struct {
		name, key string
		want      bool
	}{
		{"region", "auto_sync_table", true},
		{"apigateway", "auto_sync_table", false},
		{"cloudmon", "exit_after_db_init", false},
		{"keystone", "auth_url", false},
		{"logger", "auth_url", true},
		{"scheduler", "scheduler_port", true},
		{"never-heard-of", "sql_connection", true},
	} {
		if _, got := servicespec.Lookup(tc.name).Schema()[tc.key]; got != tc.want {
			t.Errorf("%s knows %s: %t", tc.name, tc.key, got)
		}
	}
}
