// SPDX-License-Identifier: Apache-2.0

package options_test

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/templates/services"
)

func table(t testing.TB, component string) options.Table {
	t.Helper()
	table, ok := options.Of(component)
	if !ok {
		t.Fatalf("no table of %s", component)
	}
	return table
}

func TestTables(t *testing.T) {
	files, err := fs.Glob(services.FS, "options/*.yaml")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d tables: %v", len(files), err)
	}
	for _, file := range files {
		c := strings.TrimSuffix(path.Base(file), ".yaml")
		tab := table(t, c)
		for key, o := range tab {
			if key == "" || strings.ToLower(key) != key || strings.Contains(key, "-") {
				t.Errorf("%s: %q is not a name of an option", c, key)
			}
			if len(o.Choices) > 0 && o.Type != options.Text {
				t.Errorf("%s: %s has choices and is no text", c, key)
			}
		}
		for _, never := range []string{"help", "version", "config", "pid_file"} {
			if _, ok := tab[never]; ok {
				t.Errorf("%s: %s makes no sense in a file", c, never)
			}
		}
	}
	for _, want := range []struct {
		component, key string
		option         options.Option
	}{
		{"region", "default_bandwidth", options.Option{Type: options.Int, Default: "1000"}},
		{"region", "request_worker_count", options.Option{Type: options.Int}},
		{"scheduler", "default_bandwidth", options.Option{Type: options.Int}},
		{"scheduler", "openstack_scheduler_cpu_filter", options.Option{Type: options.Bool}},
		{"region", "enable_db_checksum_tables", options.Option{Type: options.Bool}},
		{"aiproxy", "api_log_s3_bucket", options.Option{Type: options.Text}},
		{"keystone", "expiration", options.Option{Type: options.Int, Stored: "token_expiration_seconds"}},
		{"region", "log_level", options.Option{Type: options.Text, Choices: []string{"debug", "info", "warn", "error"}}},
		{"glance", "bind_port", options.Option{Type: options.Int, Stored: "port"}},
		{"glance", "target_image_formats", options.Option{Type: options.List}},
		{"keystone", "pwd_expired_notify_days", options.Option{Type: options.Ints}},
		{"region", "platform_names", options.Option{Type: options.Map}},
		{"region", "default_cpu_overcommit_bound", options.Option{Type: options.Number}},
	} {
		got := table(t, want.component)[want.key]
		if want.option.Default == "" {
			got.Default = "" // changes with releases
		}
		if diff := cmp.Diff(want.option, got); diff != "" {
			t.Errorf("%s %s: %s", want.component, want.key, diff)
		}
	}
	for component, key := range map[string]string{"apigateway": "sql_connection", "cloudmon": "auto_sync_table", "keystone": "auth_url"} {
		if _, ok := table(t, component)[key]; ok {
			t.Errorf("%s knows %s", component, key)
		}
	}
}

func TestStored(t *testing.T) {
	if options.Stored("sql_connection") || !options.Stored("default_bandwidth") || !options.Shared("api_server") {
		t.Error("the wrong options are stored")
	}
}

func TestValue(t *testing.T) {
	for _, c := range []struct {
		component, key, text string
		want                 any
		problem              string
	}{
		{"region", "default_bandwidth", "2000", int64(2000), ""},
		{"region", "default_bandwidth", `"2000"`, int64(2000), ""},
		{"region", "default_bandwidth", "2000 # Mbit/s", int64(2000), ""},
		{"region", "default_bandwidth", "-1", int64(-1), ""},
		{"keystone", "ldap_search_page_size", "-1", nil, `must be a non-negative whole number, not "-1"`},
		{"region", "default_bandwidth", "many", nil, `must be a whole number, not "many"`},
		{"region", "default_bandwidth", "1.5", nil, `must be a whole number, not "1.5"`},
		{"region", "default_bandwidth", "[1]", nil, "must be a whole number, not a list"},
		{"region", "default_bandwidth", "a: b: c", nil, "must be a whole number, not invalid YAML"},
		{"region", "default_bandwidth", "", nil, ""},
		{"region", "default_bandwidth", "~", nil, ""},
		{"region", "default_cpu_overcommit_bound", "1.5", 1.5, ""},
		{"region", "default_cpu_overcommit_bound", "nan", nil, `must be a number, not "nan"`},
		{"region", "enable_ssl", "true", true, ""},
		{"region", "enable_ssl", "off", false, ""},
		{"region", "enable_ssl", "maybe", nil, `must be true or false, not "maybe"`},
		{"region", "time_zone", "UTC", "UTC", ""},
		{"region", "platform_name", "0123", "0123", ""},
		{"region", "platform_name", "yes", "yes", ""},
		{"region", "platform_name", "1.10", "1.10", ""},
		{"region", "platform_name", `"quoted"`, "quoted", ""},
		{"region", "platform_name", `""`, "", ""},
		{"region", "platform_name", "a: b", "a: b", ""},
		{"region", "platform_name", "@cloud", "@cloud", ""},
		{"region", "platform_name", "[a, b]", nil, "must be text, not a list"},
		{"region", "log_level", "debug", "debug", ""},
		{"region", "log_level", "loud", nil, `must be one of debug, info, warn, error, not "loud"`},
		{"glance", "target_image_formats", `["qcow2","vmdk"]`, []string{"qcow2", "vmdk"}, ""},
		{"glance", "target_image_formats", "- qcow2\n- vmdk\n", []string{"qcow2", "vmdk"}, ""},
		{"glance", "target_image_formats", "qcow2", nil, `must be a list such as ["a", "b"], not "qcow2"`},
		{"glance", "target_image_formats", "[[a]]", nil, `must be a list such as ["a", "b"], not a list`},
		{"keystone", "pwd_expired_notify_days", "[1, 7]", []int64{1, 7}, ""},
		{"keystone", "pwd_expired_notify_days", "[one]", nil, "must be a list of whole numbers such as [1, 7], not a list"},
		{"region", "platform_names", `{"en": "Cloud"}`, map[string]string{"en": "Cloud"}, ""},
		{"region", "platform_names", "Cloud", nil, `must be a mapping such as {"a": "b"}, not "Cloud"`},
		{"region", "default_bandwdth", "1", nil, `is not known to region; did you mean "default_bandwidth"?`},
		{"region", "default-bandwidth", "1", nil, `is not known to region; write "default_bandwidth"`},
		{"region", "Default_Bandwidth", "1", nil, `is not known to region; write "default_bandwidth"`},
		{"region", "flux_compensator", "1", nil, "is not known to region"},
		{"keystone", "token_expiration_seconds", "1", nil, `is not known to keystone; it is called "expiration" there`},
		{"region", "admin_password", "[hunter2]", nil, "must be text, not a list"},
		{"keystone", "password_char_complexity", "hunter2", nil, "must be a whole number; the value is not shown"},
	} {
		got, err := table(t, c.component).Value(c.component, c.key, c.text)
		what := ""
		if err != nil {
			what = strings.TrimPrefix(err.Error(), `option "`+c.key+`" `)
		}
		if what != c.problem {
			t.Errorf("%s %s %q: %q, want %q", c.component, c.key, c.text, what, c.problem)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s %q: %s", c.component, c.key, c.text, diff)
		}
	}
}

// FuzzValue checks that for any text in a ConfigMap the result is a value of the option's type or a problem that can be shown.
func FuzzValue(f *testing.F) {
	for _, s := range []string{"1", "true", `["a"]`, "{a: b}", "", "~", "&a [*a]", "a: b: c", "'", "- 1\n- b", "!!binary aGk=", "\x00", "1\n---\n2", "<<: 1"} {
		for _, key := range []string{"port", "enable_ssl", "cors_hosts", "platform_names", "log_level", "admin_password", "pwd_expired_notify_days", "nonsense"} {
			f.Add(key, s)
		}
	}
	keystone, region := table(f, "keystone"), table(f, "region")
	f.Fuzz(func(t *testing.T, key, text string) {
		for component, tab := range map[string]options.Table{"keystone": keystone, "region": region} {
			value, err := tab.Value(component, key, text)
			if err != nil {
				if value != nil {
					t.Errorf("%s %q %q: both a value and a problem", component, key, text)
				}
				if utf8.ValidString(key) && utf8.ValidString(text) && !utf8.ValidString(err.Error()) {
					t.Errorf("%s %q %q: the problem is no text", component, key, text)
				}
				if long := strings.TrimSpace(text); options.Sensitive(key) && len(long) > 30 && strings.Contains(err.Error(), long) {
					t.Errorf("%s %q: the problem shows the value", component, key)
				}
				continue
			}
			if value != nil && !fits(tab[key], value) {
				t.Errorf("%s %q %q: %T for %s", component, key, text, value, tab[key].Type)
			}
		}
	})
}

func fits(o options.Option, value any) bool {
	switch v := value.(type) {
	case bool:
		return o.Type == options.Bool
	case int64:
		return o.Type == options.Int
	case uint64:
		return o.Type == options.Uint
	case float64:
		return o.Type == options.Number
	case string:
		return o.Type == options.Text && (len(o.Choices) == 0 || slices.Contains(o.Choices, v))
	case []string:
		return o.Type == options.List
	case []int64:
		return o.Type == options.Ints
	case map[string]string:
		return o.Type == options.Map
	}
	return false
}
