// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

func pod(name string, age time.Duration, status corev1.PodStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"app": "x"}, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		},
		Spec: corev1.PodSpec{NodeName: "node1"}, Status: status,
	}
}

func waiting(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
	}}
}

func TestPodTrouble(t *testing.T) {
	crashed := waiting("CrashLoopBackOff", "back-off 10s")
	crashed.ContainerStatuses[0].RestartCount = 3
	crashed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error", Message: "log\n no such table\n"}
	killed := waiting("CrashLoopBackOff", "")
	killed.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	initial := waiting("PodInitializing", "")
	initial.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "db-init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "access denied"}}},
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"ready": {corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}, ""},
		"unschedulable": {corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"},
		}}, "not scheduled: 0/1 nodes are available"},
		"image":   {waiting("ImagePullBackOff", "pulling x: not found"), "container main: ImagePullBackOff: pulling x: not found"},
		"crashed": {crashed, "container main ended with status 2 (log no such table), restarted 3 times"},
		"killed":  {killed, "container main ended with status 137 (OOMKilled), restarted 0 times"},
		"init":    {initial, "container db-init ended with status 1 (access denied)"},
		"running": {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}, "container main runs and is not ready yet"},
		"unseen": {corev1.PodStatus{}, "the kubelet has not picked it up yet"},
	} {
		p := pod("p", 0, c.status)
		if got := PodTrouble(&p); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestReady(t *testing.T) {
	two := int32(2)
	sel := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	gen := metav1.ObjectMeta{Generation: 2}
	done := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	change := func(f func(*appsv1.DeploymentStatus)) client.Object {
		s := done
		f(&s)
		return &appsv1.Deployment{ObjectMeta: gen, Spec: appsv1.DeploymentSpec{Replicas: &two, Selector: sel}, Status: s}
	}
	node := func(status corev1.ConditionStatus) client.Object {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: "cni plugin not initialized"}}}}
	}
	for name, c := range map[string]struct {
		obj client.Object
		why string // "" means ready
	}{
		"nothing":      {nil, "it does not exist"},
		"deployment":   {change(func(*appsv1.DeploymentStatus) {}), ""},
		"unseen":       {change(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }), "its controller has not observed it"},
		"rolling":      {change(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }), "1 of 2 pods are of the new version"},
		"old pods":     {change(func(s *appsv1.DeploymentStatus) { s.Replicas = 3 }), "1 old pods have not ended"},
		"unavailable":  {change(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 1 }), "1 of 2 pods are ready: pod new: container main: ErrImagePull"},
		"no nodes":     {&appsv1.DaemonSet{ObjectMeta: gen, Spec: appsv1.DaemonSetSpec{Selector: sel}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2}}, "no node matches its pods"},
		"daemon set":   {&appsv1.DaemonSet{ObjectMeta: gen, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1}}, ""},
		"stateful set": {&appsv1.StatefulSet{ObjectMeta: gen, Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 1}}, ""},
		"stateful set rolling": {&appsv1.StatefulSet{ObjectMeta: gen, Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}},
			Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, ReadyReplicas: 1, CurrentRevision: "a", UpdateRevision: "b"}}, "0 of 1 pods are of the new version"},
		"node":           {node(corev1.ConditionTrue), ""},
		"node not ready": {node(corev1.ConditionFalse), "cni plugin not initialized"},
		"definition":     {&apiextensionsv1.CustomResourceDefinition{}, "the API server does not serve it yet"},
	} {
		ok, why := Ready(c.obj, []corev1.Pod{
			pod("old", time.Hour, waiting("CrashLoopBackOff", "")), pod("new", time.Second, waiting("ErrImagePull", "")),
		})
		if ok != (c.why == "") || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %t, %q; want %q", name, ok, why, c.why)
		}
	}
}

func TestDecode(t *testing.T) {
	objs, err := Decode([]byte("# nothing\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: eA==}\nstringData: {b: \"y\"}\n---\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n"))
	if err != nil || len(objs) != 2 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
	if _, left := objs[0].Object["stringData"]; left {
		t.Error("stringData was left")
	}
	if s, ok := As[corev1.Secret](objs[0]); !ok || string(s.Data["a"]) != "x" || string(s.Data["b"]) != "y" {
		t.Errorf("%v", s.Data)
	}
	for name, text := range map[string]string{
		"a key twice": "apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: x}\n", "no name": "apiVersion: v1\nkind: A\n", "no kind": "apiVersion: v1\nmetadata: {name: x}\n",
		"no YAML": "a: [",
	} {
		if _, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	env := map[string]string{"KUBECONFIG": "/b"}
	getenv := func(n string) string { return env[n] }
	if f, err := Kubeconfig("/a", getenv); f != "/a" || err != nil {
		t.Error(f, err)
	}
	if f, err := Kubeconfig("", getenv); f != "/b" || err != nil {
		t.Error(f, err)
	}
	if _, err := os.Stat(AdminKubeconfig); err == nil {
		t.Skip("this is a control-plane node")
	}
	delete(env, "KUBECONFIG")
	defer func() { inCluster = rest.InClusterConfig }()
	for err, code := range map[error]string{nil: "", rest.ErrNotInCluster: "OCA-4201"} {
		inCluster = func() (*rest.Config, error) { return nil, err }
		f, err := Kubeconfig("", getenv)
		if l := finding.Of(err); f != "" || len(l) > 0 && l[0].Code != code || len(l) == 0 && code != "" {
			t.Errorf("%q, %v", f, err)
		}
	}
}

// A user of a control-plane node may not read the administrator's file, but may have a copy, as kubeadm advises.
func TestFirstKubeconfig(t *testing.T) {
	read := func(f string) error {
		return map[string]error{"closed": fs.ErrPermission, "missing": fs.ErrNotExist}[f]
	}
	for files, want := range map[string]string{"own closed": "own", "missing closed own": "own", "closed missing": "closed", "missing": ""} {
		if got := first(strings.Fields(files), read); got != want {
			t.Errorf("%s: %q", files, got)
		}
	}
}

// The cause of an unusable kubeconfig is what a user can correct.
func TestInvalidKubeconfig(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"missing":              {"", "no such file"},
		"without context":      {"contexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://a'}}]\n", "current-context is not set"},
		"of a missing context": {"current-context: b\n", "context: b"},
	} {
		file := filepath.Join(dir, name)
		if c.text != "" {
			require.NoError(t, os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\n"+c.text), 0o600))
		}
		_, err := Config(file)
		if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-4202" || !strings.Contains(l[0].Cause, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
