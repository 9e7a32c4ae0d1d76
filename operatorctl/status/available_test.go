// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

func TestHighlyAvailable(t *testing.T) {
	nodes := func(ready ...bool) []Node {
		list := []Node{{Name: "compute", Ready: true}}
		for _, r := range ready {
			list = append(list, Node{Ready: r, Labels: map[string]string{v1alpha1.NodeRolePrefix + "controller": v1alpha1.Enable}})
		}
		return list
	}
	cloud := func(members, regions int32) component.Cluster {
		one := func(name string, replicas int32, w component.Workload, single string) component.Resolved {
			return component.Resolved{Component: component.Component{Name: name, Workload: w, Single: single}, Enabled: true, Replicas: replicas}
		}
		return component.Cluster{Profile: component.HA, Components: map[string]component.Resolved{
			"etcd":     one("etcd", members, component.Workload{Kind: component.StatefulSet, FixedMembers: true, KeepsLocks: true}, ""),
			"keystone": one("keystone", 2, component.Workload{}, ""),
			"region":   one("region", regions, component.Workload{Locks: true}, ""),
			"glance":   one("glance", 1, component.Workload{}, "its volume"),
			"host":     one("host", 1, component.Workload{Kind: component.DaemonSet}, ""),
			"off":      {Component: component.Component{Name: "off"}},
		}}
	}
	pods := func(on ...string) (list []corev1.Pod) {
		for _, at := range on {
			name, node, _ := strings.Cut(at, "@")
			list = append(list, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelComponent: name}}, Spec: corev1.PodSpec{NodeName: node}})
		}
		return list
	}
	ending := pods("keystone@a", "keystone@a", "keystone@b")
	ending[2].DeletionTimestamp = &metav1.Time{}
	small := cloud(3, 2)
	small.Profile = component.Small
	for name, tc := range map[string]struct {
		cloud component.Cluster
		nodes []Node
		is    metav1.ConditionStatus
		texts []string
		pods  []corev1.Pod
	}{
		"small":                {small, nodes(true), "", nil, nil},
		"three nodes":          {cloud(3, 2), nodes(true, true, true), metav1.ConditionTrue, []string{"by design one copy of glance"}, nil},
		"nodes not known":      {cloud(3, 2), nil, metav1.ConditionTrue, nil, nil},
		"one node":             {cloud(3, 2), nodes(true), metav1.ConditionFalse, []string{"1 Ready node with the role controller", "by design one copy of glance"}, nil},
		"two, one not Ready":   {cloud(3, 2), nodes(true, false), metav1.ConditionFalse, []string{"1 Ready node"}, nil},
		"two nodes":            {cloud(3, 2), nodes(true, true), metav1.ConditionFalse, []string{"etcd stops if"}, nil},
		"etcd was small":       {cloud(1, 1), nodes(true, true, true), metav1.ConditionFalse, []string{"etcd has 1 member", "one copy of region", "fewer than three members of etcd"}, nil},
		"one copy in the spec": {cloud(3, 1), nodes(true, true, true), metav1.ConditionFalse, []string{"one copy of region (set in the spec"}, nil},
		"spread": {cloud(3, 2), nodes(true, true, true), metav1.ConditionTrue, nil,
			pods("etcd@a", "etcd@b", "etcd@c", "keystone@a", "keystone@b", "region@b", "region@c", "glance@a")},
		"two members on a node": {cloud(3, 2), nodes(true, true, true), metav1.ConditionFalse,
			[]string{"2 of 3 members of etcd are on node b, and it stops if that node is lost; to recreate it"}, pods("etcd@a", "etcd@b", "etcd@b")},
		"two nodes, with pods": {cloud(3, 2), nodes(true, true), metav1.ConditionFalse, []string{"2 of 3 members of etcd are on node a, and it stops if that node is lost; by"},
			pods("etcd@a", "etcd@b", "etcd@a")},
		"copies together": {cloud(3, 2), nodes(true, true, true), metav1.ConditionFalse,
			[]string{"all copies of keystone are on node a; to spread them: ocadm component restart keystone"}, ending},
	} {
		t.Run(name, func(t *testing.T) {
			before := []metav1.Condition{{Type: v1alpha1.ConditionHighlyAvailable, Status: metav1.ConditionTrue}}
			out := &Cloud{OnecloudClusterStatus: v1alpha1.OnecloudClusterStatus{Conditions: before}, now: time.Now()}
			out.HighlyAvailable(tc.cloud, tc.nodes, tc.pods)
			got := meta.FindStatusCondition(out.Conditions, v1alpha1.ConditionHighlyAvailable)
			if tc.is == "" {
				if got != nil {
					t.Errorf("a small cloud has the condition: %+v", got)
				}
				return
			}
			if got == nil || got.Status != tc.is {
				t.Fatalf("got %+v, want %s", got, tc.is)
			}
			for _, text := range tc.texts {
				if !strings.Contains(got.Message, text) {
					t.Errorf("no %q in %q", text, got.Message)
				}
			}
		})
	}
}
