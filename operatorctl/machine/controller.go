// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Infrastructure is the controller that delivers the bootstrap data of machines, and removes machines from the cluster. Its request is a machine.
type Infrastructure struct {
	Options

	mu sync.Mutex
	// last is when the status of a machine in transition was last written.
	last map[types.UID]time.Time
}

// minorInterval is the maximum delay of an operation's progress in the status of its machine: hundreds of machines change all the time.
const minorInterval = 5 * time.Second

// rests returns how long a minor change of the status must wait, 0 if it is written now.
func (c *Infrastructure) rests(m *v1alpha1.OnecloudMachine, d decision) time.Duration {
	if !d.minor(m) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, time.Until(c.last[m.UID].Add(minorInterval)))
}

// reported records that the status was written.
func (c *Infrastructure) reported(m *v1alpha1.OnecloudMachine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.last, func(_ types.UID, at time.Time) bool { return time.Since(at) > minorInterval })
	if c.last == nil {
		c.last = map[types.UID]time.Time{}
	}
	c.last[m.UID] = time.Now()
}

func (c *Infrastructure) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &v1alpha1.OnecloudMachine{}
	if err := c.Client.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if m.DeletionTimestamp != nil && !controllerutil.ContainsFinalizer(m, v1alpha1.MachineFinalizer) {
		return ctrl.Result{}, nil
	}
	f, err := c.gather(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if taken, err := c.take(ctx, m, f.cloud); taken || err != nil {
		return ctrl.Result{}, conflicts(err) // the change brings the next pass
	}
	d := decide(f)
	if d.early {
		return ctrl.Result{}, nil
	}
	if later := c.rests(m, d); later > 0 {
		return ctrl.Result{RequeueAfter: later}, nil
	}
	if d.create != nil {
		if waits, err := c.create(ctx, m, d.create); waits || err != nil {
			return ctrl.Result{}, err
		}
	}
	if d.cancel != nil {
		if err := operation.SetControl(ctx, c.Client, d.cancel, v1alpha1.OperationCancel); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	if d.bind {
		err := c.bind(ctx, m, f.node)
		if apierrors.IsConflict(err) { // the kubelet changes a new Node often, and not every change is an event here
			return ctrl.Result{RequeueAfter: bindAgain}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := c.report(ctx, m, d.status); err != nil {
		return ctrl.Result{}, conflicts(err)
	}
	if err := c.release(ctx, m, d); err != nil {
		return ctrl.Result{}, conflicts(client.IgnoreNotFound(err))
	}
	return ctrl.Result{RequeueAfter: d.again}, nil
}

// release changes the machine itself after its status is written: it records the result of a request, and deletes or releases the machine.
func (c *Infrastructure) release(ctx context.Context, m *v1alpha1.OnecloudMachine, d decision) error {
	if d.delete {
		if err := c.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); err != nil {
			return fmt.Errorf("removing machine %s: %w", m.Name, err)
		}
		return nil
	}
	if d.annotate != "" { // before the finalizer is removed, so that watching clients get the last state
		after := m.DeepCopy()
		after.Annotations[v1alpha1.AnnotationOperation] = d.annotate
		if err := c.patch(ctx, after, m); err != nil {
			return err
		}
		m = after
	}
	if !d.release {
		return nil
	}
	after := m.DeepCopy()
	controllerutil.RemoveFinalizer(after, v1alpha1.MachineFinalizer)
	return c.patch(ctx, after, m)
}

// bindAgain is the delay after which a Node that changed meanwhile gets its ID and taints.
const bindAgain = time.Second

// conflicts drops the error about a machine that has changed meanwhile: the change triggers the next pass.
func conflicts(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// gather reads the facts about a machine from the cache.
func (c *Infrastructure) gather(ctx context.Context, m *v1alpha1.OnecloudMachine) (facts, error) {
	f := facts{machine: m, now: time.Now()}
	cloud := &v1alpha1.OnecloudCluster{}
	if found, err := kube.Find(ctx, c.Client, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Cloud}, cloud, "the cloud"); err != nil {
		return f, err
	} else if found {
		f.cloud = cloud
	}
	var all v1alpha1.OnecloudMachineList
	if err := c.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return f, fmt.Errorf("listing machines: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.UID == m.UID || older(other, m) > 0 {
			continue
		}
		if SameAddress(other, m) {
			f.twin = other.Name
		}
		if SameName(other, m) {
			f.namesake = other.Namespace + "/" + other.Name
		}
	}
	node := &corev1.Node{}
	if found, err := kube.Find(ctx, c.Client, client.ObjectKey{Name: m.Name}, node, "node "+m.Name); err != nil {
		return f, err
	} else if found {
		f.node, f.left = node, Left(node)
	}
	var err error
	if f.operations, f.former, err = operationsOn(ctx, c.Client, m); err != nil {
		return f, err
	}
	if f.data, err = usable(ctx, c.Client, m, f.operations); err != nil {
		return f, err
	}
	if m.DeletionTimestamp != nil {
		if f.only, err = IsOnlyControlPlane(ctx, c.Client, m); err != nil {
			return f, err
		}
	}
	if m.CallsIn() {
		if f.report, err = c.heard(ctx, m); err != nil {
			return f, err
		}
	}
	if !joined(f.node, f.machine) {
		return f, nil
	}
	f.agents, err = agentsOn(ctx, c.Client, m, f.node.Name)
	return f, err
}

// agentsOn returns the pods of a machine's cloud on a node.
func agentsOn(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(m.Namespace), client.HasLabels{v1alpha1.LabelComponent}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(pods.Items), func(p corev1.Pod) bool {
		return p.Spec.NodeName != node || !component.OfCloud(&p, m.Spec.Cloud)
	}), nil
}

// operationsOn returns the operations on a machine from the cache, the latest last. former is the highest number in the names of those on an earlier machine
// of this name, which are kept for a while.
func operationsOn(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine) (out []*v1alpha1.OnecloudOperation, former int, err error) {
	var all v1alpha1.OnecloudOperationList
	if err := c.List(ctx, &all, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("listing operations: %w", err)
	}
	check := "" // the clocks of API servers may differ: what the status names is of this machine
	if r := m.Status.Request; r != nil {
		check = r.Name
	}
	for i := range all.Items {
		switch op := &all.Items[i]; {
		case op.MachineName() != m.Name:
		case op.Name != m.Status.Operation && op.Name != check && op.CreationTimestamp.Before(&m.CreationTimestamp):
			n, _ := strconv.Atoi(strings.TrimPrefix(op.Name, prefixes[op.Spec.Action]+"-"+m.Name+"-")) // one that a user has created has no number
			former = max(former, n)
		default:
			out = append(out, op)
		}
	}
	slices.SortFunc(out, operation.InTurn)
	return out, former, nil
}

// usable reports whether a machine has valid bootstrap data.
func usable(ctx context.Context, c client.Reader, m *v1alpha1.OnecloudMachine, operations []*v1alpha1.OnecloudOperation) (bool, error) {
	s := &corev1.Secret{}
	if found, err := kube.Find(ctx, c, client.ObjectKey{Namespace: m.Namespace, Name: m.BootstrapSecret()}, s, "the bootstrap data"); !found {
		return false, err
	}
	fits := !m.ControlPlane() || !meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionBootstrapDataReady) // otherwise its key does not fit
	return fits && belongs(s, m) && expires(s).After(time.Now()) && accepted(s, refusal(operations)), nil
}

// take adds a machine to its cloud before anything else: it is deleted with the cloud, but not before it has left the cluster.
func (c *Infrastructure) take(ctx context.Context, m *v1alpha1.OnecloudMachine, cloud *v1alpha1.OnecloudCluster) (bool, error) {
	after := m.DeepCopy()
	if m.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(after, v1alpha1.MachineFinalizer)
		after.Spec.ProviderID = m.NodeProviderID()
		if cloud != nil {
			// The reference replaces one to a deleted cloud of the same name.
			if err := controllerutil.SetOwnerReference(cloud, after, c.Client.Scheme()); err != nil {
				return false, fmt.Errorf("changing machine %s: %w", m.Name, err)
			}
		}
	}
	if equality.Semantic.DeepEqual(after.ObjectMeta, m.ObjectMeta) && after.Spec.ProviderID == m.Spec.ProviderID {
		return false, nil
	}
	return true, c.patch(ctx, after, m)
}

func (c *Infrastructure) patch(ctx context.Context, after, before *v1alpha1.OnecloudMachine) error {
	if err := c.Client.Patch(ctx, after, kube.IfUnchanged(before), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("changing machine %s: %w", before.Name, err)
	}
	return nil
}

// report writes the status if it has changed.
func (c *Infrastructure) report(ctx context.Context, m *v1alpha1.OnecloudMachine, s v1alpha1.OnecloudMachineStatus) error {
	if equality.Semantic.DeepEqual(m.Status, s) {
		return nil
	}
	after := m.DeepCopy()
	after.Status = s
	if err := c.Client.Status().Patch(ctx, after, kube.IfUnchanged(m), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("writing the status of machine %s: %w", m.Name, err)
	}
	c.reported(m)
	if was := m.Status.Phase; was != s.Phase && isNews(was, s.Phase) {
		kind := corev1.EventTypeNormal
		if s.Phase == v1alpha1.MachineFailed {
			kind = corev1.EventTypeWarning
		}
		c.Events.Eventf(m, nil, kind, string(s.Phase), "Reconcile", "%s", status.Note(cmp.Or(s.Message, "done")))
		c.Log.Info("machine", "machine", m.Name, "namespace", m.Namespace, "from", string(was), "to", string(s.Phase), "message", s.Message)
	}
	m.ResourceVersion = after.ResourceVersion
	return nil
}

// isNews reports whether a phase deserves an event. A new machine does not, nor does what the events of its operation and its Node report.
func isNews(was, is v1alpha1.MachinePhase) bool {
	return is != v1alpha1.MachineProvisioning && is != v1alpha1.MachineProvisioned && (was != "" || is != v1alpha1.MachinePending)
}

// create creates an operation. waits is true if the cache does not have the previous one yet.
func (c *Infrastructure) create(ctx context.Context, m *v1alpha1.OnecloudMachine, o *v1alpha1.OnecloudOperation) (waits bool, err error) {
	if m.Status.Operation != "" {
		key := client.ObjectKey{Namespace: m.Namespace, Name: m.Status.Operation}
		cached := c.Client.Get(ctx, key, &v1alpha1.OnecloudOperation{})
		if apierrors.IsNotFound(cached) {
			switch err := c.Direct.Get(ctx, key, &v1alpha1.OnecloudOperation{}); {
			case err == nil:
				return true, nil
			case !apierrors.IsNotFound(err):
				return false, fmt.Errorf("reading operation %s: %w", key.Name, err)
			}
		}
	}
	if err := c.Client.Create(ctx, o, client.FieldOwner(v1alpha1.ManagerOperator)); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("creating operation %s: %w", o.Name, err)
	}
	return false, nil
}

// bind sets the ID and the taints of a Node that has just registered. The ID alone needs no read: the API server refuses to replace an ID.
func (c *Infrastructure) bind(ctx context.Context, m *v1alpha1.OnecloudMachine, cached *corev1.Node) error {
	if len(m.Spec.Taints) == 0 {
		target := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cached.Name}}
		err := kube.Merge(ctx, c.Client, target, v1alpha1.ManagerOperator, map[string]any{"spec": map[string]any{"providerID": m.NodeProviderID()}})
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // it has an ID from a cloud provider
			return nil
		}
		return fmt.Errorf("giving node %s its ID: %w", cached.Name, err)
	}
	n := &corev1.Node{}
	if err := c.Direct.Get(ctx, client.ObjectKey{Name: cached.Name}, n); err != nil {
		return fmt.Errorf("reading node %s: %w", cached.Name, err)
	}
	after := n.DeepCopy()
	after.Spec.ProviderID = cmp.Or(after.Spec.ProviderID, m.NodeProviderID())
	for _, t := range m.Spec.Taints {
		if !slices.ContainsFunc(after.Spec.Taints, func(o corev1.Taint) bool { return o.Key == t.Key && o.Effect == t.Effect }) {
			after.Spec.Taints = append(after.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
		}
	}
	if equality.Semantic.DeepEqual(n.Spec, after.Spec) {
		return nil
	}
	// The kubelet removes taints meanwhile.
	if err := c.Client.Patch(ctx, after, kube.IfUnchanged(n), client.FieldOwner(v1alpha1.ManagerOperator)); err != nil {
		return fmt.Errorf("giving node %s its ID and taints: %w", n.Name, err)
	}
	return nil
}
