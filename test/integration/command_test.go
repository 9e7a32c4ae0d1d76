// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"strings"
	"testing"

	"yunion.io/x/ocadm/cmd"
	"yunion.io/x/ocadm/test/env"
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
