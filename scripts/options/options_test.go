// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/test/require"
)

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{
		"":                 "",
		"Port":             "port",
		"port":             "port",
		"SqlConnection":    "sql_connection",
		"DBChecksum":       "db_checksum",
		"VMs":              "vms",
		"EnableSSL":        "enable_ssl",
		"SSLCertfile":      "ssl_certfile",
		"AuthURL":          "auth_url",
		"S3Endpoint":       "s3_endpoint",
		"DefaultIPv6Mask":  "default_ipv6_mask",
		"already_snake":    "already_snake",
		"kebab-case":       "kebab_case",
		"two.words":        "two_words",
		"OVSDBServer":      "ovsdb_server",
		"RequestID2Record": "request_id2_record",
	} {
		if got := snake(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestTypeOf(t *testing.T) {
	for text, want := range map[string]options.Type{
		"string": options.Text, "bool": options.Bool, "int": options.Int, "int64": options.Int, "uint8": options.Uint, "float64": options.Number,
		"*bool": options.Bool, "**int": options.Int, "[]string": options.List, "[]int": options.Ints, "[]int64": options.Ints,
		"map[string]string": options.Map, "map[string]int": options.Map,
		"[]bool": "", "chan int": "", "time.Duration": "", "func()": "", "struct{}": "", "any": "", "[][]string": "",
	} {
		e, err := parser.ParseExpr(text)
		require.NoError(t, err)
		if got, ok := typeOf(e); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t, want %q", text, got, ok, want)
		}
	}
}

func TestEmbedded(t *testing.T) {
	imports := map[string]string{"common": cloud + "/pkg/cloudcommon/options", "structarg": "yunion.io/x/structarg"}
	at := ref{cloud, "pkg/image/options", "SImageOptions"}
	for text, want := range map[string]ref{
		"Local":                    {cloud, "pkg/image/options", "Local"},
		"*Local":                   {cloud, "pkg/image/options", "Local"},
		"common.CommonOptions":     {cloud, "pkg/cloudcommon/options", "CommonOptions"},
		"*common.DBOptions":        {cloud, "pkg/cloudcommon/options", "DBOptions"},
		"structarg.BaseOptions":    {"yunion.io/x/structarg", "", "BaseOptions"},
		"struct{ A int }":          {},
		"unknown.Options":          {"", "", "Options"},
		"(interface{ Generic() })": {},
	} {
		e, err := parser.ParseExpr(text)
		require.NoError(t, err)
		if got := embedded(e, at, imports); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestSplit(t *testing.T) {
	for path, want := range map[string][2]string{
		"yunion.io/x/onecloud/pkg/image/options": {"yunion.io/x/onecloud", "pkg/image/options"},
		"yunion.io/x/structarg":                  {"yunion.io/x/structarg", ""},
		"time":                                   {"time", ""},
	} {
		if module, dir := split(path); module != want[0] || dir != want[1] {
			t.Errorf("%s: %q %q, want %q", path, module, dir, want)
		}
	}
}

func TestSources(t *testing.T) {
	s := sources{}
	if err := s.Set("yunion.io/x/onecloud=../cloudpods=a"); err != nil || s[cloud] != "../cloudpods=a" {
		t.Errorf("%v, %v", s, err)
	}
	if err := s.Set("../cloudpods"); err == nil || !strings.Contains(err.Error(), "MODULE=DIRECTORY") {
		t.Errorf("a directory alone: %v", err)
	}
}

// field parses the only field of a struct.
func field(t *testing.T, text string) *ast.Field {
	t.Helper()
	e, err := parser.ParseExpr("struct{ " + text + " }")
	require.NoError(t, err)
	return e.(*ast.StructType).Fields.List[0]
}

func TestAdd(t *testing.T) {
	for _, c := range []struct {
		name, field, key string
		want             options.Option
	}{
		{"plain", "PortV2 int", "port_v2", options.Option{Type: options.Int}},
		{"help and default", "Region string `help:\"Region name\" default:\"region0\"`", "region", options.Option{Type: options.Text, Default: "region0"}},
		{"name in the file", "ListenAddress string `token:\"address\"`", "address", options.Option{Type: options.Text, Stored: "listen_address"}},
		{"name in JSON is how it is stored", "Enable *bool `json:\"enable_it,omitempty\" token:\"enable\"`", "enable", options.Option{Type: options.Bool, Stored: "enable_it"}},
		{"name with hyphens", "Auth string `token:\"auth-uri\"`", "auth_uri", options.Option{Type: options.Text, Stored: "auth"}},
		{"alias", "Timeout int `alias:\"request-timeout\"`", "timeout", options.Option{Type: options.Int, Alias: "request_timeout"}},
		{"choices", "Driver string `choices:\"a|b||c\"`", "driver", options.Option{Type: options.Text, Choices: []string{"a", "b", "c"}}},
		{"default list", "Formats []string `default:\"a,b\"`", "formats", options.Option{Type: options.List, Default: "[a, b]"}},
		{"default of a secret", "AdminPassword string `default:\"x\"`", "admin_password", options.Option{Type: options.Text}},
		{"list", "Zones []string", "zones", options.Option{Type: options.List}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &options.File{Options: map[string]options.Option{}, Extra: map[string]options.Option{c.key: {Type: options.Text}, "other": {}}}
			f := field(t, c.field)
			require.NoError(t, add(table, f.Names[0].Name, f))
			if d := cmp.Diff(map[string]options.Option{c.key: c.want}, table.Options); d != "" {
				t.Error(d)
			}
			if have := slices.Collect(maps.Keys(table.Extra)); !slices.Equal(have, []string{"other"}) {
				t.Errorf("what the source declares is also among what is kept by hand: %q", have)
			}
		})
	}
	table := &options.File{Options: map[string]options.Option{}}
	if err := add(table, "hidden", field(t, "hidden chan int")); err != nil || len(table.Options) > 0 {
		t.Errorf("a field that nobody can set: %v, %v", table.Options, err)
	}
	if err := add(table, "Odd", field(t, "Odd chan int")); err == nil {
		t.Error("a type nobody knows is taken")
	}
}

// tree writes sources and returns their directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

func example(t *testing.T) sources {
	return sources{cloud: tree(t, map[string]string{
		"pkg/cloudcommon/options/base.go": "package options\n\nimport \"yunion.io/x/structarg\"\n\ntype BaseOptions struct {\n\tstructarg.BaseOptions\n\tPort int\n}\n",
		"pkg/image/options/options.go": "package options\n\nimport (\n\tcommon \"yunion.io/x/onecloud/pkg/cloudcommon/options\"\n\t\"yunion.io/x/onecloud/pkg/more\"\n)\n\n" +
			"type SImageOptions struct {\n\tcommon.BaseOptions\n\t*more.Further\n\tlocal\n\n\tA, B string\n\tkept bool\n}\n\ntype local struct{ Own bool }\n\nfunc (SImageOptions) F() {}\n",
		"pkg/image/options/options_test.go": "package options\n\ntype OnlyInTests struct{}\n",
		"pkg/image/options/README":          "no Go",
		"pkg/more/more.go":                  "package more\n\ntype Further struct {\n\tLimit []int `token:\"limits\"`\n}\n\ntype Text string\n",
		"pkg/broken/broken.go":              "package broken\n\ntype {",
		"pkg/odd/odd.go":                    "package odd\n\ntype Odd struct{ When chan int }\n",
	})}
}

var examples = structs{"glance": {cloud, "pkg/image/options", "SImageOptions"}, "shared/base": {cloud, "pkg/cloudcommon/options", "BaseOptions"}}

func TestCollect(t *testing.T) {
	var got options.File
	require.NoError(t, example(t).collect(examples, "glance", examples["glance"], &got))
	want := options.File{Include: []string{"shared/base"}, Options: map[string]options.Option{
		"a": {Type: options.Text}, "b": {Type: options.Text}, "own": {Type: options.Bool}, "limits": {Type: options.Ints, Stored: "limit"},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCollectReportsWhatIsMissing(t *testing.T) {
	for want, r := range map[string]ref{
		"no sources of yunion.io/x/elsewhere": {"yunion.io/x/elsewhere", "pkg", "Options"},
		"no struct Nobody in":                 {cloud, "pkg/image/options", "Nobody"},
		"no struct OnlyInTests in":            {cloud, "pkg/image/options", "OnlyInTests"},
		"no struct Text in":                   {cloud, "pkg/more", "Text"},
		"no such file or directory":           {cloud, "pkg/nowhere", "Options"},
		"expected":                            {cloud, "pkg/broken", "Options"},
		"Odd.When: the type":                  {cloud, "pkg/odd", "Odd"},
	} {
		var got options.File
		if err := example(t).collect(examples, "x", r, &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
}

// Existing entries stay unless -replace is given, and a written table reads back the same.
func TestRun(t *testing.T) {
	const old = "source: yunion.io/x/onecloud/pkg/image/options SImageOptions\ncommits: [aaa]\noptions:\n  gone: text\n  a: int\nextra:\n  b: {type: text, from: a release}\n  mine: {type: bool, from: the manual}\n"
	for _, replace := range []bool{false, true} {
		out := tree(t, map[string]string{"glance.yaml": old, "shared/base.yaml": "source: yunion.io/x/onecloud/pkg/cloudcommon/options BaseOptions\n"})
		require.NoError(t, os.MkdirAll(filepath.Join(out, "shared"), 0o755))
		err := run(example(t), sources{cloud: "bbb"}, out, replace)
		require.NoError(t, err)
		data, err := os.ReadFile(filepath.Join(out, "glance.yaml"))
		require.NoError(t, err)
		got, err := options.ParseFile(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		names, commits := []string{"a", "b", "limits", "own"}, []string{"bbb"}
		if !replace {
			names, commits = []string{"a", "b", "gone", "limits", "own"}, []string{"aaa", "bbb"}
		}
		if have := slices.Sorted(maps.Keys(got.Options)); !slices.Equal(have, names) || !slices.Equal(got.Commits, commits) {
			t.Errorf("replace %t: options %q, commits %q", replace, have, got.Commits)
		}
		if got.Options["a"].Type != options.Text || got.Options["limits"].Stored != "limit" {
			t.Errorf("replace %t: %+v", replace, got.Options)
		}
		if _, mine := got.Extra["mine"]; mine == replace {
			t.Errorf("replace %t: extra %v", replace, got.Extra)
		}
	}
}

// An ordinary service needs no configuration: its table follows from the catalogue and the sources.
func TestOrdinaryServiceGetsATable(t *testing.T) {
	src := sources{cloud: tree(t, map[string]string{
		"pkg/aiproxy/options/options.go":  "package options\n\ntype SAiProxyOptions struct{ A int }\n\nvar (\n\tOptions SAiProxyOptions\n)\n",
		"pkg/vpcagent/options/options.go": "package options\n\ntype Options struct{ B bool }\n",
	})}
	out := t.TempDir()
	require.NoError(t, run(src, nil, out, false))
	for name, want := range map[string]string{"aiproxy": "SAiProxyOptions\noptions:\n  a: int\n", "vpcagent": "Options\noptions:\n  b: bool\n"} {
		data, err := os.ReadFile(filepath.Join(out, name+".yaml"))
		if err != nil || !strings.HasSuffix(string(data), "source: yunion.io/x/onecloud/pkg/"+name+"/options "+want) {
			t.Errorf("%s: %v\n%s", name, err, data)
		}
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 2 {
		t.Errorf("tables of services without sources: %v, %v", entries, err)
	}
}
