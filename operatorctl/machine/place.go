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

// defaultPort of SSH.
const defaultPort = 22

// placeOf is where a login leads: address and port.
func placeOf(l *v1alpha1.MachineLogin) string {
	if l == nil || l.Address == "" {
		return ""
	}
	return net.JoinHostPort(strings.ToLower(l.Address), strconv.Itoa(int(cmp.Or(l.Port, defaultPort))))
}

// place is where a machine is, "" if nothing logs in to it. The same address behind another jump host is another place.
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

// hostKey is the pinned key of a machine, "" if that is the key of another place.
func hostKey(m *v1alpha1.OnecloudMachine) string { return hostKeyIn(&m.Status, m) }

// hostKeyIn is that of a status that a machine is to have.
func hostKeyIn(s *v1alpha1.OnecloudMachineStatus, m *v1alpha1.OnecloudMachine) string {
	return keyAt(s.HostKey, s.HostKeyAddress, place(m))
}

// jumpHostKey is the same of its jump host.
func jumpHostKey(m *v1alpha1.OnecloudMachine) string {
	return keyAt(m.Status.JumpHostKey, m.Status.JumpHostKeyAddress, placeOf(m.Spec.Infrastructure.SSH.JumpHost))
}

// keyAt is a key if it was shown there. Earlier operators did not note where.
func keyAt(key, shown, place string) string {
	if shown != "" && shown != place {
		return ""
	}
	return key
}

// pin keeps the host keys of the first contact at a place, and another one that the user has named since.
func (d *decision) pin(f facts, seen *v1alpha1.OperationMachine) {
	if seen == nil {
		return
	}
	s, way := &d.status, &f.machine.Spec.Infrastructure.SSH
	pinKey(&s.HostKey, &s.HostKeyAddress, seen.HostKey, seen.Address, place(f.machine), way.HostKey != "")
	pinKey(&s.JumpHostKey, &s.JumpHostKeyAddress, seen.JumpHostKey, seen.JumpAddress, placeOf(way.JumpHost), way.JumpHost != nil && way.JumpHost.HostKey != "")
}

// pinKey replaces a key and its place by what was seen, a comparison of machines notes none. Earlier operators did not note where they saw a key.
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

// noteJoin notes where the latest join has begun to change something. Operations are deleted after a while, and the removal has to know.
func (d *decision) noteJoin(f facts) {
	for _, o := range slices.Backward(f.operations) {
		if at := begunAt(o, f.machine); at != "" {
			d.status.JoinBegun = at
			return
		}
	}
}

// begunAt is where a join has begun, "" if it is none or has not. An operation of an earlier operator does not say where.
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

// resets reports whether what is at the place of a machine is that machine: it has the Node, or its join has begun there. Elsewhere may be anything, such as
// a control-plane node whose address was written by mistake. n is the Node of the machine, nil if there is none.
func resets(m *v1alpha1.OnecloudMachine, n *corev1.Node) bool {
	if n == nil && m.Status.JoinBegun != "" {
		return m.Status.JoinBegun == place(m)
	}
	return n != nil || m.Status.NodeRef != nil
}

// untouched reports whether nothing was sent to a machine, and nothing was changed on it, by the status that it is to have. One that calls in has its own way
// to say so.
func untouched(s *v1alpha1.OnecloudMachineStatus, m *v1alpha1.OnecloudMachine) bool {
	return hostKeyIn(s, m) == "" && s.JoinBegun == "" && (s.NodeRef == nil || m.CallsIn())
}
