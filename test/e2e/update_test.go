// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// noImages updates to a version without images: kubelets and containerd report that, and nothing of the cloud changes.
func (s *suite) noImages(t *testing.T) {
	ctx := t.Context()
	generations := func() string {
		out, err := s.Kubectl(ctx, "-n", "onecloud", "get", "deployments,daemonsets,oc", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.generation}{\"\\n\"}{end}")
		require.NoError(t, err)
		return out
	}
	before := generations()
	out, err := s.On(ctx, 1, scenario.Ocadm, "cluster", "update", "--version", "v4.0.99", "--wait", "--timeout", "10m")
	if err == nil {
		t.Fatalf("the update succeeded: %s", out)
	}
	t.Logf("%v\n%s", err, out)
	text := err.Error() + out
	for _, want := range []string{"OCA-7068", " images of ", "keystone:v4.0.99", "region:v4.0.99", "host:v4.0.99", "nodes node1, node2"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if after := generations(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	pods, err := s.Kubectl(ctx, "-n", "onecloud", "get", "pods", "-l", "onecloud.yunion.io/pull", "-o", "name")
	if err != nil || pods != "" {
		t.Errorf("pods are left: %q, %v", pods, err)
	}
}
