// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"encoding/json"
	"strings"
	"testing"

	"yunion.io/x/ocadm/templates/setup"
	"yunion.io/x/ocadm/test/require"
)

// The API takes files of a playbook as arrays of numbers: base64 is refused.
func TestTemplateFilesAreNumbers(t *testing.T) {
	records, err := devtoolRecords()
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	data, err := json.Marshal(records["install-telegraf-on-centos"])
	require.NoError(t, err)
	var got struct {
		Playbook struct {
			Files map[string][]int
		}
	}
	require.NoError(t, json.Unmarshal(data, &got))
	var text []byte
	for _, n := range got.Playbook.Files["conf"] {
		text = append(text, byte(n))
	}
	if !strings.Contains(string(text), "[[inputs.mem]]\n") {
		t.Errorf("conf is %q", text)
	}
}

func TestSetupRecords(t *testing.T) {
	records, err := setupRecords(setup.Alerts)
	if err != nil || len(records) != 13 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for _, r := range records {
		if r["name"] == "" || r["name"] != r["meta_name"] || r["metric_query"] == nil {
			t.Errorf("%v", r)
		}
	}
}
