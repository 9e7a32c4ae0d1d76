// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	clouds "yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/cluster/why/gather"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// golden is the healthy snapshot, which each unit test of package why changes in one way.
const golden = "../../cluster/why/testdata/healthy.json"

func (e *cloudTest) snapshot() *why.Snapshot {
	return gather.Snapshot(e.Context(), e.Client, gather.Options{Cloud: client.ObjectKey{Namespace: namespace, Name: cloud}, Now: time.Now(), Program: "test", Host: "test"})
}

// operatorPod creates the Deployment of an operator, because the operator of these tests runs in this process.
func (e *cloudTest) operatorPod() {
	label := map[string]string{"app": clouds.OperatorName}
	e.Create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: clouds.OperatorName}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: label},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: label},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: clouds.OperatorName, Image: "operator"}}}},
	}})
}

// blames waits until the given cause is reported as what is wrong with the cloud.
func (e *cloudTest) blames(id string) (r why.Report) {
	e.Helper()
	e.Eventually(func() (bool, string) {
		r, _ = why.Diagnose(e.snapshot(), "")
		if r.Cause != nil && r.Cause.ID == id {
			return true, ""
		}
		raw, _ := json.Marshal(r)
		return false, "the report is " + string(raw)
	})
	return r
}

// well waits until nothing is wrong.
func (e *cloudTest) well() {
	e.Helper()
	e.Eventually(func() (bool, string) {
		r, _ := why.Diagnose(e.snapshot(), "")
		raw, _ := json.Marshal(r)
		return r.Healthy && r.Cause == nil && len(r.Others) == 0, "the report is " + string(raw)
	})
}

// TestWhy checks that a healthy cloud has no cause, and that each fault is named first. The API server, the controllers, the operator and the database are real.
func TestWhy(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Pods})
	e.operatorPod()
	cr := e.Only("keystone", "region", "glance", "yunionconf", "web", "etcd")
	e.Install(cr)
	e.Rest()
	if r, _ := why.Diagnose(e.snapshot(), ""); !r.Healthy || r.Cause != nil || len(r.Others) > 0 {
		raw, _ := json.Marshal(r)
		t.Fatalf("a cloud that is well has the report %s", raw)
	}
	if os.Getenv("UPDATE") != "" {
		e.writeGolden()
	}
	password := cr.Spec.MySQL.Password
	for _, fault := range []struct {
		name, id   string
		begin, end func()
	}{
		{"quota", "quota", func() {
			e.Edit(`{"spec":{"glance":{"disable":true}}}`)
			e.UntilReady()
			e.Create(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "tight"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}}})
			e.Edit(`{"spec":{"glance":{"disable":false}}}`)
		}, func() { e.remove(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "tight"}}) }},
		{"database password", "database-password", func() {
			e.Edit(`{"spec":{"mysql":{"password":"wrong-password"},"region":"region0","logger":{"disable":false}}}`)
		}, func() { e.Edit(`{"spec":{"mysql":{"password":"` + password + `"},"logger":{"disable":true}}}`) }},
		{"invalid option", "invalid-option", func() { e.option("default-yunionconf", `{"port":"many"}`) }, func() { e.option("default-yunionconf", `{"port":null}`) }},
		{"policy denies", "webhook-denies", func() {
			e.deny()
			e.SetTag("web", "v4.0.4-denied")
		}, func() {
			e.remove(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-web"}})
			e.remove(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-web"}})
			e.Edit(`{"spec":{"web":{"tag":null}}}`)
		}},
		{"image does not exist", "image-not-found", func() {
			e.state("web", waiting("ImagePullBackOff", `Back-off pulling image "web": ErrImagePull: not found`))
		}, func() { e.again("web") }},
		{"crash loop", "panic", func() {
			e.state("keystone", crashed("panic: runtime error: index out of range [3] with length 3"))
		}, func() { e.again("keystone") }},
		{"node does not report", "node-lost", func() { e.nodeReady(corev1.ConditionUnknown) }, func() { e.nodeReady(corev1.ConditionTrue) }},
	} {
		if !t.Run(fault.name, func(t *testing.T) {
			e := e.in(t)
			fault.begin()
			r := e.blames(fault.id)
			if text, _ := json.Marshal(r); strings.Contains(string(text), password) {
				e.Errorf("the report holds the password of the database: %s", text)
			}
			fault.end()
			e.UntilReady()
			e.well()
		}) {
			return
		}
	}
}

func (e *cloudTest) remove(o client.Object) {
	e.Helper()
	if _, ok := o.(*corev1.ResourceQuota); ok {
		o.SetNamespace(namespace)
	}
	require.NoError(e, e.Client.Delete(e.Context(), o))
}

func (e *cloudTest) option(name, data string) {
	e.EditObject(&corev1.ConfigMap{}, name, `{"data":`+data+`}`)
}

// SetTag sets the tag of a component's image.
func (e *cloudTest) SetTag(component, tag string) {
	e.Edit(`{"spec":{"` + component + `":{"tag":"` + tag + `"}}}`)
}

// deny creates a policy of the cluster that rejects changes to Deployment default-web.
func (e *cloudTest) deny() {
	scope := admissionv1.NamespacedScope
	e.Create(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-web"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}, Scope: &scope},
		}}}},
		Validations: []admissionv1.Validation{{Expression: `object.metadata.name != "default-web" || object.spec == oldObject.spec`, Message: "web must stay as it is"}},
	}})
	e.Create(&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-web"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: "no-web", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}})
	// The policy takes effect after a moment.
	e.Eventually(func() (bool, string) {
		d := &appsv1.Deployment{}
		e.Get(d, "default-web")
		probe := d.DeepCopy()
		probe.Spec.RevisionHistoryLimit = new(int32(3))
		err := e.Client.Update(e.Context(), probe, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "must stay"), "the policy is not in force"
	})
}

// state writes the status of a component's container as a kubelet would.
func (e *cloudTest) state(component string, s corev1.ContainerStatus) {
	e.Helper()
	p := e.podOf(component)
	e.Kubelet.Hold("Pod", namespace, p.Name)
	s.Name, s.Image, s.RestartCount = p.Spec.Containers[0].Name, p.Spec.Containers[0].Image, 4
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: metav1.NewTime(harness.Now().Time)}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	p.Status.Phase = corev1.PodPending // as of a pod that is held
	require.NoError(e, e.Client.Status().Update(e.Context(), p))
}

// again deletes the pod of a component; its successor is healthy.
func (e *cloudTest) again(component string) {
	e.Helper()
	require.NoError(e, e.Client.Delete(e.Context(), e.podOf(component)))
}

func (e *cloudTest) podOf(component string) *corev1.Pod {
	e.Helper()
	var list corev1.PodList
	if err := e.Client.List(e.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelComponent: component}); err != nil || len(list.Items) == 0 {
		e.Fatalf("component %s has no pod: %v", component, err)
	}
	return &list.Items[0]
}

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func crashed(log string) corev1.ContainerStatus {
	s := waiting("CrashLoopBackOff", "back-off 1m20s restarting failed container")
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: log, StartedAt: metav1.Now(), FinishedAt: metav1.Now()}
	return s
}

func (e *cloudTest) nodeReady(status corev1.ConditionStatus) {
	e.Helper()
	var list corev1.NodeList
	require.NoError(e, e.Client.List(e.Context(), &list))
	n := &list.Items[0]
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			c.Status, c.Reason, c.Message = status, "Test", "set by the test"
		}
	}
	require.NoError(e, e.Client.Status().Update(e.Context(), n))
}

// writeGolden writes the parts of a snapshot that the unit tests need.
func (e *cloudTest) writeGolden() {
	e.Helper()
	s := e.snapshot()
	s.Events, s.Leases, s.Volumes, s.Missing = nil, nil, nil, nil
	spec := s.Cloud.Spec
	s.Cloud.Spec = v1alpha1.OnecloudClusterSpec{MySQL: spec.MySQL, Region: spec.Region, Version: spec.Version}
	s.Cloud.Status.Legacy, s.Cloud.Status.Fixed, s.Cloud.ManagedFields, s.Cloud.Annotations = v1alpha1.Legacy{}, nil, nil, nil
	for i := range s.Deployments {
		s.Deployments[i].Spec.Template = corev1.PodTemplateSpec{}
	}
	for i := range s.StatefulSets {
		s.StatefulSets[i].Spec.Template = corev1.PodTemplateSpec{}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		for j := range p.Spec.Containers {
			p.Spec.Containers[j] = corev1.Container{Name: p.Spec.Containers[j].Name, Image: p.Spec.Containers[j].Image}
		}
		p.Spec.InitContainers, p.Annotations = nil, nil
	}
	raw, err := json.MarshalIndent(s, "", " ")
	if err == nil {
		err = os.WriteFile(golden, append(raw, '\n'), 0o644)
	}
	require.NoError(e, err)
}
