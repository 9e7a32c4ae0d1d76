// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

func agentNode(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

func agentPod(node, component string, statuses ...corev1.ContainerStatus) *corev1.Pod {
	name := "default-" + component + "-" + node
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelComponent: component}},
		Spec:       corev1.PodSpec{NodeName: node, HostNetwork: true},
		Status:     corev1.PodStatus{ContainerStatuses: statuses},
	}
}

func container(name string, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func examine(t *testing.T, node string, read ReadLog, objects ...client.Object) (finding.List, error) {
	t.Helper()
	scheme := kube.Scheme()
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	a, err := GatherAgents(t.Context(), c, node)
	if err != nil {
		return nil, err
	}
	logs, err := a.Logs(t.Context(), read)
	if err != nil {
		return nil, err
	}
	return a.Explain(logs), nil
}

func logsOf(texts map[string]string) ReadLog {
	return func(_ context.Context, namespace, pod string, o *corev1.PodLogOptions) ([]byte, error) {
		key := pod + "/" + o.Container
		if o.Previous {
			key += "/previous"
		}
		if namespace != "onecloud" || o.TailLines == nil || *o.TailLines != LogLines {
			return nil, errors.New("not asked as expected")
		}
		text, ok := texts[key]
		if !ok {
			return nil, apierrors.NewBadRequest("no such log: " + key)
		}
		return []byte(text), nil
	}
}

var compute = map[string]string{v1alpha1.NodeRolePrefix + RoleHost: v1alpha1.Enable}

const noNetwork = "[error] register failed: try create network: find_matched == false\n"

func TestAgentsOfANode(t *testing.T) {
	deployer := agentPod("node2", "host-deployer", container("host-deployer", 0))
	alone := deployer.DeepCopy()
	alone.Spec.HostNetwork = false
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "e"}, Type: corev1.EventTypeNormal, Reason: "Killing",
		InvolvedObject: corev1.ObjectReference{Name: "default-host-node2", UID: "default-host-node2"}, Message: "Container host failed startup probe, will be restarted",
	}
	attempt := event.DeepCopy()
	attempt.Type, attempt.Reason, attempt.Message = corev1.EventTypeWarning, "Unhealthy", "Startup probe failed: connection refused"
	host := agentPod("node2", "host", container("host", 1))
	for name, c := range map[string]struct {
		objects []client.Object
		logs    map[string]string
		// codes, each with a part of the finding.
		want [][2]string
	}{
		"healthy":           {[]client.Object{agentNode("node2", compute), host, deployer}, map[string]string{"default-host-node2/host": "fine"}, nil},
		"an ordinary start": {[]client.Object{agentNode("node2", compute), host, attempt}, map[string]string{"default-host-node2/host": "fine"}, nil},
		"no label":          {[]client.Object{agentNode("node2", nil)}, nil, [][2]string{{"OCA-7147", "ocadm node enable-host-agent node2"}}},
		"no pod":            {[]client.Object{agentNode("node2", compute), agentPod("node1", "host")}, nil, [][2]string{{"OCA-7147", "kubectl describe node node2"}}},
		"now":               {[]client.Object{agentNode("node2", compute), host}, map[string]string{"default-host-node2/host": noNetwork}, [][2]string{{"OCA-7130", "pod default-host-node2, container host (once)"}}},
		"before it restarted": {[]client.Object{agentNode("node2", compute), host},
			map[string]string{"default-host-node2/host": "starting", "default-host-node2/host/previous": noNetwork}, [][2]string{{"OCA-7130", "climc network-create"}}},
		"overcome": {[]client.Object{agentNode("node2", compute), host},
			map[string]string{"default-host-node2/host": "Host registration process success....", "default-host-node2/host/previous": noNetwork}, nil},
		"another node's": {[]client.Object{agentNode("node2", compute), host, agentPod("node1", "host", container("host", 0))},
			map[string]string{"default-host-node1/host": noNetwork}, nil},
		"another component's": {[]client.Object{agentNode("node2", compute), host, agentPod("node2", "region", container("region", 0))},
			map[string]string{"default-region-node2/region": noNetwork}, nil},
		"event":        {[]client.Object{agentNode("node2", compute), host, event}, nil, [][2]string{{"OCA-7120", "event of pod default-host-node2"}}},
		"host network": {[]client.Object{agentNode("node2", compute), host, alone}, nil, [][2]string{{"OCA-7146", "default-host-deployer-node2"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := examine(t, "node2", logsOf(c.logs), c.objects...)
			if err != nil || len(got) != len(c.want) {
				t.Fatalf("%+v %v", got, err)
			}
			for i, w := range c.want {
				f := got[i]
				if all := strings.Join(append([]string{f.What, f.Cause, f.Remedy}, f.Evidence...), "\n"); f.Code != w[0] || !strings.Contains(all, w[1]) {
					t.Errorf("%+v, want %v", f, w)
				}
			}
		})
	}
}

func TestAgentsOfAnUnknownNode(t *testing.T) {
	_, err := examine(t, "node3", nil, agentNode("node2", compute))
	if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7011" {
		t.Error(err)
	}
}

func TestLogThatCannotBeRead(t *testing.T) {
	denied := apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("no"))
	_, err := examine(t, "node2", func(context.Context, string, string, *corev1.PodLogOptions) ([]byte, error) { return nil, denied },
		agentNode("node2", compute), agentPod("node2", "host", container("host", 0)))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "container host of pod default-host-node2") {
		t.Error(err)
	}
}

// If only the container runtime or the pod network is down, the kubelet still has the logs, which show what the agents did.
func TestAgentsOfANodeThatIsNotReady(t *testing.T) {
	down := agentNode("node2", compute)
	down.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "cni plugin not initialized"}
	read := func(context.Context, string, string, *corev1.PodLogOptions) ([]byte, error) {
		return []byte(noNetwork), nil
	}
	got, err := examine(t, "node2", read, down, agentPod("node2", "host", container("host", 0)))
	if err != nil || len(got) != 2 || got[0].Code != "OCA-3103" || strings.Contains(got[0].Cause, "not read") || got[1].Code != "OCA-7130" {
		t.Errorf("%+v, %v", got, err)
	}
}

// The machine is off: no request waits for its kubelet, and the report says so.
func TestAgentsOfALostNode(t *testing.T) {
	lost := agentNode("node2", compute)
	lost.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "Kubelet stopped posting node status."}
	read := func(context.Context, string, string, *corev1.PodLogOptions) ([]byte, error) {
		return nil, context.DeadlineExceeded
	}
	got, err := examine(t, "node2", read, lost, agentPod("node2", "host", container("host", 0)))
	if err != nil || len(got) != 1 || got[0].Code != "OCA-3103" || !strings.Contains(got[0].Cause, "Kubelet stopped posting node status") {
		t.Errorf("%+v, %v", got, err)
	}
}
