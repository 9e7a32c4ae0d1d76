// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/templates/services"
	"yunion.io/x/ocadm/test/require"
)

// The service knows every option that we render, with its type. It reads back unchanged from the ConfigMap.
func TestRenderedOptionsAreKnown(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/cr.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	without := map[string]bool{}
	for _, file := range cases {
		cluster := resolved(t, file)
		in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
		for name, r := range cluster.Components {
			if !render.Configurable(r.Component) {
				continue
			}
			table, ok := options.Of(name)
			if !ok {
				without[name] = true
				continue
			}
			o, err := render.Component(r, in)
			require.NoError(t, err)
			composed := map[string]any{}
			require.NoError(t, yaml.Unmarshal(o.Secrets[0].(*corev1.Secret).Data[render.FileName(r.Component)], &composed))
			for key, value := range composed {
				text, err := yaml.Marshal(value)
				require.NoError(t, err)
				if _, err := table.Value(name, key, string(text)); err != nil {
					t.Errorf("%s, %s: %v", file, name, err)
				}
			}
			for key, text := range o.ConfigMaps[0].(*corev1.ConfigMap).Data {
				value, err := table.Value(name, key, text)
				again, _ := yaml.Marshal(value)
				want, _ := yaml.Marshal(composed[key])
				if err != nil || string(again) != string(want) {
					t.Errorf("%s, %s: %s is %q in the ConfigMap and %q in the file (%v)", file, name, key, again, want, err)
				}
			}
		}
	}
	t.Logf("without a table: %q", slices.Sorted(maps.Keys(without)))
}

// Every table belongs to a component whose options users may edit.
func TestTablesAreUsed(t *testing.T) {
	cluster := resolved(t, base+"/cr.yaml")
	files, err := fs.Glob(services.FS, "options/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".yaml")
		if r, ok := cluster.Components[name]; !ok || !render.Configurable(r.Component) {
			t.Errorf("%s has a table of options and no options", name)
		}
	}
}

// check runs Check for region with the users' options and the pods' current configuration.
func check(t *testing.T, theirs map[string]string, live render.Live) (component.Inputs, map[string]any, []string) {
	t.Helper()
	return checkOf(resolved(t, base+"/cr.yaml"), theirs, live)
}

func checkOf(cluster component.Cluster, theirs map[string]string, live render.Live) (component.Inputs, map[string]any, []string) {
	in := component.Inputs{Cluster: cluster, Self: cluster.Components["region"], Credentials: component.Placeholders(cluster),
		Chosen: map[string]map[string]string{"region": theirs}}
	values, problems := render.Check(in.Self.Component, in, live)
	var told []string
	for _, p := range problems {
		told = append(told, p.Error())
	}
	return in, values, told
}

// file returns the file for region's pods, and the ConfigMap that belongs to it.
func file(t *testing.T, in component.Inputs, values map[string]any) ([]byte, map[string]string) {
	t.Helper()
	if values != nil {
		in.Values = map[string]map[string]any{"region": values}
	}
	o, err := render.Component(in.Self, in)
	require.NoError(t, err)
	return o.Secrets[0].(*corev1.Secret).Data["region.conf"], o.ConfigMaps[0].(*corev1.ConfigMap).Data
}

// one of every type: values that are read back from a file must be written again unchanged.
var choices = map[string]string{
	"request_worker_count": "16", "default_bandwidth": "2000", "default_cpu_overcommit_bound": "1.5", "enable_tls_migration": "yes",
	"cors_hosts": `["a", "b"]`, "resource_expired_notify_days": "[1, 30]", "platform_names": `{"en": "Cloud"}`, "global_mac_prefix": `"00:22"`,
	"platform_name": "0123", "sku_max_mem_size": "123456789012",
}

func withOptions(more map[string]string) map[string]string {
	all := maps.Clone(choices)
	maps.Copy(all, more)
	return all
}

func TestInvalidOptionKeepsTheLastFile(t *testing.T) {
	in, values, problems := check(t, choices, render.Live{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	good, _ := file(t, in, values)
	_, ours := file(t, component.Inputs{Cluster: in.Cluster, Self: in.Self, Credentials: in.Credentials}, nil)
	for _, want := range []string{"platform_name: \"0123\"", "enable_tls_migration: true", "default_bandwidth: 2000", "sku_max_mem_size: 123456789012"} {
		if !strings.Contains(string(good), want) {
			t.Errorf("no %s in\n%s", want, good)
		}
	}
	renamed := maps.Clone(choices)
	delete(renamed, "request_worker_count") // one of ours: its default is restored
	delete(renamed, "default_bandwidth")
	renamed["request_worker_cuont"], renamed["default_bandwdth"] = "16", "2000"
	for name, c := range map[string]struct {
		theirs   map[string]string
		problems []string
	}{
		"unknown":          {withOptions(map[string]string{"flux": "1"}), []string{`option "flux" is not known to region`}},
		"another with it":  {withOptions(map[string]string{"default_mtu": "9000", "enable_ssl": "perhaps"}), []string{`option "enable_ssl" must be true or false, not "perhaps"`}},
		"one of ours":      {withOptions(map[string]string{"port": "many"}), []string{`option "port" must be a whole number, not "many"`}},
		"another port":     {withOptions(map[string]string{"port": "1", "port_v2": ""}), []string{`option "port" must be 30888: it is the port of its Service; nodePort in the resource of the cloud sets both`, `option "port_v2" must be 30888: it is the port of its Service; nodePort in the resource of the cloud sets both`}},
		"without TLS":      {withOptions(map[string]string{"enable_ssl": "false"}), []string{`option "enable_ssl" must be true: the probes and the other services use TLS`}},
		"TLS, emptied":     {withOptions(map[string]string{"enable_ssl": ""}), []string{`option "enable_ssl" must be true: the probes and the other services use TLS`}},
		"secret":           {withOptions(map[string]string{"admin_password": "hunter2"}), []string{`option "admin_password" is a secret that the operator sets`}},
		"misspelt in turn": {renamed, []string{`option "default_bandwdth" is not known to region; did you mean "default_bandwidth"?`, `option "request_worker_cuont" is not known to region; did you mean "request_worker_count"?`}},
	} {
		t.Run(name, func(t *testing.T) {
			in, held, problems := check(t, c.theirs, render.Live{File: good, Data: withOptions(ours)})
			if diff := cmp.Diff(c.problems, problems); diff != "" {
				t.Error(diff)
			}
			kept, public := file(t, in, held)
			if diff := cmp.Diff(string(good), string(kept)); diff != "" {
				t.Errorf("the pods would roll: %s", diff)
			}
			if _, secret := held["sql_connection"]; secret {
				t.Error("a secret is among the values")
			}
			for key := range c.theirs {
				if _, over := public[key]; over {
					t.Errorf("%s is overwritten", key)
				}
			}
		})
	}
}

func TestOperatorsOptionsMoveWhileOneIsInvalid(t *testing.T) {
	in, values, _ := check(t, choices, render.Live{})
	good, ours := file(t, in, values)
	stale := strings.Replace(string(good), "region: region0", "region: before", 1)
	data := maps.Clone(ours)
	data["region"] = "before"
	in, held, problems := check(t, withOptions(map[string]string{"flux": "1"}), render.Live{File: []byte(stale), Data: data})
	if kept, _ := file(t, in, held); len(problems) != 1 || string(kept) != string(good) {
		t.Errorf("%v\n%s", problems, kept)
	}
}

func TestInvalidOptionOfANewCloudIsLeftOut(t *testing.T) {
	in, values, problems := check(t, map[string]string{"default_bandwidth": "2000", "port": "many", "flux": "1"}, render.Live{})
	text, _ := file(t, in, values)
	if len(problems) != 2 || !strings.Contains(string(text), "default_bandwidth: 2000\n") || !strings.Contains(string(text), "port: 30888\n") ||
		strings.Contains(string(text), "flux") {
		t.Errorf("%q\n%s", problems, text)
	}
}

func TestAcceptedAndRemovedOptions(t *testing.T) {
	in, values, problems := check(t, map[string]string{"flux": "[1, 2]", "default_mtu": "", "request_worker_count": ""}, render.Live{Accepted: []string{"flux"}})
	text, _ := file(t, in, values)
	if len(problems) > 0 || !strings.Contains(string(text), "flux:\n- 1\n- 2\n") || strings.Contains(string(text), "default_mtu") ||
		strings.Contains(string(text), "request_worker_count") {
		t.Errorf("%q\n%s", problems, text)
	}
}

// Users' input in ConfigMaps never breaks a render: it is a value or a problem, and with a previous file, that file is used.
func FuzzCheck(f *testing.F) {
	for key, text := range choices {
		f.Add(key, text)
	}
	f.Add("port", "- a: {")
	f.Add("sql_connection", "mysql://elsewhere")
	var cluster component.Cluster
	var good []byte
	f.Fuzz(func(t *testing.T, key, text string) {
		if good == nil {
			cluster = resolved(t, base+"/cr.yaml")
			good, _ = file(t, component.Inputs{Cluster: cluster, Self: cluster.Components["region"], Credentials: component.Placeholders(cluster)}, nil)
		}
		in, values, problems := checkOf(cluster, map[string]string{key: text}, render.Live{File: good})
		now, _ := file(t, in, values)
		if len(problems) > 0 && string(now) != string(good) {
			t.Errorf("%q: %q: %q changes the file: %s", key, text, problems, cmp.Diff(string(good), string(now)))
		}
		var back map[string]any
		if err := yaml.Unmarshal(now, &back); err != nil {
			t.Errorf("%q: %q gives a file that is not valid YAML: %v", key, text, err)
		}
	})
}
