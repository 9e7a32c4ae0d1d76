// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

func sample() Settings {
	return Settings{Address: "10.0.0.100", RouterID: 77, Password: "Secret88"}.With("10.0.0.2").With("10.0.0.1").With("10.0.0.3").With("10.0.0.1")
}

func TestSettingsSurviveTheSecret(t *testing.T) {
	s := sample()
	got, err := Parse(s.Secret().Data)
	if err != nil || got.Address != s.Address || got.RouterID != 77 || got.Password != s.Password || !slices.Equal(got.Peers, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	if left := got.Without("10.0.0.2").Peers; !slices.Equal(left, []string{"10.0.0.1", "10.0.0.3"}) {
		t.Errorf("without one: %v", left)
	}
	for key, bad := range map[string]string{"address": "x", "routerID": "256", "password": "", "peers": "a,b"} {
		data := s.Data()
		data[key] = []byte(bad)
		if _, err := Parse(data); err == nil || strings.Contains(err.Error(), "Secret88") {
			t.Errorf("%s %q: %v", key, bad, err)
		}
	}
}

// keepalived keeps the address on one node if all have the same group and password, no preferred node, different priorities, and peers by address.
func TestConfig(t *testing.T) {
	s := sample()
	first, second := string(s.Config("node1", "10.0.0.1", "eth0")), string(s.Config("node2", "10.0.0.2", "br0"))
	for _, want := range []string{"virtual_router_id 77\n", "auth_pass Secret88\n", "state BACKUP\n", "nopreempt\n", "10.0.0.100/32 dev", "track_file {"} {
		if !strings.Contains(first, want) || !strings.Contains(second, want) {
			t.Errorf("%q is not in both:\n%s\n%s", want, first, second)
		}
	}
	for config, wants := range map[string][]string{
		first:  {"priority 240\n", "interface eth0\n", "unicast_src_ip 10.0.0.1\n", "unicast_peer {\n    10.0.0.2\n    10.0.0.3\n  }"},
		second: {"priority 200\n", "interface br0\n", "unicast_src_ip 10.0.0.2\n", "unicast_peer {\n    10.0.0.1\n    10.0.0.3\n  }"},
	} {
		for _, want := range wants {
			if !strings.Contains(config, want) {
				t.Errorf("%q is missing:\n%s", want, config)
			}
		}
	}
	alone := Settings{Address: "10.0.0.100", RouterID: 1, Password: "x"}.With("10.0.0.1")
	if got := string(alone.Config("node1", "10.0.0.1", "eth0")); strings.Contains(got, "unicast") {
		t.Errorf("a node without peers:\n%s", got)
	}
	if got := alone.priority("10.9.9.9"); got != 40 {
		t.Errorf("a node that is no peer has the priority %d", got)
	}
}

// While the address changes, keepalived has both, each in its own group. Swapping does not affect it, and the remaining address is kept.
func TestConfigOfAMove(t *testing.T) {
	s := sample()
	of := func(s Settings) string { return string(s.Config("node1", "10.0.0.1", "eth0")) }
	s.Other = Group{"10.0.0.200", 78}
	both := of(s)
	if strings.Count(both, "vrrp_instance") != 2 || !strings.Contains(both, "10.0.0.100/32") || !strings.Contains(both, "10.0.0.200/32") || !strings.Contains(both, "virtual_router_id 78\n") {
		t.Errorf("both:\n%s", both)
	}
	swapped, err := Parse(s.Swap().Data())
	if err != nil || swapped.Address != "10.0.0.200" || swapped.Other.Address != "10.0.0.100" || of(swapped) != both {
		t.Errorf("%+v, %v:\n%s", swapped, err, of(swapped))
	}
	swapped.Other = Group{}
	one := of(swapped)
	if !strings.Contains(both, one[strings.Index(one, "vrrp_instance"):]) || strings.Contains(one, "10.0.0.100") {
		t.Errorf("afterwards:\n%s", one)
	}
	swapped.Other = Group{"10.0.0.100", 79} // and back, with a different router ID
	if back := of(swapped.Swap()); strings.Count(back, "vrrp_instance ocadm {") != 1 || !strings.HasSuffix(back, one[strings.Index(one, "vrrp_instance"):]) {
		t.Errorf("back:\n%s", back)
	}
	for what, change := range map[string]func(map[string][]byte){
		"a router ID that is no number": func(d map[string][]byte) { d["otherRouterID"] = []byte("x") },
		"a router ID out of range":      func(d map[string][]byte) { d["otherRouterID"] = []byte("256") },
		"the router ID of the first":    func(d map[string][]byte) { d["otherRouterID"] = d["routerID"] },
		"the address of the first":      func(d map[string][]byte) { d["otherAddress"] = d["address"] },
		"a Secret without peers":        func(d map[string][]byte) { delete(d, "peers") },
	} {
		bad := s.Data()
		change(bad)
		if _, err := Parse(bad); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if _, err := Parse(Settings{Address: "10.0.0.100", RouterID: 77, Password: "Secret88"}.Data()); err != nil {
		t.Errorf("the last node has left: %v", err)
	}
}

func TestPasswordsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		p := NewPassword()
		if len(p) != 8 || seen[p] {
			t.Fatalf("%q", p)
		}
		seen[p] = true
	}
}

func TestRouterIDOfAPacket(t *testing.T) {
	for name, tt := range map[string]struct {
		packet []byte
		id     int
		ok     bool
	}{
		"version 2": {[]byte{0x21, 51, 100, 1, 0, 1, 0, 0}, 51, true}, "version 3": {[]byte{0x31, 7, 100, 1, 0, 100, 0, 0}, 7, true},
		"another type": {[]byte{0x22, 51, 100, 1, 0, 1, 0, 0}, 0, false}, "cut off": {[]byte{0x21, 51}, 0, false},
	} {
		if id, ok := routerID(tt.packet); id != tt.id || ok != tt.ok {
			t.Errorf("%s: %d, %v", name, id, ok)
		}
	}
}

// The signal goes to keepalived's first process. There is none here, which is not an error.
func TestReloadWithoutKeepalived(t *testing.T) {
	proc := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "1"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(proc, "1/comm"), []byte("pause\n"), 0o600))
	if err := reload(proc); err != nil {
		t.Error(err)
	}
}

// A silent API server is lost after four checks, a failing one after two. One that is slow but answers keeps the address.
func TestHealth(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		events string // t: a check starts, a: it succeeds, r: it fails
		well   bool
	}{
		"not asked yet":          {"", false},
		"answers":                {"tatata", true},
		"refused once":           {"tatr", true},
		"refused twice":          {"tatrtr", false},
		"busy for a moment":      {"tatrtatr", true},
		"silent for three":       {"tatttt", true},
		"silent for four":        {"tattttt", false},
		"slow":                   {"tatttatatata", true},
		"back after silence":     {"tatttttta", true},
		"refuses from the start": {"tr", false},
	} {
		var h health
		for _, e := range c.events {
			switch e {
			case 't':
				h.tick()
			case 'a':
				h.answered(nil)
			case 'r':
				h.answered(refused)
			}
		}
		if (h.problem() == "") != c.well {
			t.Errorf("%s: %+v", name, h)
		}
	}
}
