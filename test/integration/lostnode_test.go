// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// agentsOn returns the versions of an agent's pods by node.
func (e *cloudTest) agentsOn(component string) map[string]string {
	e.Helper()
	var pods corev1.PodList
	require.NoError(e, e.Client.List(e.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelComponent: component}))
	out := map[string]string{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			image := p.Spec.Containers[0].Image
			out[p.Spec.NodeName] = image[strings.LastIndex(image, ":")+1:]
		}
	}
	return out
}

// TestUpdateWithALostNode updates a cloud of three nodes of which one is lost. Under Kubernetes' own controllers, the update moves the other two and
// names the lost one, whose agents follow when it returns.
func TestUpdateWithALostNode(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Pods})
	e.Install(e.Only("keystone", "region", "glance", "host", "host-deployer"))
	for _, name := range []string{"node2", "node3"} { // after the services are placed, so that node3 has only agents
		require.NoError(t, e.Kubelet.AddNode(t.Context(), harness.Node{Name: name, Labels: map[string]string{"onecloud.yunion.io/host": "enable"}}))
		t.Cleanup(func() {
			if err := e.Client.Delete(context.WithoutCancel(t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
				t.Error(err)
			}
		})
	}
	agents := []string{"host", "host-deployer"}
	are := func(want map[string]string) {
		t.Helper()
		e.Eventually(func() (bool, string) {
			for _, name := range agents {
				if got := e.agentsOn(name); fmt.Sprint(got) != fmt.Sprint(want) {
					return false, fmt.Sprintf("%s runs %v, want %v", name, got, want)
				}
			}
			return true, ""
		})
	}
	are(map[string]string{"node1": "v4.0.4", "node2": "v4.0.4", "node3": "v4.0.4"})
	time.Sleep(11 * time.Second) // a node that is lost within ten seconds of its creation counts as joining for three minutes
	setReady(t, e.Client, "node3", corev1.ConditionUnknown)
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && env.IsReady(cr) && meta.IsStatusConditionFalse(cr.Status.Conditions, v1alpha1.ConditionNodesReady)
	})

	out, err := ocadm(e.Env, "cluster", "update", "--version", "v4.0.5", "--wait", "-o", "json")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := e.Operations()
	o := e.UntilOperation(all[len(all)-1].Name, env.Ended)
	if o.Status.Phase != v1alpha1.OperationSucceeded {
		t.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
	for _, code := range []string{"OCA-7053", "OCA-7070"} {
		i := slices.IndexFunc(o.Status.Findings, func(f v1alpha1.OperationFinding) bool { return f.Code == code && f.Warning })
		if i < 0 || !strings.Contains(o.Status.Findings[i].Cause, "node3") || strings.Contains(o.Status.Findings[i].Cause, "node2") {
			t.Errorf("%s does not name node3 alone: %+v", code, o.Status.Findings)
		}
	}
	are(map[string]string{"node1": "v4.0.5", "node2": "v4.0.5"}) // the pod on node3 is deleted, and no kubelet ends it
	cr := e.Cloud()
	if cr.Status.Version != "v4.0.5" || !env.IsReady(cr) {
		t.Errorf("version %s: %+v", cr.Status.Version, cr.Status.Conditions)
	}
	for _, name := range agents {
		if c := env.Component(cr, name); c.State != v1alpha1.Available || !strings.Contains(c.Message, "node3") {
			t.Errorf("%s is %s: %s", name, c.State, c.Message)
		}
	}
	prints(e.Env, "node3", "cluster", "status")

	setReady(t, e.Client, "node3", corev1.ConditionTrue)
	are(map[string]string{"node1": "v4.0.5", "node2": "v4.0.5", "node3": "v4.0.5"})
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && env.IsReady(cr) && meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionNodesReady)
	})
}
