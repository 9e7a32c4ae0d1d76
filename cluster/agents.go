// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/agentlog"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
)

const (
	// CodeNoAgent is the finding for a node without a host agent pod.
	CodeNoAgent = "OCA-7147"
	// CodeAgentNetwork is the finding for a host-deployer with its own network namespace.
	CodeAgentNetwork = "OCA-7146"
)

const (
	componentHost     = "host"
	componentDeployer = "host-deployer"
)

// agents lists the components whose pods manage the node itself.
var agents = []string{componentHost, componentDeployer, "host-image", "host-health", "host-sdnagent", "host-ovn-controller",
	"host-ovs-vswitchd", "host-ovsdb-server", "host-ovs-image", "telegraf", "lbagent", "glance"}

// LogLines is the number of lines read from the end of a container's log.
const LogLines = 1000

// ReadLog returns the log of one container of a pod.
type ReadLog func(ctx context.Context, namespace, pod string, o *corev1.PodLogOptions) ([]byte, error)

// Agents holds the agent pods on one node and their events.
type Agents struct {
	Node   corev1.Node
	Pods   []corev1.Pod
	Events []corev1.Event
}

// GatherAgents reads the agent pods on a node and their events. It returns a finding for an unknown node.
func GatherAgents(ctx context.Context, c client.Reader, node string) (Agents, error) {
	var a Agents
	if err := c.Get(ctx, client.ObjectKey{Name: node}, &a.Node); apierrors.IsNotFound(err) {
		var list corev1.NodeList
		if err := c.List(ctx, &list); err != nil {
			return a, fmt.Errorf("listing nodes: %w", err)
		}
		names := lists.Map(list.Items, func(n corev1.Node) string { return n.Name })
		return a, unknownNodes([]string{node}, names)
	} else if err != nil {
		return a, fmt.Errorf("reading node %s: %w", node, err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.HasLabels{v1alpha1.LabelComponent}); err != nil {
		return a, fmt.Errorf("listing the pods on node %s: %w", node, err)
	}
	var events corev1.EventList
	if err := c.List(ctx, &events); err != nil {
		return a, fmt.Errorf("listing events: %w", err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == node && slices.Contains(agents, p.Labels[v1alpha1.LabelComponent]) {
			a.Pods = append(a.Pods, p)
			a.Events = append(a.Events, lists.Filter(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID == p.UID })...)
		}
	}
	return a, nil
}

// reasonKilling is the reason of the kubelet's event when it stops a container (k8s.io/kubernetes/pkg/kubelet/events).
const reasonKilling = "Killing"

// Logs reads the logs of the agents: for each container the current run, preceded by the last run if there was one. A container without a log is left
// out. Those of a node whose kubelet has stopped reporting are not read: it would not answer either.
func (a Agents) Logs(ctx context.Context, read ReadLog) ([]agentlog.Log, error) {
	var out []agentlog.Log
	pods := a.Pods
	if a.silent() {
		pods = nil
	}
	for _, p := range pods {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			log := agentlog.Log{Source: "pod " + p.Name + ", container " + s.Name}
			for _, previous := range []bool{true, false} {
				if previous && s.RestartCount == 0 || !previous && s.State.Running == nil && s.State.Terminated == nil {
					continue
				}
				lines := int64(LogLines)
				raw, err := read(ctx, p.Namespace, p.Name, &corev1.PodLogOptions{Container: s.Name, Previous: previous, TailLines: &lines})
				switch {
				case apierrors.IsBadRequest(err) || apierrors.IsNotFound(err):
					// The container restarted, or its pod ended, since it was listed.
				case err != nil:
					return nil, fmt.Errorf("reading the log of container %s of pod %s: %w", s.Name, p.Name, err)
				default:
					log.Lines = append(log.Lines, strings.Split(strings.TrimRight(string(raw), "\n"), "\n")...)
				}
			}
			out = append(out, log)
		}
	}
	for _, e := range a.Events {
		// The kubelet reports each failed startup probe as a warning, but the restart of the container as a normal event.
		if e.Type == corev1.EventTypeWarning || e.Reason == reasonKilling {
			out = append(out, agentlog.Log{Source: "event of pod " + e.InvolvedObject.Name, Lines: []string{e.Message}})
		}
	}
	return out, nil
}

// silent reports whether the kubelet of the node does not report.
func (a Agents) silent() bool { return kube.ReadyCondition(&a.Node).Status == corev1.ConditionUnknown }

// Explain returns the problems found in the pods and their logs. It is pure.
func (a Agents) Explain(logs []agentlog.Log) finding.List {
	var out finding.List
	if ready, why := kube.Ready(&a.Node, nil); !ready {
		if a.silent() {
			why += "; the logs on it were not read"
		}
		out = append(out, finding.New("OCA-3103", "Node "+a.Node.Name+" is not Ready", why, "ocadm why "+a.Node.Name))
	}
	has := func(p corev1.Pod) bool { return p.Labels[v1alpha1.LabelComponent] == componentHost }
	if !slices.ContainsFunc(a.Pods, has) {
		out = append(out, noAgent(a.Node))
	}
	for _, p := range a.Pods {
		if p.Labels[v1alpha1.LabelComponent] == componentDeployer && !p.Spec.HostNetwork {
			out = append(out, finding.New(CodeAgentNetwork, "host-deployer cannot reach its virtual machine", "pod "+p.Name+" has its own network (hostNetwork is not set)",
				"ocadm cluster update; a DaemonSet that this operator did not create needs hostNetwork: true"))
		}
	}
	return append(out, agentlog.Explain(logs)...)
}

func noAgent(n corev1.Node) finding.Finding {
	label := v1alpha1.NodeRolePrefix + RoleHost
	if n.Labels[label] != v1alpha1.Enable {
		return finding.New(CodeNoAgent, "Node "+n.Name+" is not a compute node", "it lacks the label "+label+"="+v1alpha1.Enable,
			"on the node: ocadm join phase compute --enable-host-agent; then here: ocadm node enable-host-agent "+n.Name)
	}
	return finding.New(CodeNoAgent, "Node "+n.Name+" has no pod of the host agent", "no cloud runs component host, or the node does not accept pods",
		"ocadm cluster status; kubectl describe node "+n.Name)
}
