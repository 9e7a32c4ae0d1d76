// SPDX-License-Identifier: Apache-2.0

package why

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

func (s *Snapshot) leaseOf(namespace, name string) *coordinationv1.Lease {
	for i := range s.Leases {
		if s.Leases[i].Namespace == namespace && s.Leases[i].Name == name {
			return &s.Leases[i]
		}
	}
	s.Leases = append(s.Leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return &s.Leases[len(s.Leases)-1]
}

// The changes that provoke causes.

func (s *Snapshot) named(name string) *corev1.Pod {
	i := slices.IndexFunc(s.Pods, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, name) })
	if i < 0 {
		panic("no pod " + name)
	}
	return &s.Pods[i]
}

// ill makes a pod unready: its container waits for a reason.
func (s *Snapshot) ill(pod, reason, message string) *corev1.Pod {
	p := s.named(pod)
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			p.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "r.example/x:v1"}}
	if reason != "" {
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	}
	if c := p.Labels[v1alpha1.LabelComponent]; c != "" {
		s.component(c, v1alpha1.Degraded, "PodsNotRunning", "0 of 1 pods ready; container main: "+reason+": "+message)
	}
	return p
}

// logs makes a pod crash with a log.
func (s *Snapshot) logs(pod string, lines ...string) {
	p := s.ill(pod, "CrashLoopBackOff", "back-off 5m0s restarting failed container")
	p.Status.ContainerStatuses[0].RestartCount = 9
	s.Logs = append(s.Logs, Log{Namespace: p.Namespace, Pod: p.Name, Container: "main", Previous: true, Lines: lines})
}

func (s *Snapshot) component(name string, state v1alpha1.State, reason, message string) {
	for i, c := range s.Cloud.Status.Components {
		if c.Name == name {
			s.Cloud.Status.Components[i].State, s.Cloud.Status.Components[i].Reason, s.Cloud.Status.Components[i].Message = state, reason, message
			return
		}
	}
	panic("no component " + name)
}

func (s *Snapshot) effect(component, message string) {
	s.component(component, v1alpha1.Degraded, "EffectFailed", message)
}

func (s *Snapshot) event(kind, namespace, name, reason, message string) {
	s.Events = append(s.Events, corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(s.Time.Add(-time.Minute)),
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}})
}

// podEvent makes a pod wait, with an event.
// startError lets a pod's container fail before its first process, as the container runtime reports it.
func (s *Snapshot) startError(pod, message string) {
	s.ill(pod, "", "").Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 128, Reason: "StartError", Message: "failed to create containerd task: failed to create shim task: " + message}
}

func (s *Snapshot) podEvent(pod, reason, message string) {
	p := s.ill(pod, "ContainerCreating", "")
	s.event("Pod", p.Namespace, p.Name, reason, message)
}

func (s *Snapshot) unschedulable(pod, message string) {
	p := s.ill(pod, "", "")
	p.Spec.NodeName, p.Status.ContainerStatuses, p.Status.Phase = "", nil, corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
}

// rejected makes the kubelet refuse a pod that the scheduler has given it.
func (s *Snapshot) rejected(reason, message string) {
	p := s.ill("default-glance", "", "")
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: "Pod was rejected: " + message}
	s.component("glance", v1alpha1.Degraded, "PodsNotRunning", "0 of 1 pods ready; "+reason+": "+p.Status.Message)
}

func (s *Snapshot) ready(node string, status corev1.ConditionStatus, reason, message string) {
	for i := range s.Nodes {
		if s.Nodes[i].Name == node {
			s.Nodes[i].Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message}
		}
	}
}

func (s *Snapshot) nodeCondition(kind corev1.NodeConditionType) {
	s.Nodes[1].Status.Conditions = append(s.Nodes[1].Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Message: "too little"})
}

func (s *Snapshot) refuse(code string) {
	*s = Snapshot{Format: Format, Time: s.Time, Namespace: s.Namespace, Name: s.Name,
		Refused: &finding.Finding{Code: code, Severity: finding.Error, What: "it does not answer", Cause: "connection refused", Remedy: "look there"}}
}

func (s *Snapshot) claim(name string, phase corev1.PersistentVolumeClaimPhase, class *string) *corev1.PersistentVolumeClaim {
	s.Claims = append(s.Claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, CreationTimestamp: metav1.NewTime(s.Time.Add(-time.Hour))},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class, VolumeName: ""}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}})
	if class != nil && *class == "local-path" {
		s.Classes = append(s.Classes, storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: *class}})
	}
	p := s.named("default-glance")
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	if phase == corev1.ClaimPending {
		s.unschedulable("default-glance", "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
	}
	return &s.Claims[len(s.Claims)-1]
}

func (s *Snapshot) pull(message string) {
	s.ill("default-glance", "ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: `+message)
}

func (s *Snapshot) machine(unit, state, line string) {
	s.Machines[0].Units[unit] = state
	s.Machines[0].Journals[unit] = []string{line}
}

func (s *Snapshot) virtualAddress(v VirtualAddress) {
	v.Address = "10.0.0.100"
	s.Machines[0].APIServer, s.Machines[0].VirtualAddress = Ready, &v
}

func TestHealthy(t *testing.T) {
	r, ok := Diagnose(healthy(t), "")
	if !ok || !r.Healthy || r.Cause != nil || len(r.Others)+len(r.Consequences) > 0 || r.Err() != nil {
		raw, _ := json.MarshalIndent(r, "", " ")
		t.Fatalf("%s", raw)
	}
	for _, name := range healthy(t).Names() {
		if r, ok := Diagnose(healthy(t), name); !ok || !r.Healthy || r.Cause != nil {
			t.Errorf("%s: %v %+v", name, ok, r)
		}
	}
	if _, ok := Diagnose(healthy(t), "nothing"); ok {
		t.Error("it knows what is not there")
	}
}

// TestCauses changes the healthy snapshot in one way at a time, and expects that cause first.
func TestCauses(t *testing.T) {
	provoked := map[string]bool{}
	for _, c := range provocations() {
		provoked[c.id] = true
		t.Run(c.id, func(t *testing.T) {
			s := healthy(t)
			c.change(s)
			r, ok := Diagnose(s, "")
			if !ok || r.Cause == nil || r.Cause.ID != c.id {
				raw, _ := json.MarshalIndent(r, "", " ")
				t.Fatalf("want %s first: %s", c.id, raw)
			}
			if warning := r.Cause.Severity == finding.Warning; warning == (r.Err() != nil) || r.Healthy && !warning {
				t.Errorf("severity %s, healthy %v, error %v", r.Cause.Severity, r.Healthy, r.Err())
			}
			if text := r.Cause.What + r.Cause.Cause + r.Cause.Remedy; strings.Contains(text, "${") || strings.Contains(text, "KIND") || r.Cause.Remedy == "" || r.Cause.What == "" {
				t.Errorf("%+v", r.Cause)
			}
		})
	}
	for _, c := range Causes() {
		if !provoked[c.ID] && !strings.HasPrefix(c.ID, "agent-") {
			t.Errorf("no test provokes %s", c.ID)
		}
	}
}

// TestVolumeAdvice checks that the advice for a lost volume is the command that gives it up: a backup has no images.
func TestVolumeAdvice(t *testing.T) {
	for _, c := range provocations() {
		if c.id != "volume-node-gone" {
			continue
		}
		s := healthy(t)
		c.change(s)
		r, _ := Diagnose(s, "")
		if r.Cause == nil || !strings.Contains(r.Cause.Remedy, "ocadm node remove n9 --delete-volumes") || strings.Contains(r.Cause.Remedy, "backup") {
			t.Errorf("%+v", r.Cause)
		}
		return
	}
	t.Error("nothing provokes volume-node-gone")
}

var kebab = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func TestTable(t *testing.T) {
	ids := map[string]bool{}
	own := 0
	for _, c := range Causes() {
		if ids[c.ID] || !kebab.MatchString(c.ID) || c.Title == "" || c.Next == "" || c.Why == "" || (c.Says == nil) == (c.When == nil) {
			t.Errorf("%+v", c)
		}
		ids[c.ID] = true
		if !strings.HasPrefix(c.ID, "agent-") {
			own++
		}
	}
	if own < 60 {
		t.Errorf("%d causes", own)
	}
}

// docs/reference/causes.md is the table of causes; UPDATE=1 writes it.
func TestDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Causes\n\nWhat `ocadm why` recognises, the lowest layer first. `ocadm why --list -o json` prints the same list. " +
		"`ocadm explain CODE` explains a\ncode. Causes marked *warning* do not make a cloud unhealthy. *Repair* means that `ocadm why --fix` can do it.\n\n" +
		"This page is generated from `cluster/why/causes_*.go` (`UPDATE=1 go test ./cluster/why`).\n\n| Cause | Code | Layer | Meaning |\n|---|---|---|---|\n")
	for _, c := range Causes() {
		marks := ""
		if c.Warning {
			marks += " *(warning)*"
		}
		if c.Fix != nil {
			marks += " *(repair)*"
		}
		b.WriteString("| `" + c.ID + "` | " + c.Code + " | " + c.Layer.String() + " | " + fill(c.Title, nil) + marks + " |\n")
	}
	require.Golden(t, filepath.Join("..", "..", "docs", "reference", "causes.md"), b.String())
}

// TestBlocker checks that in a chain of waiting components the cause is that of the last one, and explains the rest.
func TestBlocker(t *testing.T) {
	s := healthy(t)
	s.component("web", v1alpha1.Waiting, "WaitingForComponents", "waiting for region")
	s.component("region", v1alpha1.Waiting, "WaitingForComponents", "waiting for keystone")
	for i := range s.Cloud.Status.Components {
		switch c := &s.Cloud.Status.Components[i]; c.Name {
		case "web":
			c.BlockedBy = []string{"region"}
		case "region":
			c.BlockedBy = []string{"keystone"}
		}
	}
	s.pull("not found")
	s.logs("default-keystone", "bye")
	s.ready("n2", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	s.ready("n3", corev1.ConditionFalse, "KubeletNotReady", "container runtime is down")
	r, _ := Diagnose(s, "web")
	want := []Subject{"component/web", "component/region", "component/keystone", podSubject(s.named("default-keystone")), "node/n2"}
	if r.Cause == nil || r.Cause.ID != "node-lost" || !slices.Equal(r.Way, want) {
		t.Fatalf("%+v", r)
	}
	var follows []string
	for _, x := range r.Consequences {
		follows = append(follows, x.ID)
	}
	if !slices.Contains(follows, "crash-loop") {
		t.Errorf("it explains %v", follows)
	}
	if !slices.ContainsFunc(r.Others, func(x Found) bool { return x.ID == "node-no-runtime" && x.On == "node/n3" }) {
		t.Errorf("the other node is not an anomaly of its own: %+v", r.Others)
	}
}

// TestAgentLine checks that a line known to package agentlog is a cause in an agent's pod, and only there.
func TestAgentLine(t *testing.T) {
	const line = "register failed: try create network: find_matched == false"
	s := healthy(t)
	p := s.addPod(s.Namespace, "default-host-x", "n2", map[string]string{v1alpha1.LabelComponent: "host"})
	s.Cloud.Status.Components = append(s.Cloud.Status.Components, v1alpha1.ComponentStatus{Name: p.Labels[v1alpha1.LabelComponent], State: v1alpha1.Available})
	s.logs("default-host-x", line)
	if r, _ := Diagnose(s, "host"); r.Cause == nil || r.Cause.Code != "OCA-7130" {
		t.Errorf("%+v", r.Cause)
	}
	s = healthy(t)
	s.logs("default-glance", line)
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "crash-loop" {
		t.Errorf("%+v", r.Cause)
	}
}

func TestDoctorFinding(t *testing.T) {
	s := healthy(t)
	s.Nodes[0].Labels[v1alpha1.NodeRolePrefix+"host"] = v1alpha1.Enable
	s.Machines[0].Findings = finding.List{doctor()}
	if r, _ := Diagnose(s, "n1"); r.Cause == nil || r.Cause.ID != "doctor-7102" || r.Err() == nil {
		t.Errorf("%+v", r)
	}
}

// TestRepairs checks that each repair is offered once.
func TestRepairs(t *testing.T) {
	s := healthy(t)
	s.Nodes[1].Spec.Unschedulable, s.Nodes[1].UID = true, "seen"
	r, _ := Diagnose(s, "")
	got := r.Repairs()
	if len(got) != 1 || got[0].Action != Uncordon || got[0].Name != "n2" || got[0].Command != "kubectl uncordon n2" || got[0].UID != "seen" {
		t.Errorf("%+v", got)
	}
}

// Without asking, a node is uncordoned and its pods are forgotten only if the report is about that node: another may be drained, or just cut off.
func TestUnasked(t *testing.T) {
	s := healthy(t)
	s.Nodes[0].Spec.Unschedulable = true
	s.ready("n2", corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.")
	p := s.named("default-keystone")
	p.UID, p.Spec.NodeName, p.DeletionTimestamp = "seen", "n2", &metav1.Time{Time: s.Time.Add(-time.Hour)}
	for name, want := range map[string][]Action{"": nil, "keystone": nil, "n1": {Uncordon}, "n2": {ForgetPod}} {
		r, _ := Diagnose(s, name)
		var got []Action
		repairs := r.Repairs()
		for _, x := range repairs {
			if r.Unasked(x) {
				got = append(got, x.Action)
			}
			if x.Action == ForgetPod && (x.UID != p.UID || x.Node != "n2") {
				t.Errorf("%+v", x)
			}
		}
		if len(repairs) != 2 || !slices.Equal(got, want) {
			t.Errorf("%q: %v of %+v, want %v", name, got, repairs, want)
		}
	}
	if !(Report{Symptom: cloud}).Unasked(Repair{Action: DeletePod, Node: "n2"}) {
		t.Error("the record of an evicted pod is kept")
	}
}

// Container logs must not reach a terminal unescaped.
func TestPrintable(t *testing.T) {
	if got := shorten("a\x1b[31mb\x07c\td"); got != "ab c d" {
		t.Errorf("%q", got)
	}
	if got := shorten(strings.Repeat("ä", 500)); len(got) > lineBytes+10 || !utf8.ValidString(got) {
		t.Errorf("%d bytes", len(got))
	}
}

// TestRenewal checks that the renewal of a certificate depends on the machine and the file.
func TestRenewal(t *testing.T) {
	for _, c := range []struct {
		controlPlane, expired bool
		file, want            string
	}{
		{true, true, "/etc/kubernetes/pki/apiserver.crt", "on n1, and on each other control-plane node: ocadm certs renew"},
		{true, false, "/etc/kubernetes/pki/apiserver.crt", "on n1, and on each other control-plane node: ocadm certs renew"},
		{true, true, "/etc/kubernetes/pki/ca.crt", "ocadm certs rotate-ca"},
		{true, true, "/etc/kubernetes/pki/etcd/ca.crt", "ocadm certs rotate-ca"},
		{false, true, "/etc/kubernetes/pki/ca.crt", "ocadm certs rotate-ca"},
		{false, false, "/var/lib/kubelet/pki/kubelet-client-current.pem", "on n1: systemctl restart kubelet"},
		{false, true, "/var/lib/kubelet/pki/kubelet-client-current.pem", "ocadm token create --print-join-command; then run that line on n1"},
	} {
		if got := renewal("n1", c.controlPlane, c.expired, c.file); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", c.file, got)
		}
	}
}
