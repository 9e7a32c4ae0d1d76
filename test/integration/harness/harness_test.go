// SPDX-License-Identifier: Apache-2.0

package harness_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

func client(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

func TestCluster(t *testing.T) {
	began := time.Now()
	c, err := harness.Start(t.Context(), harness.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Logf("ready in %s", time.Since(began).Round(10*time.Millisecond))
	t.Run("count", func(t *testing.T) { testCount(t, c) })
	t.Run("rbac", func(t *testing.T) {
		_, err := client(t, c.ServiceAccount("onecloud", "onecloud-operator")).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("an account without permissions may list secrets: %v", err)
		}
	})
	t.Run("kubeconfig", func(t *testing.T) {
		config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
		require.NoError(t, err)
		if _, err := client(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("kubelet", func(t *testing.T) { testKubelet(t, c) })
	if left := running(t, c.Dir); len(left) != 2 {
		t.Errorf("want two processes, have %v", left)
	}
	dir := c.Dir
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := running(t, dir); left != nil {
		t.Errorf("processes left: %v", left)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("files left: %v", err)
	}
}

func testCount(t *testing.T, c *harness.Cluster) {
	config := c.Config(harness.Admin)
	config.UserAgent = "counted"
	counted, other := client(t, config), client(t, c.Config(harness.Admin))
	requests, err := c.Count(t.Context(), harness.Filter{UserAgent: "counted"}, func() error {
		if _, err := other.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
			return err
		}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "onecloud"}}
		_, err := counted.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		return err
	})
	require.NoError(t, err)
	if len(requests) != 1 || requests[0].Verb != "create" || requests[0].Resource != "namespaces" || requests[0].Code != 201 {
		t.Errorf("want one create of a namespace, have %v", requests)
	}
	nothing, err := c.Count(t.Context(), harness.Filter{UserAgent: "counted"}, func() error { return nil })
	if err != nil || len(nothing) != 0 {
		t.Errorf("nothing was done, counted %v, %v", nothing, err)
	}
}

func template(name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	set := map[string]string{"app": name}
	return &metav1.LabelSelector{MatchLabels: set}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: set},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

func eventually(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func testKubelet(t *testing.T, c *harness.Cluster) {
	kubelet, err := c.StartKubelet(t.Context(), harness.Workloads, harness.Node{Name: "n1", Labels: map[string]string{"onecloud.yunion.io/host": "enable"}}, harness.Node{Name: "n2"})
	require.NoError(t, err)
	kubelet.Hold("Deployment", "onecloud", "held")
	k := client(t, c.Config(harness.Admin))
	for _, name := range []string{"free", "held"} {
		selector, pod := template(name)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2)), Selector: selector, Template: pod}}
		if _, err := k.AppsV1().Deployments("onecloud").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	selector, pod := template("ds")
	pod.Spec.NodeSelector = map[string]string{"onecloud.yunion.io/host": "enable"}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod}}
	if _, err := k.AppsV1().DaemonSets("onecloud").Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	selector, pod = template("sts")
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "sts"}, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: pod, ServiceName: "sts"}}
	if _, err := k.AppsV1().StatefulSets("onecloud").Create(t.Context(), sts, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, pod = template("job")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: pod}}
	if _, err := k.BatchV1().Jobs("onecloud").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	available := func(name string, want int32) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			d, err := k.AppsV1().Deployments("onecloud").Get(ctx, name, metav1.GetOptions{})
			return err == nil && d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == want &&
				d.Status.UnavailableReplicas == d.Status.Replicas-want, err
		}
	}
	eventually(t, "free", available("free", 2))
	eventually(t, "held", available("held", 0))
	eventually(t, "the daemon set", func(ctx context.Context) (bool, error) {
		d, err := k.AppsV1().DaemonSets("onecloud").Get(ctx, "ds", metav1.GetOptions{})
		return err == nil && d.Status.NumberAvailable == 1 && d.Status.DesiredNumberScheduled == 1, err
	})
	eventually(t, "the stateful set", func(ctx context.Context) (bool, error) {
		s, err := k.AppsV1().StatefulSets("onecloud").Get(ctx, "sts", metav1.GetOptions{})
		return err == nil && s.Status.ReadyReplicas == 1, err
	})
	eventually(t, "the job", func(ctx context.Context) (bool, error) {
		j, err := k.BatchV1().Jobs("onecloud").Get(ctx, "job", metav1.GetOptions{})
		return err == nil && j.Status.Succeeded == 1 && j.Status.CompletionTime != nil, err
	})
	kubelet.Release(t.Context(), "Deployment", "onecloud", "held")
	eventually(t, "held after its release", available("held", 2))
	label := []byte(`{"metadata":{"labels":{"onecloud.yunion.io/host":"enable"}}}`)
	if _, err := k.CoreV1().Nodes().Patch(t.Context(), "n2", types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon set on a second node", func(ctx context.Context) (bool, error) {
		d, err := k.AppsV1().DaemonSets("onecloud").Get(ctx, "ds", metav1.GetOptions{})
		return err == nil && d.Status.NumberAvailable == 2, err
	})

	quiet, err := c.Count(t.Context(), harness.Filter{UserAgent: harness.KubeletAgent}, func() error { return nil })
	if err != nil || len(quiet) != 0 {
		t.Errorf("the kubelet writes without end: %v, %v", quiet, err)
	}
	if err := kubelet.Stop(); err != nil {
		t.Error(err)
	}
}

func TestControllerManager(t *testing.T) {
	c := harness.Require(t, harness.Options{})
	require.NoError(t, c.StartControllerManager(t.Context()))
	kubelet, err := c.StartKubelet(t.Context(), []string{"Pod"}, harness.Node{Name: "n1"})
	require.NoError(t, err)
	k := client(t, c.Config(harness.Admin))
	selector, pod := template("web")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(3)), Selector: selector, Template: pod}}
	if _, err := k.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "the deployment", func(ctx context.Context) (bool, error) {
		d, err := k.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		return err == nil && d.Status.AvailableReplicas == 3, err
	})
	t.Logf("three pods in %s", time.Since(began).Round(10*time.Millisecond))
	if err := kubelet.Stop(); err != nil {
		t.Error(err)
	}
}

// running lists processes whose command line contains a directory.
func running(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), dir) {
			found = append(found, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return found
}
