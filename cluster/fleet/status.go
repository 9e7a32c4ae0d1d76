// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

// MachineStatus is the current state of a machine.
type MachineStatus struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	Address string `json:"address"`
	// Answers reports whether login works.
	Answers bool `json:"answers"`
	// Node is Ready, NotReady, or "" without one.
	Node string `json:"node,omitempty"`
	// Phase of its OnecloudMachine, "" without one.
	Phase    string       `json:"phase,omitempty"`
	Message  string       `json:"message,omitempty"`
	Findings finding.List `json:"findings,omitempty"`
}

// clusterTimeout bounds the requests to a cluster that may be down.
const clusterTimeout = 30 * time.Second

// Status logs in to every machine and queries the cluster. It changes nothing. It returns an error if a machine is not a Ready node.
func Status(ctx context.Context, o Options) ([]MachineStatus, error) {
	o.DryRun, o.Log = true, nil
	f, err := newFleet(o)
	if err != nil {
		return nil, err
	}
	defer f.close()
	f.look(ctx)
	nodes, machines, unknown := f.live(ctx)
	var out []MachineStatus
	var bad []string
	for _, n := range f.nodes {
		s := MachineStatus{Name: n.m.Name, Role: n.role, Address: n.m.Address, Answers: n.err == nil, Findings: finding.Of(n.err), Message: "it is not in the cluster"}
		if n.err != nil {
			s.Message = n.err.Error()
		}
		if unknown != nil && n.err == nil {
			s.Message = "the cluster does not answer: " + unknown.Error()
		}
		if i := slices.IndexFunc(nodes, func(k corev1.Node) bool { return k.Name == s.Name }); i >= 0 {
			ready, why := kube.Ready(&nodes[i], nil)
			s.Node = map[bool]string{true: "Ready", false: "NotReady"}[ready]
			if n.err == nil {
				s.Message = why
			}
		}
		if i := slices.IndexFunc(machines, func(m v1alpha1.OnecloudMachine) bool { return m.Name == s.Name }); i >= 0 {
			s.Phase = string(machines[i].Status.Phase)
		}
		if s.Node != "Ready" || !s.Answers {
			bad = append(bad, s.Name+": "+s.Message)
		}
		out = append(out, s)
	}
	if len(bad) > 0 {
		return out, finding.New("OCA-7641", "Not every machine is in the cluster", fmt.Sprintf("%d of %d are not Ready nodes that answer", len(bad), len(out)),
			"ocadm fleet apply").With(bad...)
	}
	return out, nil
}

// live reads the Nodes and machines of the cluster, if it exists.
func (f *Fleet) live(ctx context.Context) ([]corev1.Node, []v1alpha1.OnecloudMachine, error) {
	if a, err := f.authority(); err != nil || a == "" {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	k, err := f.open()
	if err != nil {
		return nil, nil, err
	}
	var nodes corev1.NodeList
	if err := k.List(ctx, &nodes); err != nil {
		return nil, nil, err
	}
	var machines v1alpha1.OnecloudMachineList
	namespace, _ := f.Spec.Cloud()
	if err := k.List(ctx, &machines, client.InNamespace(namespace)); err != nil {
		return nodes.Items, nil, nil // an older operator has no machines
	}
	return nodes.Items, machines.Items, nil
}
