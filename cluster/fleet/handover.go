// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

// resource returns the OnecloudMachine of a machine. The file's node settings for all machines apply, unless the machine overrides them.
func (n *node) resource() *v1alpha1.OnecloudMachine {
	if n.object != nil {
		return n.object
	}
	m := &v1alpha1.OnecloudMachine{}
	m.APIVersion, m.Kind = v1alpha1.GroupVersion.String(), v1alpha1.MachineKind
	m.Name = n.m.Name
	m.Namespace, m.Spec.Cloud = n.Spec.Cloud()
	m.Spec.Roles, m.Spec.Labels, m.Spec.Taints, m.Spec.HostNetworks = n.m.Roles, n.m.Labels, n.m.Taints, n.m.HostNetworks
	if n.role != roleWorker {
		m.Spec.Roles = append(slices.Clone(m.Spec.Roles), v1alpha1.RoleControlPlane)
	}
	m.Spec.Settings = n.settings()
	return m
}

func (n *node) settings() v1alpha1.MachineSettings {
	all := map[string]any{}
	common, _ := n.Spec.Settings["node"].(map[string]any)
	maps.Copy(all, common)
	var own map[string]any
	text, err := json.Marshal(n.m.Settings)
	if err == nil {
		err = json.Unmarshal(text, &own)
	}
	maps.Copy(all, own)
	var out v1alpha1.MachineSettings
	if err == nil {
		if text, err = json.Marshal(all); err == nil {
			err = json.Unmarshal(text, &out) // anything that is not a machine setting is ignored
		}
	}
	if err != nil { // the types were checked when the file was read
		return n.m.Settings
	}
	return out
}

// hands reports whether the machines become resources of a cloud, and if not, why.
func (f *Fleet) hands(ctx context.Context, k client.Client) (why string, err error) {
	if f.Spec.KeepOut {
		return "keepOut is set", nil
	}
	namespace, name := f.Spec.Cloud()
	err = k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.OnecloudCluster{})
	switch {
	case err == nil:
		return "", nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return fmt.Sprintf("there is no cloud %s in namespace %s", name, namespace), nil
	}
	return "", fmt.Errorf("reading cloud %s: %w", name, err)
}

// announce returns the step that creates a worker's resource before it joins, so that its Node gets the label of the machine. The resource is paused,
// so the operator leaves it to the fleet.
func announce() step {
	return step{
		Name: "announce", Short: "Add the machine to the cloud, paused", Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, n *node, report workflow.Reporter) error {
			k, err := n.open()
			if err != nil {
				return err
			}
			n.object = n.resource()
			why, err := n.hands(ctx, k)
			if err != nil || why != "" {
				return err
			}
			return n.add(ctx, k, report)
		},
	}
}

// add creates the resource unless it exists, and writes the Secrets with its logins, which the file may have changed.
func (n *node) add(ctx context.Context, k client.Client, report workflow.Reporter) error {
	t, err := n.target(n.m)
	if err != nil {
		return err
	}
	way := v1alpha1.MachineSSH{MachineLogin: v1alpha1.MachineLogin{Address: t.Address, Port: int32(t.Port), User: t.User, HostKey: t.HostKey}}
	if way.CredentialsSecretName, err = n.login(ctx, k, false); err != nil {
		return err
	}
	if j := t.Jump; j != nil {
		way.JumpHost = &v1alpha1.MachineLogin{Address: j.Address, Port: int32(j.Port), User: j.User, HostKey: j.HostKey}
		if way.JumpHost.CredentialsSecretName, err = n.login(ctx, k, true); err != nil {
			return err
		}
	}
	m := n.resource()
	live := &v1alpha1.OnecloudMachine{}
	if found, err := kube.Find(ctx, k, client.ObjectKeyFromObject(m), live, "machine "+m.Name); err != nil {
		return err
	} else if found {
		n.object = live
		return n.update(ctx, k, m, report)
	}
	m = m.DeepCopy()
	m.Spec.Infrastructure.SSH = way
	m.Annotations = cluster.PauseMachine(time.Now())
	if err := k.Create(ctx, m, client.FieldOwner(kube.FieldManager)); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			report.Info("the operator of this cluster joins no machines")
			return nil
		}
		return finding.Errorf("OCA-7611", "Machine "+m.Name+" is not valid", "correct it in the file", "%w", err)
	}
	n.object = m
	report.Changed("added machine %s", m.Name)
	return nil
}

// update gives an existing resource the settings in the file if they have changed since the machine joined: the join reads them from there.
func (n *node) update(ctx context.Context, k client.Client, wanted *v1alpha1.OnecloudMachine, report workflow.Reporter) error {
	if n.again() == "" || equality.Semantic.DeepEqual(n.object.Spec.Settings, wanted.Spec.Settings) {
		return nil
	}
	after := n.object.DeepCopy()
	after.Spec.Settings = wanted.Spec.Settings
	if err := k.Patch(ctx, after, client.MergeFrom(n.object), client.FieldOwner(kube.FieldManager)); err != nil {
		return finding.Errorf("OCA-7611", "The settings of machine "+after.Name+" cannot be changed", "correct them in the file", "%w", err)
	}
	n.object = after
	report.Changed("changed the settings of machine %s", after.Name)
	return nil
}

// login writes the Secret for a login and returns its name.
func (n *node) login(ctx context.Context, k client.Client, jump bool) (string, error) {
	name, data, err := n.loginSecret(n.m, jump)
	if err != nil {
		return "", err
	}
	namespace, _ := n.Spec.Cloud()
	n.pins.Lock() // machines share Secrets
	defer n.pins.Unlock()
	if err := cluster.PutSecret(ctx, k, client.ObjectKey{Namespace: namespace, Name: name}, data); err != nil {
		return "", fmt.Errorf("writing Secret %s: %w", name, err)
	}
	return name, nil
}

// handOver returns the step that puts the operator in charge of a machine. It adds the machine's label to a Node that lacks it.
func handOver() step {
	return step{
		Name: "hand-over", Short: "Hand the machine over to the operator", Timeout: 5 * time.Minute,
		Skip: workflow.SkipIf("the operator cannot remove the only control-plane node", func(n *node) bool {
			return n.role != roleWorker && len(n.Spec.ControlPlanes) == 1
		}),
		Run: func(ctx context.Context, n *node, report workflow.Reporter) error {
			k, err := n.open()
			if err != nil {
				return err
			}
			why, err := n.hands(ctx, k)
			if err != nil {
				return err
			}
			if why != "" {
				report.Info("the machine is only a node: %s", why)
				return nil
			}
			if err := n.add(ctx, k, report); err != nil {
				return err
			}
			if n.object.UID == "" {
				return nil
			}
			if err := n.label(ctx, k, report); err != nil {
				return err
			}
			key := client.ObjectKeyFromObject(n.object)
			resumed, err := cluster.MarkMachine(ctx, k, key, cluster.ResumeMachine(time.Now()))
			if err != nil {
				return err
			}
			if resumed {
				report.Changed("machine %s was handed over to the operator", key.Name)
			}
			return n.untilRunning(ctx, k, report)
		},
	}
}

func (n *node) label(ctx context.Context, k client.Client, report workflow.Reporter) error {
	node := &corev1.Node{}
	if err := k.Get(ctx, client.ObjectKey{Name: n.m.Name}, node); err != nil {
		return fmt.Errorf("reading node %s: %w", n.m.Name, err)
	}
	if node.Labels[v1alpha1.LabelMachine] == string(n.object.UID) {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{v1alpha1.LabelMachine: string(n.object.UID)}}}
	if err := kube.Merge(ctx, k, node, kube.FieldManager, patch); err != nil {
		return fmt.Errorf("labelling node %s: %w", n.m.Name, err)
	}
	report.Changed("node %s is machine %s", n.m.Name, n.m.Name)
	return nil
}

// untilRunning waits until the operator has seen the Node.
func (n *node) untilRunning(ctx context.Context, k client.WithWatch, report workflow.Reporter) error {
	key := client.ObjectKeyFromObject(n.object)
	runs := func(p v1alpha1.MachinePhase) bool { return p == v1alpha1.MachineRunning }
	if _, err := cluster.WaitMachine(ctx, k, key, runs, func(why string) { report.Waiting("machine "+key.Name, why) }); err != nil {
		return finding.Errorf("OCA-7612", "Machine "+key.Name+" does not run yet", "ocadm machine get "+key.Name+"; then run ocadm fleet apply again", "%w", err)
	}
	return nil
}
