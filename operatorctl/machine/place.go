// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

const defaultPort = 22

// placeOf returns the target of a login: address and port.
func placeOf(l *v1alpha1.MachineLogin) string {
	if l == nil || l.Address == "" {
		return ""
	}
	return net.JoinHostPort(strings.ToLower(l.Address), strconv.Itoa(int(cmp.Or(l.Port, defaultPort))))
}

// place identifies where a machine is, "" if nothing logs in to it. The same address behind another jump host is another place.
func place(m *v1alpha1.OnecloudMachine) string {
	way := &m.Spec.Infrastructure.SSH
	if m.CallsIn() || way.Address == "" {
		return ""
	}
	if way.JumpHost == nil {
		return placeOf(&way.MachineLogin)
	}
	return placeOf(&way.MachineLogin) + " via " + placeOf(way.JumpHost)
}

// hostKey returns the pinned key of a machine, "" if it belongs to another place.
func hostKey(m *v1alpha1.OnecloudMachine) string { return hostKeyIn(&m.Status, m) }

// hostKeyIn is like hostKey, for a new status of the machine.
func hostKeyIn(s *v1alpha1.OnecloudMachineStatus, m *v1alpha1.OnecloudMachine) string {
	return keyAt(s.HostKey, s.HostKeyAddress, place(m))
}

// jumpHostKey is like hostKey, for the jump host.
func jumpHostKey(m *v1alpha1.OnecloudMachine) string {
	return keyAt(m.Status.JumpHostKey, m.Status.JumpHostKeyAddress, placeOf(m.Spec.Infrastructure.SSH.JumpHost))
}

// keyAt returns a key if it was seen at this place. Earlier operators did not record the place.
func keyAt(key, shown, place string) string {
	if shown != "" && shown != place {
		return ""
	}
	return key
}

// pin records the host keys of the first contact at a place, and keys that the user has set since.
func (d *decision) pin(f facts, seen *v1alpha1.OperationMachine) {
	if seen == nil {
		return
	}
	s, way := &d.status, &f.machine.Spec.Infrastructure.SSH
	pinKey(&s.HostKey, &s.HostKeyAddress, seen.HostKey, seen.Address, place(f.machine), way.HostKey != "")
	pinKey(&s.JumpHostKey, &s.JumpHostKeyAddress, seen.JumpHostKey, seen.JumpAddress, placeOf(way.JumpHost), way.JumpHost != nil && way.JumpHost.HostKey != "")
}

// pinKey replaces a key and its place with those seen, if any: a comparison of machines records none. Earlier operators did not record the place.
func pinKey(key, place *string, seen, seenAt, at string, named bool) {
	if *key != "" && *place == "" {
		*place = at
	}
	if seen == "" || seenAt != "" && seenAt != at {
		return
	}
	if *key == "" || named || seenAt != "" && *place != at {
		*key, *place = seen, at
	}
}

// noteJoin records where the latest join has started to change the machine. Operations are deleted after a while, but the removal must know.
func (d *decision) noteJoin(f facts) {
	for _, o := range slices.Backward(f.operations) {
		if at := begunAt(o, f.machine); at != "" {
			d.status.JoinBegun = at
			return
		}
	}
}

// begunAt returns the place where a join has started, "" if none has. Operations of an earlier operator do not record it.
func begunAt(o *v1alpha1.OnecloudOperation, m *v1alpha1.OnecloudMachine) string {
	if o.Spec.Action != v1alpha1.ActionJoinMachine {
		return ""
	}
	for _, p := range o.Status.Steps {
		if p.Name == stepJoin && (p.State == v1alpha1.StepRunning || p.State == v1alpha1.StepDone || p.State == v1alpha1.StepFailed) {
			if seen := o.Status.Machine; seen != nil && seen.Address != "" {
				return seen.Address
			}
			return place(m)
		}
	}
	return ""
}

// resets reports whether a reset may run at the place of a machine: the machine has a Node, or its join started there. Any other place may be anything,
// such as a control-plane node whose address was entered by mistake. n is the Node of the machine, nil if there is none.
func resets(m *v1alpha1.OnecloudMachine, n *corev1.Node) bool {
	if n == nil && m.Status.JoinBegun != "" {
		return m.Status.JoinBegun == place(m)
	}
	return n != nil || m.Status.NodeRef != nil
}

// untouched reports whether, according to its new status, nothing was sent to or changed on a machine. A machine that calls in reports that itself.
func untouched(s *v1alpha1.OnecloudMachineStatus, m *v1alpha1.OnecloudMachine) bool {
	return hostKeyIn(s, m) == "" && s.JoinBegun == "" && (s.NodeRef == nil || m.CallsIn())
}
