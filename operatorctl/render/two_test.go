// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// Two clouds in one namespace share no object, and nothing in one selects a pod of the other.
func TestTwoCloudsDoNotMeet(t *testing.T) {
	type seen struct {
		names     map[string]bool
		selectors []labels.Selector
		pods      []labels.Set
	}
	var clouds []seen
	for _, name := range []string{"default", "default-b"} {
		cr := cloudOf(t, "testdata/ce/cr.yaml")
		cr.Name = name
		cluster := described(t, cr)
		s := seen{names: map[string]bool{}}
		for _, c := range cluster.Components {
			if !c.Enabled {
				continue
			}
			o, err := render.Component(c, component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
			require.NoError(t, err)
			for _, obj := range render.List(o) {
				s.names[obj.GetObjectKind().GroupVersionKind().Kind+"/"+obj.GetName()] = true
				selector, pod := selects(t, obj)
				if selector != nil {
					s.selectors = append(s.selectors, selector)
				}
				if pod != nil {
					s.pods = append(s.pods, pod)
				}
			}
		}
		if len(s.names) < 100 || len(s.pods) < 30 {
			t.Fatalf("%s: only %d objects and %d workloads", name, len(s.names), len(s.pods))
		}
		clouds = append(clouds, s)
	}
	for name := range clouds[0].names {
		if clouds[1].names[name] {
			t.Errorf("both clouds have %s", name)
		}
	}
	for i, mine := range clouds {
		for _, selector := range mine.selectors {
			for _, pod := range clouds[1-i].pods {
				if selector.Matches(pod) {
					t.Errorf("%s selects pods of the other cloud: %v", selector, pod)
				}
			}
		}
	}
}

// selects returns an object's selector and the labels of its pods.
func selects(t *testing.T, o client.Object) (labels.Selector, labels.Set) {
	t.Helper()
	var s *metav1.LabelSelector
	var pod labels.Set
	switch w := o.(type) {
	case *appsv1.Deployment:
		s, pod = w.Spec.Selector, w.Spec.Template.Labels
	case *appsv1.StatefulSet:
		s, pod = w.Spec.Selector, w.Spec.Template.Labels
	case *appsv1.DaemonSet:
		s, pod = w.Spec.Selector, w.Spec.Template.Labels
	case *corev1.Service:
		return labels.SelectorFromSet(w.Spec.Selector), nil
	default:
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector, pod
}

// A chosen port is that of the Service, of the nodes, and of the clients; a program with a fixed port still listens there.
func TestChosenPorts(t *testing.T) {
	cr := cloudOf(t, "testdata/ce/cr.yaml")
	cr.Spec.VictoriaMetrics.Service.NodePort = 31428
	cr.Spec.OvnNorth.NorthService.NodePort, cr.Spec.OvnNorth.SouthService.NodePort = 31241, 31242
	cluster := described(t, cr)
	in := component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)}
	for name, want := range map[string][][2]int32{"victoria-metrics": {{31428, 30428}}, "ovn-north": {{31241, 6641}, {31242, 6642}}} {
		o, err := render.Component(cluster.Components[name], in)
		require.NoError(t, err)
		s, ok := o.Services[0].(*corev1.Service)
		if !ok || len(s.Spec.Ports) != len(want) {
			t.Fatalf("%s has %v", name, o.Services)
		}
		for i, p := range s.Spec.Ports {
			if p.Port != want[i][0] || p.NodePort != want[i][0] || p.TargetPort.IntVal != want[i][1] {
				t.Errorf("%s: port %d, node port %d, target %d, want %v", name, p.Port, p.NodePort, p.TargetPort.IntVal, want[i])
			}
		}
	}
	for name, text := range map[string]string{"telegraf": "default-victoria-metrics:31428", "vpcagent": "tcp:default-ovn-north:31241", "host": "tcp:default-ovn-north:31242"} {
		o, err := render.Component(cluster.Components[name], in)
		require.NoError(t, err)
		found := false
		for _, obj := range render.List(o) {
			data, err := yaml.Marshal(obj)
			require.NoError(t, err)
			found = found || strings.Contains(string(data), text)
			if s, ok := obj.(*corev1.Secret); ok {
				for _, file := range s.Data {
					found = found || strings.Contains(string(file), text)
				}
			}
		}
		if !found {
			t.Errorf("%s does not call %s", name, text)
		}
	}
}

// podOf returns the pod spec of a workload, nil if it has none.
func podOf(o client.Object) *corev1.PodSpec {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &w.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &w.Spec.Template.Spec
	case *batchv1.CronJob:
		return &w.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}
