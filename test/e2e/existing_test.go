// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"os"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestExistingCluster creates a cluster with plain kubeadm, installs the operator and a cloud on it with only the kubeconfig, and removes both.
func TestExistingCluster(t *testing.T) {
	if err := scenario.Root(); err != nil {
		if os.Getenv("OCADM_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := newSuite(t, machines(t, 2))
	require.NoError(t, s.Software(t.Context()))
	require.NoError(t, s.PlainInit(t.Context()))
	operator := func(args ...string) string {
		out, err := s.On(t.Context(), 1, append([]string{"env", "KUBECONFIG=/etc/kubernetes/admin.conf", scenario.Ocadm}, args...)...)
		require.NoError(t, err)
		return out
	}
	before := s.kubectl(t, "get", "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,priorityclasses", "-o", "name")
	install := []string{"operator", "install", "--onecloud-version", version, "--product-version", "CMP", "--ingress-class", "none"}
	if plan := operator(append(install, "--dry-run")...); !strings.Contains(plan, "create OnecloudCluster onecloud/default") {
		t.Errorf("the plan: %s", plan)
	}
	require.NoError(t, s.Timed("operator install", func() error {
		operator(install...)
		return nil
	}))
	s.available(t)
	generation := s.kubectl(t, "-n", "onecloud", "get", "deployment,statefulset,oc", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.generation}{\"\\n\"}{end}")
	operator(install...)
	if again := s.kubectl(t, "-n", "onecloud", "get", "deployment,statefulset,oc", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.generation}{\"\\n\"}{end}"); again != generation {
		t.Errorf("the second run changed\n%s\nto\n%s", generation, again)
	}
	if _, err := s.On(t.Context(), 1, scenario.Ocadm, "operator", "uninstall", "--yes"); err == nil {
		t.Error("the operator of a cloud was removed")
	}
	operator("cluster", "delete", "--yes", "--delete-data")
	operator("operator", "uninstall", "--yes", "--delete-data")
	if after := s.kubectl(t, "get", "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,priorityclasses", "-o", "name"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if labels := s.kubectl(t, "get", "nodes", "--show-labels"); strings.Contains(labels, "onecloud") {
		t.Errorf("the nodes: %s", labels)
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

func (s *suite) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), args...)
	require.NoError(t, err)
	return out
}
