// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
)

// A service that the database refuses logs that its tables are not in sync, too. The operator quotes the log, and all pods say the same: each problem
// is reported once, and the account explains the tables.
func TestFindingsAreReportedOnce(t *testing.T) {
	s := healthy(t)
	const account, tables = "Error 1045 (28000): Access denied for user 'yunioncloud'@'10.0.0.1'", "[fatal] database schema not in sync!"
	second := *s.named("default-region").DeepCopy()
	s.logs("default-region", account, tables)
	second.Name = "default-region-second"
	s.Pods = append(s.Pods, second)
	s.logs(second.Name, account, tables)
	s.component("region", v1alpha1.Degraded, "PodsNotRunning", "0 of 2 pods ready; container main: CrashLoopBackOff, last exit 1: "+tables+"; "+account)
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.ID != "database-account" || !r.Cause.On.isPod() || len(r.Cause.Evidence) != evidenceLimit {
		t.Fatalf("%+v", r.Cause)
	}
	if len(r.Others) > 0 {
		t.Errorf("not explained: %+v", r.Others)
	}
	var codes []string
	for _, x := range r.Consequences {
		codes = append(codes, x.Code)
		if x.ID == "database-schema" && !strings.Contains(x.Remedy, "logs default-region") {
			t.Errorf("the command names no pod: %s", x.Remedy)
		}
	}
	if slices.Contains(codes, r.Cause.Code) || strings.Count(strings.Join(codes, " "), "OCA-6103") != 1 {
		t.Errorf("explained: %q", codes)
	}
}

// Pods of one component that lack the same image are one problem; those of another component are the same problem elsewhere.
func TestSameProblemOfOtherPods(t *testing.T) {
	const says = `failed to resolve reference "r.example/x:v1": not found`
	s := healthy(t)
	second := *s.named("default-glance").DeepCopy()
	s.pull(says)
	second.Name = "default-glance-second"
	s.Pods = append(s.Pods, second)
	s.ill(second.Name, "ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: `+says)
	s.ill("default-region", "ImagePullBackOff", `Back-off pulling image "region:v1": ErrImagePull: `+says)
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.ID != "image-not-found" || len(r.Others) > 0 {
		t.Fatalf("cause %+v, not explained %+v", r.Cause, r.Others)
	}
	if len(r.Same) != 1 || r.Same[0].ID != r.Cause.ID || strings.Contains(r.Same[0].What+r.Cause.What, second.Name) {
		t.Errorf("elsewhere: %+v", r.Same)
	}
}

// A present problem does not explain an operation that failed earlier.
func TestFailedOperationIsPast(t *testing.T) {
	s := healthy(t)
	s.operation(v1alpha1.OperationFailed)
	s.ready("n2", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.ID != "node-lost" || len(r.Others) != 1 || r.Others[0].ID != "operation-failed" {
		t.Errorf("cause %+v, not explained %+v", r.Cause, r.Others)
	}
}

// The scheduler's message names no node, so the command takes it from the nodes.
func TestCommandForAClosedNode(t *testing.T) {
	for says, want := range map[string]string{
		"3 node(s) had untolerated taint(s).": "kubectl taint node n2 disk-",
		"3 node(s) were unschedulable.":       "kubectl uncordon n3",
	} {
		s := healthy(t)
		s.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute}}
		s.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "seldom", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: "disk", Value: "slow", Effect: corev1.TaintEffectNoSchedule}}
		s.Nodes[2].Spec.Unschedulable = true
		s.unschedulable("default-glance", "0/3 nodes are available: "+says)
		if r, _ := Diagnose(s, ""); r.Cause == nil || !strings.HasSuffix(r.Cause.Remedy, want) {
			t.Errorf("%s: %+v, want %s", says, r.Cause, want)
		}
	}
}

// A host agent is ready before it has registered its node. A failed attempt is a warning until it has registered: the cloud works.
func TestHostThatHasNotRegistered(t *testing.T) {
	const failed = "[E 261128] register failed: ensureHost: try create network: find_matched == false"
	for name, c := range map[string]struct {
		lines []string
		code  string
	}{
		"failing":    {[]string{"Host registration process success", failed, "other"}, "OCA-7130"},
		"registered": {[]string{failed, "Host registration process success", "other"}, ""},
		"other line": {[]string{"find_matched == false"}, ""},
	} {
		s := healthy(t)
		s.addPod("onecloud", "default-host-1", "n2", map[string]string{v1alpha1.LabelComponent: "host"})
		s.Logs = append(s.Logs, Log{Namespace: "onecloud", Pod: "default-host-1", Container: "main", Lines: c.lines})
		r, _ := Diagnose(s, "")
		code := ""
		if r.Cause != nil {
			code = r.Cause.Code
		}
		if code != c.code || !r.Healthy || r.Cause != nil && r.Cause.Severity != finding.Warning {
			t.Errorf("%s: %q, healthy %t, want %q", name, code, r.Healthy, c.code)
		}
	}
}

// The operator's message about a component names no pod: the text names the component.
func TestMessageWithoutAPod(t *testing.T) {
	s := healthy(t)
	s.component("region", v1alpha1.Degraded, "PodsNotRunning", "0 of 1 pods ready; 1 node(s) didn't match PersistentVolume's node affinity")
	r, _ := Diagnose(s, "")
	if r.Cause == nil || r.Cause.What != "The volume of a pod of region is on a node that cannot be used" {
		t.Errorf("%+v", r.Cause)
	}
}
