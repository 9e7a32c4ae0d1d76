// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// at sets a machine's address.
func at(address string, port int32) func(*facts) {
	return func(f *facts) {
		f.machine.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{Address: address, Port: port}
	}
}

// saw adds an operation that has logged in.
func saw(action, key, address, begun string) func(*facts) {
	return func(f *facts) {
		step := stepPrecheck
		if begun != "" {
			step = stepJoin
		}
		tried(action, "Failed", step, "OCA-1004", 1, 0)(f)
		f.operations[len(f.operations)-1].Status.Machine = &v1alpha1.OperationMachine{HostKey: key, Address: address}
	}
}

// A key belongs to the place that showed it.
func TestPinnedKeys(t *testing.T) {
	const join = v1alpha1.ActionJoinMachine
	pinned := func(key, address string) func(*facts) {
		return func(f *facts) { f.machine.Status.HostKey, f.machine.Status.HostKeyAddress = key, address }
	}
	named := func(f *facts) { f.machine.Spec.Infrastructure.SSH.HostKey = "named" }
	for name, c := range map[string]struct {
		facts               facts
		key, address, login string
	}{
		"the first contact":       {ready(at("A.example.org", 0), saw(join, "k", "a.example.org:22", "")), "k", "a.example.org:22", "k"},
		"another key":             {ready(at("a", 0), pinned("k", "a:22"), saw(join, "other", "a:22", "")), "k", "a:22", "k"},
		"another key that is so":  {ready(at("a", 0), pinned("k", "a:22"), named, saw(join, "named", "a:22", "")), "named", "a:22", "named"},
		"another address":         {ready(at("b", 0), pinned("k", "a:22")), "k", "a:22", ""},
		"another port":            {ready(at("a", 2), pinned("k", "a:22")), "k", "a:22", ""},
		"what the former showed":  {ready(at("b", 0), pinned("k", "a:22"), saw(join, "k", "a:22", "")), "k", "a:22", ""},
		"what the new one showed": {ready(at("b", 0), pinned("k", "a:22"), saw(join, "l", "b:22", "")), "l", "b:22", "l"},
		"of an earlier operator":  {ready(at("a", 0), pinned("k", ""), saw(join, "k", "", "")), "k", "a:22", "k"},
		"its operations are gone": {ready(at("a", 0), pinned("k", "")), "k", "a:22", "k"},
		"its first contact":       {ready(at("a", 0), saw(join, "k", "", "")), "k", "a:22", "k"},
		"none":                    {ready(at("a", 0)), "", "", ""},
	} {
		m := c.facts.machine.DeepCopy()
		if m.Status = decide(c.facts).status; m.Status.HostKey != c.key || m.Status.HostKeyAddress != c.address || hostKey(m) != c.login {
			t.Errorf("%s: %q of %q, logs in with %q", name, m.Status.HostKey, m.Status.HostKeyAddress, hostKey(m))
		}
	}
	m := ready(at("a", 0), pinned("k", "a:22")).machine
	m.Spec.Infrastructure.SSH.JumpHost = &v1alpha1.MachineLogin{Address: "j"}
	if place(m) != "a:22 via j:22" || hostKey(m) != "" {
		t.Errorf("%q: the same address behind a jump host is another machine", place(m))
	}
}

// The host at an address is the machine only if the machine has the Node, or its join started there. The operations are deleted after a while.
func TestResets(t *testing.T) {
	const join, check = v1alpha1.ActionJoinMachine, v1alpha1.ActionPrecheckMachine
	for name, c := range map[string]struct {
		facts  facts
		resets bool
	}{
		"checked":                {ready(at("a", 0), saw(check, "k", "a:22", "")), false},
		"refused by the checks":  {ready(at("a", 0), saw(join, "k", "a:22", "")), false},
		"begun":                  {ready(at("a", 0), saw(join, "k", "a:22", "a:22")), true},
		"begun elsewhere":        {ready(at("b", 0), saw(join, "k", "a:22", "a:22")), false},
		"begun, corrected since": {ready(at("b", 0), saw(join, "k", "a:22", "a:22"), saw(join, "l", "b:22", "b:22")), true},
		"of an earlier operator": {ready(at("a", 0), tried(join, "Failed", stepJoin, "OCA-4001", 1, 0)), true},
		"its checks failed":      {ready(at("a", 0), tried(join, "Failed", stepPrecheck, "OCA-1004", 1, 0)), false},
		"handed over":            {ready(at("a", 0), handedOver), true},
	} {
		m := c.facts.machine.DeepCopy()
		for range 2 {
			m.Status = decide(c.facts).status
			if resets(m, nil) != c.resets {
				t.Errorf("%s: %t, begun at %q", name, !c.resets, m.Status.JoinBegun)
			}
			c.facts.machine.Status, c.facts.operations = m.Status, nil
		}
	}
	f := ready(at("b", 0), node("m", "True"))
	if f.machine.Status.JoinBegun = "a:22"; !resets(f.machine, f.node) {
		t.Error("it has the Node")
	}
}

// The removal reads where the join started: its operation is not created before that is stored.
func TestBegunBeforeRemoval(t *testing.T) {
	f := ready(at("a", 0), saw(v1alpha1.ActionJoinMachine, "k", "a:22", "a:22"), deleted)
	d := decide(f)
	if d.create != nil || d.release || d.minor(f.machine) || d.status.JoinBegun != "a:22" {
		t.Errorf("creates %v, releases %t, begun at %q", d.create, d.release, d.status.JoinBegun)
	}
	f.machine.Status = d.status
	if d := decide(f); d.create == nil {
		t.Errorf("%+v", d.status)
	}
}

// What a join has seen of its machine is written later: 500 machines join at the same time.
func TestSeenIsMinor(t *testing.T) {
	f := ready(at("a", 0), saw(v1alpha1.ActionJoinMachine, "k", "a:22", "a:22"))
	d := decide(f)
	m := f.machine.DeepCopy()
	m.Status = *d.status.DeepCopy()
	m.Status.HostKey, m.Status.HostKeyAddress, m.Status.JoinBegun = "", "", ""
	if d.create = nil; d.status.JoinBegun == "" || !d.minor(m) {
		t.Errorf("%+v", d.status)
	}
}
