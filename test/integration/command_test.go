// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// ocadm runs a command against the API server of a test and returns its output.
func ocadm(e *env.Env, args ...string) (string, error) {
	return run(e, append(args, "--kubeconfig", e.Cluster.Kubeconfig)...)
}

// run runs a command and returns its output.
func run(e *env.Env, args ...string) (string, error) {
	var out, story bytes.Buffer
	c := cmd.New(cmd.Streams{In: strings.NewReader(""), Out: &out, Err: &story})
	c.SetArgs(args)
	err := c.ExecuteContext(e.Context())
	if err != nil {
		e.Logf("ocadm %s: %s", strings.Join(args, " "), story.String())
	}
	return out.String(), err
}

// prints runs a command that must succeed and print something.
func prints(e *env.Env, want string, args ...string) {
	e.Helper()
	if out, err := ocadm(e, args...); err != nil || !strings.Contains(out, want) {
		e.Fatalf("ocadm %s: %v, printed %q, want %q", strings.Join(args, " "), err, out, want)
	}
}

// TestNamespaceRemoved checks that the operator can stop watching a namespace without a cloud, but not one with a cloud.
func TestNamespaceRemoved(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.deployment()
	const other = "tenant-c"
	prints(e.Env, other, "operator", "namespace", "add", other)
	prints(e.Env, other, "operator", "namespace", "list")
	tenant := e.At(other)
	cr := tenant.Minimal()
	tenant.Create(cr)
	if out, err := ocadm(e.Env, "operator", "namespace", "remove", other); err == nil || !strings.Contains(err.Error(), "default") {
		t.Fatalf("a namespace with a cloud was left: %v, printed %q", err, out)
	}
	prints(e.Env, other, "operator", "namespace", "list")
	tenant.Clean()
	prints(e.Env, other, "operator", "namespace", "remove", other)
	if out, err := ocadm(e.Env, "operator", "namespace", "list"); err != nil || strings.Contains(out, other) {
		t.Errorf("listed after it was removed: %v, printed %q", err, out)
	}
	if out, err := ocadm(e.Env, "operator", "namespace", "remove", other); err != nil {
		t.Errorf("removed twice: %v, printed %q", err, out)
	}
}

// TestRepeatedInitKeepsItsSettings checks that phases of init that run again without the flags of the first run change nothing: findings advise to run them.
func TestRepeatedInitKeepsItsSettings(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.deployment() // which the test removes
	machine := host.Files{Root: t.TempDir()}
	raw, err := os.ReadFile(e.Cluster.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, machine.WriteFile(kube.AdminKubeconfig, raw, 0o600))
	phase := func(name string, flags ...string) {
		t.Helper()
		out, err := run(e.Env, append([]string{"init", "phase", name, "--rootfs", machine.Root, "--node-name", "node1", "--node-ip", "192.0.2.1"}, flags...)...)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	flags := []string{"--image-repository", "r.example.org/x", "--edition", "ee", "--profile", "ha", "--load-balancer-endpoint", "cloud.example.org", "--region", "here", "--ingress", "none"}
	state := func() (string, cluster.Options) {
		t.Helper()
		d := &appsv1.Deployment{}
		require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: operator.Name}, d))
		o, err := cluster.LoadSettings(t.Context(), e.Client, namespace)
		require.NoError(t, err)
		return d.Spec.Template.Spec.Containers[0].Image, o
	}
	phase("operator", flags...)
	phase("cloud-settings", flags...)
	image, stored := state()
	phase("operator")
	phase("cloud-settings")
	if again, kept := state(); again != image || kept != stored {
		t.Errorf("%s\n%s\n%+v\n%+v", image, again, stored, kept)
	}
	phase("storage", "--storage-path", "/data/volumes")
	phase("storage")
	volumes := &corev1.ConfigMap{}
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: "local-path-storage", Name: "local-path-config"}, volumes); err != nil ||
		!strings.Contains(volumes.Data["config.json"], "/data/volumes") {
		t.Errorf("new volumes go elsewhere: %v, %v", volumes.Data, err)
	}
	phase("operator", "--image-repository", "r.example.org/y")
	if moved, _ := state(); !strings.HasPrefix(moved, "r.example.org/y/") {
		t.Errorf("a flag that is given has no effect: %s", moved)
	}
	phase("operator") // the stored repository is still the former one
	if back, _ := state(); !strings.HasPrefix(back, "r.example.org/y/") {
		t.Errorf("the operator was moved back: %s", back)
	}
}
