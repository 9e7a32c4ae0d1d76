// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// The pods of every component are found by the name of the component, also where their label has another name.
func TestEveryComponentIsFound(t *testing.T) {
	f := &cloudFlags{name: "default"}
	f.namespace = "onecloud"
	for _, c := range catalog.All() {
		if c.WorkloadKind() == component.NoWorkload {
			continue
		}
		labels := render.ComponentLabels(component.Inputs{Cluster: component.Cluster{Name: "default"}, Self: component.Resolved{Component: c}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-" + c.Name + "-7d9f-x2x4z", Labels: labels}}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "another-" + c.Name + "-7d9f-x2x4z", Labels: map[string]string{
			v1alpha1.LabelComponent: labels[v1alpha1.LabelComponent]}}}
		ref, err := componentRef(f, c.Name)
		require.NoError(t, err)
		found, err := ref.Pod(t.Context(), fake.NewClientBuilder().WithObjects(other, pod).Build(), "", false)
		if err != nil || client.ObjectKeyFromObject(found) != client.ObjectKeyFromObject(pod) {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}

// A user who ends kubectl, with Ctrl-C or by closing its output, sees no error about it.
func TestEndOfKubectl(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	for script, want := range map[string]int{
		"exit 3": 70, "kill -PIPE $$": finding.ExitOK, "kill -INT $$": finding.ExitInterrupted, "exec sleep 60": finding.ExitInterrupted, "true": finding.ExitOK,
	} {
		if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		ctx := t.Context()
		if script == "exec sleep 60" {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeoutCause(ctx, 100*time.Millisecond, Interrupted(os.Interrupt))
			defer stop()
		}
		f := &podFlags{cloudFlags: cloudFlags{kubeconfig: "none"}}
		if err := newApp(Streams{}).kubectl(ctx, f, "logs"); finding.ExitStatus(err) != want {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// A command that runs an operation itself does not end in the middle because nothing reads its output any more.
func TestRecordedOutlivesItsReader(t *testing.T) {
	if os.Getenv("OCADM_TEST_CHILD") != "" {
		by, end := newApp(Streams{Err: os.Stderr}).recorded()
		by.Show(&cluster.Operation{Status: v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationRunning}})
		end()
		return
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	_ = r.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRecordedOutlivesItsReader$") //nolint:gosec // this test
	c.Env, c.Stderr = append(os.Environ(), "OCADM_TEST_CHILD=1"), w
	if err := c.Run(); err != nil {
		t.Error(err)
	}
}
