// SPDX-License-Identifier: Apache-2.0

package why

import (
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// TestPodsOfAnotherCloud checks that a cloud is not blamed for the pods of another one, in its own namespace or in that of the operator. Those of an
// adopted cloud have a random instance label, and those of one component another label than its name.
func TestPodsOfAnotherCloud(t *testing.T) {
	for _, c := range []struct {
		namespace, pod, component string
		own                       bool
	}{
		{"onecloud", "staging-region-x", "region", false}, {"elsewhere", "default-region-x", "region", false}, {"onecloud", "default-region-x", "region", true},
		{"onecloud", "default-onecloud-service-operator-x", "osOperator", true},
	} {
		s := healthy(t)
		p := s.addPod(c.namespace, c.pod, "n2", map[string]string{v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelComponent: c.component,
			v1alpha1.LabelInstance: v1alpha1.InstancePrefix + "x7f2"})
		p.Status.Conditions = nil
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		s.Logs = append(s.Logs, Log{Namespace: c.namespace, Pod: c.pod, Container: "main", Lines: []string{"panic: nil map"}})
		name := c.component
		if name == component.ServiceOperatorLabel {
			name = component.ServiceOperator
			s.Cloud.Status.Components = append(s.Cloud.Status.Components, v1alpha1.ComponentStatus{Name: name, State: v1alpha1.Available})
		}
		for _, name := range []string{"", name} {
			if r, ok := Diagnose(s, name); !ok && c.component == "region" || ok && c.own != (r.Cause != nil && r.Cause.ID == "panic") || ok && !c.own && !r.Healthy {
				t.Errorf("%+v, %q: %s, %+v", c, name, r.State, r.Cause)
			}
		}
	}
}

// TestRemedyNamesTheCloud checks that a pasted command of ocadm does not act on the default cloud instead of the one in question.
func TestRemedyNamesTheCloud(t *testing.T) {
	command := regexp.MustCompile(`ocadm (cluster|component|operation|why) [^;]*`)
	for _, c := range provocations() {
		for _, flags := range []string{" --name prod --namespace onecloud2", ""} {
			s := healthy(t)
			c.change(s)
			f := factsOf(s)
			if flags != "" {
				f.Name, f.Namespace = "prod", "onecloud2"
			}
			for _, x := range find(f, Causes()) {
				for _, text := range command.FindAllString(x.Remedy, -1) {
					if flags != "" && strings.Count(text, flags) != 1 || flags == "" && strings.Contains(text, "--name") {
						t.Errorf("%s: %q", x.ID, text)
					}
				}
			}
		}
	}
}

// TestPodsOfAnOperation: pods that pull images for an update or rehearse its migrations fail without harm to the cloud. The operation reports that.
func TestPodsOfAnOperation(t *testing.T) {
	s := healthy(t)
	p := s.addPod("onecloud", "default-update-1-pull-x", "n2", nil)
	p.OwnerReferences = []metav1.OwnerReference{{Kind: v1alpha1.OperationKind, Name: "default-update-1"}}
	p.Status.Conditions, p.Status.Phase = nil, corev1.PodPending
	p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "r.example/x:v9: not found"}}
	if r, _ := Diagnose(s, ""); !r.Healthy {
		t.Errorf("%s, %+v", r.State, r.Cause)
	}
}
