// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
)

const head = "apiVersion: ocadm.yunion.io/v1\nkind: Fleet\nssh: {keyFile: key}\n"

func TestRead(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []string // what is wrong, nil for nothing
	}{
		"least":          {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\n", nil},
		"empty":          {"", []string{`apiVersion: it is ""`, `kind: it is ""`, "controlPlanes: the list is empty"}},
		"unknown field":  {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nworkers: [{name: b, addressx: 192.0.2.2}]\n", []string{"workers[0].addressx: there is no such field (did you mean address?)", "workers[0].address"}},
		"unknown in ssh": {head + "controlPlanes: [{name: a, address: 192.0.2.1, ssh: {usr: x}}]\n", []string{"controlPlanes[0].ssh.usr: there is no such field (did you mean user?)"}},
		"no YAML":        {"a: [", []string{"yaml"}},
		"same address": {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nworkers: [{name: b, address: 192.0.2.1}]\n",
			[]string{"workers[0].address: controlPlanes[0] has the address 192.0.2.1, too"}},
		"same address, other port": {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nworkers: [{name: b, address: 192.0.2.1, ssh: {port: 2222}}]\n", nil},
		"same name":                {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nworkers: [{name: a, address: 192.0.2.2}]\n", []string{"workers[0].name: controlPlanes[0] has the name a, too"}},
		"names":                    {head + "controlPlanes: [{name: A, address: 192.0.2.1}]\nworkers: [{name: a--b, address: ' '}]\n", []string{"controlPlanes[0].name", "workers[0].name", "workers[0].address"}},
		"long name":                {head + "controlPlanes: [{name: " + strings.Repeat("a-", 20) + "a, address: 192.0.2.1}]\n", []string{"controlPlanes[0].name"}},
		"name of the fleet":        {head + "name: a\ncontrolPlanes: [{name: a, address: 192.0.2.1, ssh: {keyFile: own}}]\n", []string{"controlPlanes[0].name: the fleet has the name a"}},
		"longest name":             {head + "controlPlanes: [{name: " + strings.Repeat("a-", 19) + "ab, address: 192.0.2.1}]\n", nil},
		"two control planes":       {head + "controlPlanes: [{name: a, address: 192.0.2.1}, {name: b, address: 192.0.2.2}]\n", []string{"controlPlanes: there are 2"}},
		"three without endpoint":   {head + "controlPlanes: [{name: a, address: 192.0.2.1}, {name: b, address: 192.0.2.2}, {name: c, address: 192.0.2.3}]\n", []string{"settings.cluster: several control-plane nodes need"}},
		"no credentials":           {"apiVersion: ocadm.yunion.io/v1\nkind: Fleet\ncontrolPlanes: [{name: a, address: 192.0.2.1}]\n", []string{"controlPlanes[0].ssh: neither this field nor ssh"}},
		"host key":                 {head + "controlPlanes: [{name: a, address: 192.0.2.1, hostKey: abc}]\n", []string{"controlPlanes[0].hostKey"}},
		"role":                     {head + "controlPlanes: [{name: a, address: 192.0.2.1, roles: [computer]}]\n", []string{`controlPlanes[0].roles[0]: "computer" is not one of`}},
		"role of a worker":         {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nworkers: [{name: b, address: 192.0.2.2, roles: [controlplane]}]\n", []string{"workers[0].roles[0]: list the machine in controlPlanes"}},
		"unknown setting": {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nsettings: {database: {hots: x}, cloud: {versio: v4}}\n",
			[]string{"settings.cloud.versio (did you mean version?)", "settings.database.hots (did you mean host?)"}},
		"wrong setting":    {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nsettings: {node: {offline: 7}}\n", []string{"settings.node.offline: 7 is not true or false"}},
		"setting of one":   {head + "controlPlanes: [{name: a, address: 192.0.2.1}]\nsettings: {node: {name: b, ip: 192.0.2.1}, join: {token: x}}\n", []string{"settings.join.token", "settings.node.ip: set it in", "settings.node.name: set it in"}},
		"two bundles":      {head + "bundle: a\ncontrolPlanes: [{name: a, address: 192.0.2.1}]\nsettings: {node: {bundle: b}}\n", []string{"bundle: settings.node.bundle"}},
		"wrong type":       {head + "controlPlanes: {name: a}\n", []string{"controlPlanes"}},
		"wrong taint":      {head + "controlPlanes: [{name: a, address: 192.0.2.1, taints: [{ky: a}]}]\n", []string{"controlPlanes[0].taints[0].ky"}},
		"unknown program":  {head + "programs: {riscv64: f}\ncontrolPlanes: [{name: a, address: 192.0.2.1}]\n", []string{"programs.riscv64"}},
		"version of later": {strings.Replace(head, "/v1", "/v2", 1) + "controlPlanes: [{name: a, address: 192.0.2.1}]\n", []string{`apiVersion: it is "ocadm.yunion.io/v2"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read("dir/fleet.yaml", []byte(tt.text))
			if tt.want == nil {
				if err != nil || s.SSH.KeyFile != "dir/key" || s.Name != "fleet" {
					t.Fatalf("%+v, %v", s, err)
				}
				return
			}
			found := finding.Of(err)
			if len(found) != 1 || found[0].Code != "OCA-7640" {
				t.Fatalf("%v", err)
			}
			all := append([]string{found[0].Cause}, found[0].Evidence...)
			for _, want := range tt.want {
				if !strings.Contains(strings.Join(all, "\n"), want) {
					t.Errorf("%q is missing in\n%s", want, strings.Join(all, "\n"))
				}
			}
			if n := len(found[0].Evidence); n > 0 && n != len(tt.want) || n == 0 && len(tt.want) != 1 {
				t.Errorf("%d errors, want %d:\n%s", n, len(tt.want), strings.Join(all, "\n"))
			}
		})
	}
}

// TestExample checks that the output of "ocadm fleet example" is valid, and equals the file in docs/examples.
func TestExample(t *testing.T) {
	s, err := Read("fleet.yaml", []byte(Example))
	if err != nil {
		t.Fatalf("%v %v", err, finding.Of(err))
	}
	if len(s.ControlPlanes) != 3 || len(s.Workers) != 3 {
		t.Errorf("%+v", s)
	}
	other, err := os.ReadFile("../../docs/examples/fleet.yaml")
	if err != nil || string(other) != Example {
		t.Errorf("docs/examples/fleet.yaml is another file (%v)", err)
	}
}

func TestLogin(t *testing.T) {
	s := &Spec{SSH: Login{User: "root", KeyFile: "key", PassphraseFile: "phrase", SudoPasswordFile: "sudo"}}
	got := s.login(&Machine{SSH: Login{User: "debian", PasswordFile: "password", Port: 2222}})
	if want := (Login{User: "debian", PasswordFile: "password", Port: 2222, SudoPasswordFile: "sudo"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := s.login(&Machine{}); got.KeyFile != "key" || got.PassphraseFile != "phrase" || got.Port != 22 {
		t.Errorf("%+v", got)
	}
}
