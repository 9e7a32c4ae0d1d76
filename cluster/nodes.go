// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/nearest"
)

const (
	RoleHost       = "host"
	RoleController = "controller"
	RoleBaremetal  = "baremetal"
)

// disable is the label value for a removed role.
const disable = "disable"

// SetRole adds a role to nodes or removes it. If any name is unknown, no node changes.
func SetRole(ctx context.Context, c client.Client, nodes []string, role string, on bool) ([]kube.Change, error) {
	value := disable
	if on {
		value = v1alpha1.Enable
	}
	return Label(ctx, c, nodes, map[string]string{v1alpha1.NodeRolePrefix + role: value}, nil)
}

// WithRole returns those of the nodes that have a role, as "NAME (ADDRESS)". It ignores unknown names; SetRole reports them.
func WithRole(ctx context.Context, c client.Client, nodes []string, role string) ([]string, error) {
	var list corev1.NodeList
	if err := c.List(ctx, &list, client.MatchingLabels{v1alpha1.NodeRolePrefix + role: v1alpha1.Enable}); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var out []string
	for _, n := range list.Items {
		if !slices.Contains(nodes, n.Name) {
			continue
		}
		name := n.Name
		if at := kube.InternalIPs(&n); len(at) > 0 {
			name += " (" + at[0] + ")"
		}
		out = append(out, name)
	}
	return out, nil
}

// Label sets labels on nodes, and annotations on those whose labels change.
func Label(ctx context.Context, c client.Client, nodes []string, labels, annotations map[string]string) ([]kube.Change, error) {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	known := map[string]*corev1.Node{}
	var names []string
	for i := range list.Items {
		known[list.Items[i].Name] = &list.Items[i]
		names = append(names, list.Items[i].Name)
	}
	unknown := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return known[n] != nil })
	if len(unknown) > 0 {
		return nil, unknownNodes(unknown, names)
	}
	var changes []kube.Change
	var errs []error
	for _, n := range nodes {
		change, err := label(ctx, c, known[n], labels, annotations)
		changes = append(changes, change)
		errs = append(errs, err)
	}
	return changes, errors.Join(errs...)
}

func unknownNodes(unknown, known []string) finding.Finding {
	slices.Sort(known)
	f := finding.New("OCA-7011", "Node not found: "+strings.Join(unknown, ", "), "", "kubectl get nodes").With(known...)
	if n, ok := nearest.To(unknown[0], known); ok {
		f.Remedy = fmt.Sprintf("did you mean %s?", n)
	}
	return f
}

func label(ctx context.Context, c client.Client, n *corev1.Node, labels, annotations map[string]string) (kube.Change, error) {
	change := kube.Change{Action: kube.Unchanged, Kind: "Node", Name: n.Name}
	set := map[string]any{}
	for k, v := range labels {
		if n.Labels[k] != v {
			set[k] = v
		}
	}
	if len(set) == 0 {
		return change, nil
	}
	metadata := map[string]any{"labels": set}
	if len(annotations) > 0 { // null would remove every annotation
		metadata["annotations"] = annotations
	}
	err := merge(ctx, c, n, map[string]any{"metadata": metadata})
	if apierrors.IsNotFound(err) {
		return change, fmt.Errorf("labelling node %s: it was just deleted: %w", n.Name, err)
	}
	if err != nil {
		return change, fmt.Errorf("labelling node %s: %w", n.Name, err)
	}
	change.Action = kube.Configured
	return change, nil
}
