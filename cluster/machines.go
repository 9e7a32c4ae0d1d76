// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// Machine is a machine of a cloud.
type Machine = v1alpha1.OnecloudMachine

// Machines lists the machines of a cloud by name.
func Machines(ctx context.Context, c client.Client, namespace, cloud string) ([]Machine, error) {
	var list v1alpha1.OnecloudMachineList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, noMachines(fmt.Errorf("listing the machines in namespace %s: %w", namespace, err))
	}
	out := slices.DeleteFunc(list.Items, func(m Machine) bool { return m.Spec.Cloud != cloud })
	slices.SortFunc(out, func(a, b Machine) int { return strings.Compare(a.Name, b.Name) })
	for i := range out {
		plain(&out[i], v1alpha1.MachineKind)
	}
	return out, nil
}

// MachineOf reads one machine.
func MachineOf(ctx context.Context, c client.Client, key client.ObjectKey) (*Machine, error) {
	m := &Machine{}
	err := c.Get(ctx, key, m)
	if apierrors.IsNotFound(err) {
		return nil, finding.Errorf("OCA-7609", "There is no machine "+key.Name, "ocadm machine list", "%w", err)
	}
	if err != nil {
		return nil, noMachines(fmt.Errorf("reading machine %s: %w", key, err))
	}
	plain(m, v1alpha1.MachineKind)
	return m, nil
}

// noMachines explains that the cluster does not define machines.
func noMachines(err error) error { return undefined(err, "OCA-7610", "joins no machines") }

// ReadMachines reads OnecloudMachines from YAML. The error names every invalid one, and none is returned then. namespace and cloud are defaults for
// machines that omit them.
func ReadMachines(name string, data []byte, namespace, cloud string) ([]Machine, error) {
	objs, err := kube.Decode(data)
	if err != nil {
		return nil, badMachines(name, err.Error())
	}
	var out []Machine
	var wrong []string
	seen := map[string]bool{}
	for i, u := range objs {
		which := fmt.Sprintf("document %d (%s)", i+1, u.GetName())
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		m := Machine{}
		switch err := yaml.UnmarshalStrict(text, &m); {
		case u.GetKind() != v1alpha1.MachineKind || u.GetAPIVersion() != v1alpha1.GroupVersion.String():
			wrong = append(wrong, which+": it is a "+u.GetKind()+" of "+u.GetAPIVersion())
			continue
		case err != nil:
			wrong = append(wrong, which+": "+err.Error())
			continue
		}
		m.Namespace = cmp.Or(m.Namespace, namespace)
		m.Spec.Cloud = cmp.Or(m.Spec.Cloud, cloud)
		key := m.Spec.Infrastructure.SSH.HostKey
		switch {
		case m.Name == "":
			wrong = append(wrong, which+": metadata.name is missing")
		case seen[m.Name]:
			wrong = append(wrong, which+": the name is in the file twice")
		case key != "" && ssh.CheckHostKey(key) != nil:
			wrong = append(wrong, which+": spec.infrastructure.ssh.hostKey: "+ssh.CheckHostKey(key).Error())
		default:
			if i := slices.IndexFunc(out, func(o Machine) bool { return machine.SameAddress(&o, &m) }); i >= 0 {
				wrong = append(wrong, which+": machine "+out[i].Name+" has the same address")
			}
		}
		seen[m.Name] = true
		out = append(out, m)
	}
	if len(wrong) == 0 && len(out) == 0 {
		wrong = []string{"it has no machine"}
	}
	if len(wrong) > 0 {
		return nil, badMachines(name, strings.Join(wrong, "; "))
	}
	return out, nil
}

func badMachines(name, cause string) error {
	return finding.New("OCA-7611", "The machines in "+name+" are not valid", cause, "correct the file; docs/machines.md has an example")
}

// PauseMachine keeps a machine from joining. Its annotations are for MarkMachine, like those of the functions below.
func PauseMachine(time.Time) map[string]string {
	return map[string]string{v1alpha1.AnnotationPaused: "true"}
}

// ResumeMachine lets a paused machine join.
func ResumeMachine(time.Time) map[string]string {
	return map[string]string{v1alpha1.AnnotationPaused: ""}
}

// RetryMachine makes the operator immediately retry what failed on a machine.
func RetryMachine(now time.Time) map[string]string {
	return map[string]string{v1alpha1.AnnotationRetry: now.UTC().Format(time.RFC3339)}
}

// AbandonMachine keeps the operator from doing anything more on a machine that is being deleted.
func AbandonMachine(time.Time) map[string]string {
	return map[string]string{v1alpha1.AnnotationAbandonMachine: "true"}
}

// MarkMachine sets annotations of a machine and removes those with an empty value. It reports whether anything changed.
func MarkMachine(ctx context.Context, c client.Client, key client.ObjectKey, marks map[string]string) (bool, error) {
	m, err := MachineOf(ctx, c, key)
	if err != nil {
		return false, err
	}
	set := map[string]any{}
	for k, v := range marks {
		if m.Annotations[k] == v {
			continue
		}
		if set[k] = any(v); v == "" {
			set[k] = nil
		}
	}
	if len(set) == 0 {
		return false, nil
	}
	if err := merge(ctx, c, m, map[string]any{"metadata": map[string]any{"annotations": set}}); err != nil {
		return false, fmt.Errorf("changing machine %s: %w", key, err)
	}
	return true, nil
}

// RemoveMachine deletes a machine, and waits for the end if asked to. An abandoned machine is left untouched.
func RemoveMachine(ctx context.Context, c client.WithWatch, key client.ObjectKey, abandon, wait bool, report func(string)) (bool, error) {
	m := &Machine{}
	if found, err := kube.Find(ctx, c, key, m, "machine "+key.String()); !found {
		return false, noMachines(err)
	}
	if only, err := machine.IsOnlyControlPlane(ctx, c, m); err != nil {
		return false, err
	} else if only {
		return false, machine.OnlyControlPlane(m.Name)
	}
	marked := false
	if abandon { // first: the removal must not begin without it
		var err error
		if marked, err = MarkMachine(ctx, c, key, AbandonMachine(time.Now())); err != nil {
			return false, err
		}
	}
	if err := client.IgnoreNotFound(c.Delete(ctx, m)); err != nil {
		err = fmt.Errorf("removing machine %s: %w", key, err)
		if marked { // otherwise a later removal would skip the reset
			err = errors.Join(err, unabandon(ctx, c, key))
		}
		return false, err
	}
	if !wait {
		return true, nil
	}
	err := kube.WaitGone(ctx, c, &Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, func(o client.Object) string {
		now, _ := kube.As[Machine](o)
		return now.Status.Message
	}, report)
	if err != nil {
		return true, finding.Errorf("OCA-7612", "Machine "+key.Name+" is not removed yet", "ocadm machine get "+key.Name+"; it continues by itself", "%w", err)
	}
	return true, nil
}

// unabandon withdraws the mark of a removal that failed, even if the caller has given up.
func unabandon(ctx context.Context, c client.Client, key client.ObjectKey) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second) //nolint:mnd // enough for one request
	defer cancel()
	_, err := MarkMachine(ctx, c, key, map[string]string{v1alpha1.AnnotationAbandonMachine: ""})
	return err
}

// WaitMachine waits until done returns true for a machine, and returns the machine.
func WaitMachine(ctx context.Context, c client.WithWatch, key client.ObjectKey, done func(v1alpha1.MachinePhase) bool, report func(why string)) (*Machine, error) {
	var last *Machine
	err := waitMachine(ctx, c, key, func(m *Machine) (bool, string) {
		last = m.DeepCopy()
		return done(m.Status.Phase), strings.TrimSpace(string(m.Status.Phase) + " " + m.Status.Message)
	}, report)
	return last, err
}

// waitMachine waits until a machine exists and judge returns true for it.
func waitMachine(ctx context.Context, c client.WithWatch, key client.ObjectKey, judge func(*Machine) (done bool, why string), report func(why string)) error {
	return kube.WaitFor(ctx, c, &Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, func(o client.Object) (bool, string) {
		m, there := kube.As[Machine](o)
		if !there {
			return false, "it does not exist"
		}
		return judge(m)
	}, report)
}

// BootstrapData returns the data with which a machine joins, in a format of package bootstrap. It contains a secret.
func BootstrapData(ctx context.Context, c client.Client, key client.ObjectKey, format string) (string, error) {
	m, err := MachineOf(ctx, c, key)
	if err != nil {
		return "", err
	}
	s := &corev1.Secret{}
	key.Name = m.BootstrapSecret()
	found, err := kube.Find(ctx, c, key, s, "Secret "+key.Name)
	if err != nil {
		return "", err
	}
	if !found || !metav1.IsControlledBy(s, m) {
		cause := "the operator has not created them yet"
		if is := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionBootstrapDataReady); is != nil && is.Message != "" {
			cause = is.Message
		}
		if m.Status.NodeRef != nil {
			cause = "it has joined, and the data were deleted"
		}
		return "", finding.New("OCA-7613", "Machine "+m.Name+" has no bootstrap data", cause, "ocadm machine get "+m.Name)
	}
	return bootstrap.Format(string(s.Data[v1alpha1.BootstrapScript]), format)
}

// Precheck makes the operator check machines of a cloud, and returns the operations when all have ended, in the order of names.
func Precheck(ctx context.Context, c client.WithWatch, cloud client.ObjectKey, names []string, requester string) ([]Operation, error) {
	var all []*Operation
	for _, name := range names {
		key := client.ObjectKey{Namespace: cloud.Namespace, Name: name}
		if _, err := MachineOf(ctx, c, key); err != nil {
			return nil, err
		}
		err := waitMachine(ctx, c, key, func(m *Machine) (bool, string) {
			is := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionBootstrapDataReady)
			if is == nil {
				return false, "waiting for its bootstrap data"
			}
			return is.Status == metav1.ConditionTrue, is.Message
		}, func(string) {})
		if err != nil {
			return nil, fmt.Errorf("waiting for the bootstrap data of machine %s: %w", name, err)
		}
		o, err := onMachines(ctx, c, cloud, requester, v1alpha1.ActionPrecheckMachine, v1alpha1.MachineParameters{Name: name})
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	var out []Operation
	for _, o := range all {
		last, err := ended(ctx, c, o)
		if last == nil {
			return nil, err
		}
		out = append(out, *last)
	}
	return out, nil
}

func onMachines(ctx context.Context, c client.Client, cloud client.ObjectKey, requester, action string, of v1alpha1.MachineParameters) (*Operation, error) {
	o := &Operation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: cloud.Name, Action: action, Requester: requester, Machine: &of}}
	o.Namespace = cloud.Namespace
	return o, Operate(ctx, c, o)
}

// ended returns an operation once it has ended, successful or not; nil if that was not seen.
func ended(ctx context.Context, c client.WithWatch, o *Operation) (*Operation, error) {
	last, err := FollowOperation(ctx, c, client.ObjectKeyFromObject(o), func(*Operation) {})
	if last == nil || !last.Status.Phase.Final() {
		return nil, err
	}
	return last, nil
}

// Compare makes the operator compare machines and test the connections between them. It returns the operation when it has ended, or nil if the
// operator does not support this.
func Compare(ctx context.Context, c client.WithWatch, cloud client.ObjectKey, names []string, requester string) (*Operation, error) {
	o, err := onMachines(ctx, c, cloud, requester, v1alpha1.ActionCompareMachines, v1alpha1.MachineParameters{Name: names[0], Others: names[1:]})
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return nil, nil // an older operator
	}
	if err != nil {
		return nil, err
	}
	return ended(ctx, c, o)
}
