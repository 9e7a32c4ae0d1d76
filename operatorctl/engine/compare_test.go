// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

func value(t *testing.T, s string) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal([]byte(s), &v))
	return v
}

func TestHolds(t *testing.T) {
	for _, tc := range []struct {
		name, desired, live string
		want                bool
		where               string
	}{
		{"same", `{"a":1}`, `{"a":1}`, true, ""},
		{"live has a default more", `{"spec":{"a":1}}`, `{"spec":{"a":1,"b":2}}`, true, ""},
		{"changed value", `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, false, ".spec.a"},
		{"missing value", `{"spec":{"a":1}}`, `{"spec":{}}`, false, ".spec.a"},
		{"empty value dropped by the server", `{"spec":{"a":"","b":false,"c":[],"d":{}}}`, `{"spec":{}}`, true, ""},
		{"atomic list longer", `{"command":["a"]}`, `{"command":["a","b"]}`, false, ".command"},
		{"atomic list shorter", `{"command":["a","b"]}`, `{"command":["a"]}`, false, ".command"},
		{"atomic list other order", `{"command":["a","b"]}`, `{"command":["b","a"]}`, false, ".command[0]"},
		{"sidecar of another client", `{"containers":[{"name":"x","image":"i"}]}`, `{"containers":[{"name":"side"},{"name":"x","image":"i","tty":false}]}`, true, ""},
		{"image changed", `{"containers":[{"name":"x","image":"i"}]}`, `{"containers":[{"name":"x","image":"j"}]}`, false, ".containers[x/].image"},
		{"container gone", `{"containers":[{"name":"x"}]}`, `{"containers":[{"name":"y"}]}`, false, ".containers[x/]"},
		{"service port protocol by default", `{"ports":[{"port":80,"targetPort":80}]}`, `{"ports":[{"port":80,"protocol":"TCP","targetPort":80}]}`, true, ""},
		{"node port edited", `{"ports":[{"port":80,"nodePort":30080}]}`, `{"ports":[{"port":80,"protocol":"TCP","nodePort":30081}]}`, false, ".ports[80/TCP/].nodePort"},
		{"container port", `{"ports":[{"containerPort":80}]}`, `{"ports":[{"containerPort":80,"protocol":"TCP"}]}`, true, ""},
		{"quantity spelled differently", `{"storage":"100G"}`, `{"storage":"100000M"}`, true, ""},
		{"quantity changed", `{"storage":"100G"}`, `{"storage":"200G"}`, false, ".storage"},
		{"string that looks like a quantity", `{"value":"100G"}`, `{"value":"100000M"}`, false, ".value"},
		{"map replaced by scalar", `{"a":{"b":1}}`, `{"a":1}`, false, ".a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, where := Holds(value(t, tc.desired), value(t, tc.live))
			if got != tc.want {
				t.Fatalf("Holds = %v (%s), want %v", got, where, tc.want)
			}
			if !tc.want && where != tc.where {
				t.Errorf("first difference at %q, want %q", where, tc.where)
			}
		})
	}
}

func TestHashDependsOnContentOnly(t *testing.T) {
	a, _ := Hash(value(t, `{"a":1,"b":[1,2]}`))
	b, _ := Hash(value(t, `{"b":[1,2],"a":1}`))
	c, _ := Hash(value(t, `{"b":[2,1],"a":1}`))
	if a != b {
		t.Error("map order changes the hash")
	}
	if a == c {
		t.Error("list order does not change the hash")
	}
}

func TestOrder(t *testing.T) {
	after := map[string][]string{"web": {"api", "glance"}, "api": {"keystone"}, "glance": {"keystone"}}
	got, err := Order([]string{"web", "api", "keystone", "glance"}, func(n string) []string { return after[n] })
	require.NoError(t, err)
	at := map[string]int{}
	for i, n := range got {
		at[n] = i
	}
	for n, deps := range after {
		for _, d := range deps {
			if at[d] > at[n] {
				t.Errorf("%s comes before %s", n, d)
			}
		}
	}
	if _, err := Order([]string{"a", "b"}, func(n string) []string { return map[string][]string{"a": {"b"}, "b": {"a"}}[n] }); err == nil {
		t.Error("a cycle is accepted")
	}
	if _, err := Order([]string{"a"}, func(string) []string { return []string{"ghost"} }); err == nil {
		t.Error("an unknown name is accepted")
	}
}

func TestOlder(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"", "10", false}} {
		if got := Older(tc.a, tc.b); got != tc.want {
			t.Errorf("Older(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
}
