// SPDX-License-Identifier: Apache-2.0

package servicespec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/test/fakecloud/servicespec"
	"yunion.io/x/ocadm/test/require"
)

func TestParse(t *testing.T) {
	schema := servicespec.NewSchema("region port:int enable_ssl:bool formats:list ratio:number names:map")
	for _, tc := range []struct {
		name, file, err string
		want            servicespec.Values
	}{
		{name: "yaml", file: "region: region0\nport: 30888\nenable_ssl: true\nformats: [qcow2, vmdk]\n",
			want: servicespec.Values{"region": "region0", "port": int64(30888), "enable_ssl": true, "formats": []string{"qcow2", "vmdk"}}},
		{name: "quoted", file: `{"port": "30888", "enable_ssl": "true"}`, want: servicespec.Values{"port": int64(30888), "enable_ssl": true}},
		{name: "numbers and mappings", file: "ratio: 1.50\nnames: {en: Cloud}\n", want: servicespec.Values{"ratio": "1.5", "names": map[string]any{"en": "Cloud"}}},
		{name: "no number", file: "ratio: much\n", err: "Parse configuration file: Misformated line: ratio: much"},
		{name: "no mapping", file: "names: Cloud\n", err: "Parse configuration file: Misformated line: names: Cloud"},
		{name: "wrong type", file: "region: region0\nport: many\n", err: "Parse configuration file: Misformated line: region: region0"},
		{name: "list for a word", file: "region: [a]\n", err: "Parse configuration file: Misformated line: region: [a]"},
		{name: "unknown", file: "regon: x\n", err: `Parse configuration file: unknown option "regon" in f (the real service ignores it in silence)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := servicespec.Parse("f", schema, []byte(tc.file))
			if text := message(err); text != tc.err {
				t.Fatalf("error %q, want %q", text, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseArgs(t *testing.T) {
	schema := servicespec.NewSchema("port:int auto_sync_table:bool")
	values, files, err := servicespec.ParseArgs(schema, []string{"--auto-sync-table", "--config", "b", "--common-config-file=a", "--port=1"})
	require.NoError(t, err)
	if diff := cmp.Diff(servicespec.Values{"auto_sync_table": true, "port": int64(1)}, values); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, files); diff != "" {
		t.Error(diff)
	}
	if _, _, err := servicespec.ParseArgs(schema, []string{"--nope"}); message(err) != "Unknown optional argument --nope" {
		t.Error(err)
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
