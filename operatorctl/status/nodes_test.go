// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/status"
)

const prefix = v1alpha1.NodeRolePrefix

// node returns a Ready node with the roles.
func node(name string, roles ...string) status.Node {
	n := status.Node{Name: name, Ready: true, Labels: map[string]string{}}
	for _, r := range roles {
		n.Labels[prefix+r] = "enable"
	}
	return n
}

func lost(n status.Node) status.Node {
	n.Ready, n.Message = false, "Kubelet stopped posting node status"
	return n
}

// joins returns a node that has just been created, stays one that is too old to be still joining. Neither has ever been Ready.
func joins(n status.Node) status.Node { return neverReady(n, t0.Add(-time.Minute)) }
func stays(n status.Node) status.Node { return neverReady(n, t0.Add(-4*time.Minute)) }

func neverReady(n status.Node, created time.Time) status.Node {
	made := metav1.NewTime(created)
	return status.NodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, CreationTimestamp: made}, Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: made}}}})
}

// withRoles returns a template of pods for nodes with one of the roles.
func withRoles(roles ...string) corev1.PodTemplateSpec {
	var terms []corev1.NodeSelectorTerm
	for _, r := range roles {
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: prefix + r, Operator: corev1.NodeSelectorOpIn, Values: []string{"enable"}}}})
	}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}}}
}

func on(t corev1.PodTemplateSpec, d *appsv1.Deployment) *appsv1.Deployment {
	d.Spec.Template = t
	return d
}

func daemon(t corev1.PodTemplateSpec, wanted, updated, available int32) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		Spec:   appsv1.DaemonSetSpec{Template: t, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "glance"}}},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: wanted, UpdatedNumberScheduled: updated, NumberAvailable: available},
	}
}

// The labels and readiness of nodes determine a component's state, whatever the scheduler reports.
func TestNodesOfARole(t *testing.T) {
	const message = "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
	pending := pod(corev1.ContainerStatus{})
	pending.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
	more := onHosts.DeepCopy()
	more.Spec.NodeSelector["disk"] = "ssd"
	none := func() *appsv1.Deployment { return deployment(1, 1, 1, 1, 1, 0) }
	for _, c := range []struct {
		name  string
		live  client.Object
		nodes []status.Node
		state v1alpha1.State
		want  string
	}{
		{"no node has the role", on(withRoles("baremetal"), none()), []status.Node{node("n1", "controller", "host")},
			v1alpha1.Idle, "no node has label onecloud.yunion.io/baremetal=enable"},
		{"another node is lost", on(withRoles("baremetal"), none()), []status.Node{node("n1", "controller"), lost(node("n2", "host"))},
			v1alpha1.Idle, "no node has label onecloud.yunion.io/baremetal=enable"},
		{"a node has the role, and no room", on(withRoles("baremetal"), none()), []status.Node{node("n1", "baremetal")},
			v1alpha1.Degraded, "0 of 1 pods ready; Unschedulable: " + message},
		{"no node is a controller", on(withRoles("controller"), none()), []status.Node{node("n1")},
			v1alpha1.Degraded, "0 of 1 pods ready; Unschedulable: " + message},
		{"nodes are not known", on(withRoles("baremetal"), none()), nil, v1alpha1.Degraded, "0 of 1 pods ready; Unschedulable: " + message},
		{"it runs although the label has gone", on(withRoles("baremetal"), deployment(1, 1, 1, 1, 1, 1)), []status.Node{node("n1")}, v1alpha1.Available, ""},
		{"agents, no node", daemon(withRoles("host", "lbagent"), 0, 0, 0), []status.Node{node("n1", "controller")},
			v1alpha1.Idle, "no node has label onecloud.yunion.io/host=enable or onecloud.yunion.io/lbagent=enable"},
		{"agents, no node with a label that a person chose", daemon(*more, 0, 0, 0), []status.Node{node("n1", "host")},
			v1alpha1.Idle, "no node has labels disk=ssd and onecloud.yunion.io/host=enable"},
		{"agents, nodes are not known", daemon(onHosts, 0, 0, 0), nil, v1alpha1.Idle, "no node has label onecloud.yunion.io/host=enable"},
		{"the label is new", daemon(onHosts, 0, 0, 0), []status.Node{node("n1", "host")},
			v1alpha1.Progressing, "a node has label onecloud.yunion.io/host=enable, but no pod is scheduled there yet; if this persists, check the taints of the node"},
		{"the only compute node is joining, and has no pod yet", daemon(onHosts, 0, 0, 0), []status.Node{node("n1", "controller"), joins(node("n2", "host"))},
			v1alpha1.Progressing, "a node has label onecloud.yunion.io/host=enable, but no pod is scheduled there yet; if this persists, check the taints of the node"},
		{"the only compute node has been joining for too long", daemon(onHosts, 0, 0, 0), []status.Node{node("n1", "controller"), stays(node("n2", "host"))},
			v1alpha1.Degraded, "no node with label onecloud.yunion.io/host=enable is Ready: n2"},
		{"one of two compute nodes is lost, and Kubernetes expects no pod there", daemon(onHosts, 1, 1, 1), []status.Node{node("n1", "host"), lost(node("n2", "host"))},
			v1alpha1.Available, "not on n2: not Ready"},
		{"one of two compute nodes is lost, and Kubernetes waits for its pod", daemon(onHosts, 2, 1, 1), []status.Node{node("n1", "host"), lost(node("n2", "host"))},
			v1alpha1.Available, "not on n2: not Ready"},
		{"one is lost, on the other it does not run", daemon(onHosts, 1, 1, 0), []status.Node{node("n1", "host"), lost(node("n2", "host"))},
			v1alpha1.Degraded, "0 of 1 pods ready; Unschedulable: " + message},
		{"one is lost, one still has the old version", daemon(onHosts, 2, 1, 2), []status.Node{node("n1", "host"), node("n2", "host"), lost(node("n3", "host"))},
			v1alpha1.Degraded, "2 of 2 pods ready; Unschedulable: " + message},
		{"the only compute node is lost", daemon(onHosts, 0, 0, 0), []status.Node{node("n1", "controller"), lost(node("n2", "host"))},
			v1alpha1.Degraded, "no node with label onecloud.yunion.io/host=enable is Ready: n2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := status.WorkloadOf(c.live, status.Seen{Pods: []corev1.Pod{pending}, Nodes: c.nodes, Now: t0})
			got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: w, Current: true, Now: t0})
			if got.State != c.state || got.Message != c.want {
				t.Errorf("got %s %q", got.State, got.Message)
			}
			if serves := c.state == v1alpha1.Idle || c.state == v1alpha1.Available; w.Serving() != serves {
				t.Errorf("serving: %v", w.Serving())
			}
		})
	}
}

// A new pod may be unschedulable while the old one still holds a port of the node, until the old one's grace period is over.
func TestPodThatWaitsForItsPredecessor(t *testing.T) {
	const message = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
	waiting, old := pod(corev1.ContainerStatus{}), pod(corev1.ContainerStatus{})
	waiting.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	}}
	old.DeletionTimestamp = &metav1.Time{Time: t0.Add(30 * time.Second)}
	for _, c := range []struct {
		after time.Duration
		state v1alpha1.State
		want  string
		due   time.Duration
	}{
		{0, v1alpha1.Progressing, "0 of 1 pods ready", 30 * time.Second},
		{31 * time.Second, v1alpha1.Degraded, "0 of 1 pods ready; Unschedulable: " + message, 0},
	} {
		now := t0.Add(c.after)
		w := status.WorkloadOf(on(withRoles("controller"), deployment(1, 1, 1, 1, 1, 0)),
			status.Seen{Pods: []corev1.Pod{old, waiting}, Nodes: []status.Node{node("n1", "controller")}, Now: now})
		got := status.Component(status.Observed{Name: "glance", Resolved: service(), Workload: w, Current: true, Now: now})
		if got.State != c.state || got.Message != c.want {
			t.Errorf("after %s: %s %q", c.after, got.State, got.Message)
		}
		if due := c.due > 0 && !w.Due.Equal(t0.Add(c.due)) || c.due == 0 && !w.Due.IsZero(); due {
			t.Errorf("after %s: due %s", c.after, w.Due)
		}
	}
}

func TestNodesReady(t *testing.T) {
	plain, used := lost(node("n9")), pod(corev1.ContainerStatus{})
	used.Spec.NodeName = "n9"
	var many []status.Node
	for i := range 12 {
		many = append(many, lost(node(fmt.Sprintf("n%02d", i), "host")))
		many[i].Message = ""
	}
	for _, c := range []struct {
		name    string
		nodes   []status.Node
		pods    []corev1.Pod
		status  metav1.ConditionStatus
		message string
	}{
		{"all are Ready", []status.Node{node("n1", "host")}, nil, metav1.ConditionTrue, ""},
		{"a node without a role does not matter", []status.Node{node("n1", "host"), plain}, nil, metav1.ConditionTrue, ""},
		{"it does where a pod of the cloud runs", []status.Node{node("n1", "host"), plain}, []corev1.Pod{used}, metav1.ConditionFalse,
			"1 of 2 nodes are not Ready: n9 (Kubelet stopped posting node status)"},
		{"a node is joining", []status.Node{node("n1", "host"), joins(node("n2", "host"))}, nil, metav1.ConditionTrue, ""},
		{"a node has been joining for too long", []status.Node{node("n1", "host"), stays(node("n2", "host"))}, nil, metav1.ConditionFalse,
			"1 of 2 nodes are not Ready: n2"},
		{"a clock was ahead when it joined", []status.Node{node("n1", "host"), neverReady(node("n2", "host"), t0.Add(8*time.Hour))}, nil, metav1.ConditionFalse,
			"1 of 2 nodes are not Ready: n2"},
		{"many", many, nil, metav1.ConditionFalse, "12 of 12 nodes are not Ready: n00; n01; n02; n03; n04; n05; n06; n07; n08; n09; and 2 more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cr := &v1alpha1.OnecloudCluster{}
			cr.Generation = 3
			out := status.Of(cr, t0)
			out.NodesReady(c.nodes, c.pods)
			got := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionNodesReady)
			if got == nil || got.Status != c.status || got.Message != c.message || got.ObservedGeneration != 3 {
				t.Errorf("%+v", got)
			}
			if out.NodesReady(nil, c.pods); len(out.Conditions) != 0 {
				t.Errorf("nodes are not known any more: %+v", out.Conditions)
			}
		})
	}
}

func TestNodeOf(t *testing.T) {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if n := status.NodeOf(o); n.Ready || n.Message != "its kubelet has not reported yet" {
		t.Errorf("a new node: %+v", n)
	}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "Kubelet stopped posting node status."}}
	if n := status.NodeOf(o); n.Ready || n.Message != "Kubelet stopped posting node status" {
		t.Errorf("a lost node: %+v", n)
	}
}

// A cloud without an address gets that of a node with the role controller, and always chooses the same one.
func TestPublicAddress(t *testing.T) {
	at := func(n status.Node, address string, age int) status.Node {
		n.Address, n.Created = address, time.Unix(1_800_000_000, 0).AddDate(0, 0, -age)
		return n
	}
	plane := node("plane")
	plane.Labels["node-role.kubernetes.io/control-plane"] = ""
	disabled := node("disabled")
	disabled.Labels[prefix+"controller"] = "disable"
	for _, c := range []struct {
		name  string
		nodes []status.Node
		want  string
	}{
		{"no nodes", nil, ""},
		{"only others", []status.Node{at(node("a", "host"), "10.0.0.1", 1), at(disabled, "10.0.0.2", 1)}, ""},
		{"one without an address", []status.Node{node("a", "controller")}, ""},
		{"a control-plane node", []status.Node{at(node("a", "host"), "10.0.0.1", 2), at(plane, "10.0.0.2", 1)}, "10.0.0.2"},
		{"the role goes first", []status.Node{at(plane, "10.0.0.2", 2), at(node("a", "controller"), "10.0.0.1", 1)}, "10.0.0.1"},
		{"the oldest", []status.Node{at(node("a", "controller"), "10.0.0.1", 1), at(node("b", "controller"), "10.0.0.2", 2)}, "10.0.0.2"},
		{"by name", []status.Node{at(node("b", "controller"), "10.0.0.2", 1), at(node("a", "controller"), "10.0.0.1", 1)}, "10.0.0.1"},
		{"Ready before old", []status.Node{lost(at(node("a", "controller"), "10.0.0.1", 9)), at(node("b", "controller"), "10.0.0.2", 1)}, "10.0.0.2"},
		{"none is Ready", []status.Node{lost(at(node("a", "controller"), "fd00::1", 9))}, "fd00::1"},
	} {
		if got := status.PublicAddress(c.nodes); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
